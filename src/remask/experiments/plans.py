"""What a run would do: which cells, what the store has of them, and how long the rest takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from remask.benchmarks import BENCHMARKS
from remask.config import TrialConfig
from remask.datasets import is_complete
from remask.own_code import own_title
from remask.reports.tables import PlainTable
from remask.results import Store, cell_labels
from remask.runs import (
    Executor,
    Job,
    Rates,
    RunOptions,
    check_device,
    cost_of,
    executor_for,
    largest_stacks,
    plan_jobs,
    rates_of,
    seconds_of,
    shortest_time,
    usual_stack,
)

_COLUMNS = ("benchmark", "method", "buffer", "trials", "stored", "to run", "work", "time")


@dataclass(frozen=True)
class PlannedCell:
    """Trials that differ in their seed only, and what would be run of them."""

    config: TrialConfig
    """Of any of the trials; its seed means nothing."""
    label: str
    """The method's name in tables, with what sets it apart from similar ones."""
    trials: int
    to_run: int
    """How many of the trials would be run: the store does not have them."""
    flops: float
    """What those compute."""
    seconds: float
    """How long those take, one stack after the other."""

    @property
    def stored(self) -> int:
        """How many of the trials would not be run."""
        return self.trials - self.to_run


@dataclass(frozen=True, repr=False)
class Plan:
    """The cells of a run, and how long it would take."""

    cells: Sequence[PlannedCell]
    stacks: Sequence[float]
    """How long each stack of trials takes, in seconds."""
    at_once: int
    """How many stacks are trained at once."""
    lacking: Sequence[str]
    """Benchmarks whose data would be fetched first."""

    @property
    def trials(self) -> int:
        """How many trials there are."""
        return sum(cell.trials for cell in self.cells)

    @property
    def to_run(self) -> int:
        """How many of them would be run."""
        return sum(cell.to_run for cell in self.cells)

    @property
    def flops(self) -> float:
        """What they compute."""
        return sum(cell.flops for cell in self.cells)

    @property
    def seconds(self) -> float:
        """How long the run takes."""
        return shortest_time(self.stacks, self.at_once)

    def table(self) -> PlainTable:
        """A row per cell."""
        table = PlainTable()
        for name in _COLUMNS:
            words = name in ("benchmark", "method")
            table.add_column(name, justify="left" if words else "right", no_wrap=True)
        for cell in self.cells:
            table.add_row(
                cell.config.benchmark,
                cell.label,
                str(cell.config.buffer or "-"),
                str(cell.trials),
                str(cell.stored),
                str(cell.to_run),
                _write_flops(cell.flops) if cell.to_run else "-",
                _write_time(cell.seconds) if cell.to_run else "-",
            )
        return table

    def summary(self) -> str:
        """How many trials are left, and about how long they take."""
        return f"{len(self.cells)} cells, {self.trials} trials, {self.to_run} to run" + (
            f": {self._total()}" if self.to_run else "."
        )

    def __repr__(self) -> str:
        return f"{self.table()}\n{self.summary()}"

    def _total(self) -> str:
        parts = [
            f"about {_write_time(self.seconds)} with {self.at_once} at a time, in "
            f"{len(self.stacks)} stacks, the longest of {_write_time(max(self.stacks))}",
            f"{_write_flops(self.flops)} in all",
            "worked out from what each method computes and how fast this hardware is, which was "
            "measured once (docs/scaling.md says how well that does)",
        ]
        if self.lacking:
            data = ", ".join(self.lacking)
            parts.append(f"the data of {data} is not there yet (`remask data fetch`)")
        return "; ".join(parts) + "."


def plan_trials(store: Store | None, configs: Sequence[TrialConfig], options: RunOptions) -> Plan:
    """Plan a run of these trials; nothing is run. Without a store, it has none of them.

    What a run would refuse is refused, as far as it can be told without data that is not there.
    """
    wanted = list(dict.fromkeys(configs))
    left = [c for c in wanted if options.again or store is None or not store.is_done(c.hash)]
    executor = executor_for(options)
    lacking = sorted(name for name in {c.benchmark for c in left} if not _has_data(name))
    try:
        at_once = executor.at_once(options) if left else options.processes
        stacks = _stacks(left, lacking, at_once, options, executor)
    finally:
        executor.disconnect()
    seconds = {c: own / len(job.configs) for job, own in stacks for c in job.configs}
    flops = _Once(lambda config: cost_of(config).flops)
    own_cells: dict[TrialConfig, list[TrialConfig]] = {}
    for config in wanted:
        own_cells.setdefault(config.cell, []).append(config)
    cells = []
    titles = {cell: own_title(cell.method) for cell in own_cells}
    labels = cell_labels(list(own_cells), titles)
    for (cell, trials), label in zip(own_cells.items(), labels, strict=True):
        to_run = [config for config in trials if config in seconds]
        work = flops(cell) * len(to_run) if to_run else 0.0
        own_seconds = sum(seconds[config] for config in to_run)
        cells.append(PlannedCell(cell, label, len(trials), len(to_run), work, own_seconds))
    return Plan(cells, [own for _, own in stacks], at_once, lacking)


def _stacks(
    configs: Sequence[TrialConfig],
    lacking: Sequence[str],
    at_once: int,
    options: RunOptions,
    executor: Executor,
) -> list[tuple[Job, float]]:
    """The stacks that these trials would be trained in, and how many seconds each takes."""
    largest = {
        config.net: options.stack or usual_stack(config, options.device)
        for config in configs
        if config.benchmark in lacking
    }
    largest |= largest_stacks([c for c in configs if c.benchmark not in lacking], options)
    jobs = plan_jobs(configs, at_once, lambda config: largest[config.net])
    # Rates are those of the smallest inputs: FLOPs tell what larger ones take.
    flops = _Once(lambda config: cost_of(config).flops)
    small_first = sorted(jobs, key=lambda job: flops(job.configs[0]))
    rates: dict[tuple[str, int], Rates] = {}
    for job in small_first:
        key = (job.configs[0].net, len(job.configs))
        if key not in rates:
            rates[key] = _rates(job.configs[0], len(job.configs), options, executor)
    durations = {
        (net, trials): _Once(partial(seconds_of, rates=own)) for (net, trials), own in rates.items()
    }
    return [(job, durations[job.configs[0].net, len(job.configs)](job.configs[0])) for job in jobs]


class _Once:
    """A function of the cost of a config that is called once for configs of equal cost."""

    def __init__(self, function: Callable[[TrialConfig], float]) -> None:
        self._function = function
        self._found: dict[tuple[object, ...], float] = {}

    def __call__(self, config: TrialConfig) -> float:
        # Methods may cost more for a larger weight of their own.
        key = (*config.shape(), config.weights)
        if key not in self._found:
            self._found[key] = self._function(config)
        return self._found[key]


def _rates(config: TrialConfig, trials: int, options: RunOptions, executor: Executor) -> Rates:
    if executor.on_this_machine:
        check_device(options.device)
    return executor.call(rates_of, config, trials, options, options=options)


def _has_data(benchmark: str) -> bool:
    return benchmark not in BENCHMARKS or is_complete(BENCHMARKS[benchmark].dataset)


def _write_flops(flops: float) -> str:
    for unit, size in (("EFLOP", 1e18), ("PFLOP", 1e15)):
        if flops >= size:
            return f"{flops / size:,.3g} {unit}"
    return f"{flops / 1e12:,.3g} TFLOP"


def _write_time(seconds: float) -> str:
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"
