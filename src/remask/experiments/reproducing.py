"""Reproducing the paper: which cells, how long they take, and what they show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from remask.benchmarks import BENCHMARKS
from remask.config import TrialConfig
from remask.datasets import is_complete
from remask.experiments.comparing import Reproduction
from remask.experiments.results import run_trials
from remask.names import (
    UnknownNameError,
    system_name,
    systems_named,
    unknown,
    unknown_method,
)
from remask.papers import PaperCell, experiment_cells, published_benchmarks, published_figures
from remask.planning import SettingsError, several, trial_configs
from remask.reports import PlainTable
from remask.results import Store
from remask.runs import (
    Executor,
    Job,
    Rates,
    Ray,
    RunOptions,
    check_device,
    cost_of,
    executor_for,
    plan_jobs,
    rates_of,
    seconds_of,
    shortest_time,
    usual_stack,
)
from remask.setting_types import read_mask

_DEFAULT_TRIALS = 10  # where nothing is published of a cell


def wanted_cells(
    experiment: str | Sequence[str],
    benchmarks: str | Sequence[str],
    filters: Mapping[str, object],
) -> list[PaperCell]:
    """The cells of experiments on the named benchmarks, or on `all`, that pass the filters."""
    known = published_benchmarks()
    names = known if benchmarks == "all" else several(benchmarks)
    for name in names:
        if name not in known:
            raise UnknownNameError(unknown("benchmark of the paper", name, [*known, "all"]))
    experiments = several(experiment)
    cells = [cell for name in names for e in experiments for cell in experiment_cells(e, name)]
    cells = list(dict.fromkeys(cells))
    if not cells:
        raise SettingsError(
            f"there is no {','.join(experiments)!r} experiment on {', '.join(names)}"
        )
    cells = _of_methods(cells, filters.get("method"))
    for field in ("mask", "buffer"):
        cells = _only(cells, field, filters.get(field))
    return cells


def configs_of(cell: PaperCell, trials: int | None) -> list[TrialConfig]:
    """The trials of a cell, with the published settings; as many as the paper has, or as asked."""
    in_the_paper = next((claim.trials for claim in published_figures(cell).values()), None)
    return trial_configs(
        benchmark=cell.benchmark,
        method=cell.method,
        masks=[cell.mask],
        buffer=cell.buffer or None,
        seeds=range(trials or in_the_paper or _DEFAULT_TRIALS),
        overrides={"evaluate_every": cell.evaluate_every} if cell.evaluate_every else None,
    )


@dataclass(frozen=True)
class PlannedStack:
    """Trials that would be trained as one, and how long that would take."""

    job: Job
    seconds: float


@dataclass(frozen=True, repr=False)
class PaperPlan:
    """Which cells of the paper there are, what the store lacks of them, and how long that takes."""

    configs: Mapping[PaperCell, Sequence[TrialConfig]]
    missing: Mapping[PaperCell, Sequence[TrialConfig]]
    """Those of the trials that the store does not have."""
    stacks: Sequence[PlannedStack]
    at_once: int
    """How many stacks are trained at once."""

    def table(self) -> PlainTable:
        """A row per cell."""
        table = PlainTable()
        columns = ("benchmark", "method", "buffer", "trials", "stored", "to run", "work", "time")
        for name in columns:
            words = name in ("benchmark", "method")
            table.add_column(name, justify="left" if words else "right", no_wrap=True)
        seconds = {c: s.seconds / len(s.job.configs) for s in self.stacks for c in s.job.configs}
        for cell, own in self.configs.items():
            left = self.missing[cell]
            flops = sum(cost_of(config).flops for config in left)
            table.add_row(
                cell.benchmark,
                system_name(cell.method, cell.mask),
                str(cell.buffer or "-"),
                str(len(own)),
                str(len(own) - len(left)),
                str(len(left)),
                _write_flops(flops) if left else "-",
                _write_time(sum(seconds[config] for config in left)) if left else "-",
            )
        return table

    def summary(self) -> str:
        """How many trials are left, and about how long they take."""
        to_run = sum(map(len, self.missing.values()))
        trials = sum(map(len, self.configs.values()))
        return f"{len(self.configs)} cells, {trials} trials, {to_run} to run" + (
            f": {self._total()}" if to_run else "."
        )

    def __repr__(self) -> str:
        return f"{self.table()}\n{self.summary()}"

    def _total(self) -> str:
        times = [stack.seconds for stack in self.stacks]
        flops = sum(cost_of(c).flops for own in self.missing.values() for c in own)
        there = {stack.job.configs[0].benchmark for stack in self.stacks}
        lacking = [name for name in there if not _has_data(name)]
        parts = [
            f"about {_write_time(shortest_time(times, self.at_once))} with {self.at_once} at a "
            f"time, in {len(times)} stacks, the longest of {_write_time(max(times))}",
            f"{_write_flops(flops)} in all",
            "worked out from what each method computes and how fast this hardware is, which was "
            "measured once (docs/scaling.md says how well that does)",
        ]
        if lacking:
            data = ", ".join(sorted(lacking))
            parts.append(f"the data of {data} is not there yet (`remask data fetch`)")
        return "; ".join(parts) + "."


def plan_cells(
    store: Store, cells: Sequence[PaperCell], trials: int | None, options: RunOptions
) -> PaperPlan:
    """What the store lacks of these cells, and how long it will take; nothing is run."""
    configs = {cell: configs_of(cell, trials) for cell in cells}
    missing = {
        cell: [config for config in own if not store.is_done(config.hash)]
        for cell, own in configs.items()
    }
    left = list(dict.fromkeys(config for own in missing.values() for config in own))
    executor = executor_for(options) if left else None
    try:
        at_once = options.processes if executor is None else executor.at_once(options)
        stacks = _stacks(left, at_once, options, executor)
    finally:
        if isinstance(executor, Ray):
            executor.disconnect()
    return PaperPlan(configs, missing, stacks, at_once)


def run_cells(
    store: Store,
    cells: Sequence[PaperCell],
    trials: int | None,
    options: RunOptions,
    *,
    remedy: str = "again=True runs",
    executor: Executor | None = None,
) -> Reproduction:
    """Run what the store lacks of these cells, and put them beside the paper."""
    configs = [config for cell in cells for config in configs_of(cell, trials)]
    results = run_trials(store, configs, options, remedy=remedy, executor=executor)
    return Reproduction.of(cells, results)


def _of_methods(cells: Sequence[PaperCell], wanted: object) -> list[PaperCell]:
    """The cells that any of the wanted names stands for; each of those must be there."""
    if not isinstance(wanted, list):
        return list(cells)
    there = dict.fromkeys(cell.method for cell in cells)
    chosen: dict[PaperCell, None] = {}
    for name in wanted:
        systems = systems_named(name, there)
        found = [c for c in cells if any(s.include(c.method, c.mask) for s in systems)]
        if not found:
            raise unknown_method("method of these cells", name, there)
        chosen.update(dict.fromkeys(found))
    return [cell for cell in cells if cell in chosen]


def _only(cells: Sequence[PaperCell], field: str, wanted: object) -> list[PaperCell]:
    """The cells whose `field` is one of those wanted; each of those must be there."""
    if not isinstance(wanted, list):
        return list(cells)
    there = dict.fromkeys(getattr(cell, field) for cell in cells)
    chosen = [_read(field, text) for text in wanted]
    for value, text in zip(chosen, wanted, strict=True):
        if value not in there:
            options = ["none" if value is None else _plain(value) for value in there]
            raise UnknownNameError(unknown(f"{field} of these cells", str(text), options))
    return [cell for cell in cells if getattr(cell, field) in chosen]


def _read(field: str, text: object) -> object:
    try:
        return read_mask(text) if field == "mask" else int(str(text))
    except ValueError as error:
        raise SettingsError(f"{field} = {text!r}: {error}") from None


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _stacks(
    configs: Sequence[TrialConfig], at_once: int, options: RunOptions, executor: Executor | None
) -> list[PlannedStack]:
    """The stacks that these trials would be trained in, and how long each takes."""
    largest = {c.net: options.stack or usual_stack(c, options.device) for c in configs}
    jobs = plan_jobs(configs, at_once, lambda config: largest[config.net])
    # Rates are those of the smallest inputs: FLOPs tell what larger ones take.
    small_first = sorted(jobs, key=lambda job: cost_of(job.configs[0]).flops)
    rates: dict[tuple[str, int], Rates] = {}
    for job in small_first:
        key = (job.configs[0].net, len(job.configs))
        if key not in rates:
            rates[key] = _rates(job.configs[0], len(job.configs), options, executor)
    return [
        PlannedStack(job, seconds_of(job.configs[0], rates[job.configs[0].net, len(job.configs)]))
        for job in jobs
    ]


def _rates(
    config: TrialConfig, trials: int, options: RunOptions, executor: Executor | None
) -> Rates:
    if isinstance(executor, Ray):  # of a node of the cluster, with what a stack has of it
        return executor.call(rates_of, config, trials, options, options=options)
    check_device(options.device)
    return rates_of(config, trials, options)


def _has_data(benchmark: str) -> bool:
    return is_complete(BENCHMARKS[benchmark].dataset)


def _write_flops(flops: float) -> str:
    for unit, size in (("EFLOP", 1e18), ("PFLOP", 1e15)):
        if flops >= size:
            return f"{flops / size:,.3g} {unit}"
    return f"{flops / 1e12:,.3g} TFLOP"


def _write_time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"
