"""The plan of a run: its cells, which of their trials are stored, and the time for the rest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from remask.config import TrialConfig
from remask.data.dataset import is_complete
from remask.data.registry import BENCHMARKS
from remask.experiments.cost import cost_of, rates_of, seconds_of, shortest_time, usual_stack
from remask.experiments.executors import Executor
from remask.experiments.jobs import Job, plan_jobs
from remask.experiments.options import RunOptions
from remask.experiments.running import executor_for, largest_stacks
from remask.experiments.train import check_device
from remask.own_code import own_title
from remask.reports.tables import PlainTable
from remask.store.cells import cell_labels
from remask.store.store import Store


@dataclass(frozen=True)
class PlannedCell:
    """Trials that differ only in their seed."""

    config: TrialConfig
    """With seed 0."""
    label: str
    """The method's name in tables, with the settings that distinguish it."""
    trials: int
    to_run: int
    """Number of trials that the store does not have."""
    flops: float
    """FLOPs of the trials to run."""
    seconds: float
    """Time of the trials to run, one stack after the other."""

    @property
    def stored(self) -> int:
        """Number of trials that are not run."""
        return self.trials - self.to_run


@dataclass(frozen=True, repr=False)
class Plan:
    """The cells of a run, and the time it would take."""

    cells: Sequence[PlannedCell]
    stacks: Sequence[float]
    """Seconds per stack of trials."""
    at_once: int
    """Number of stacks trained at once."""
    lacking: Sequence[str]
    """Benchmarks whose data would be fetched first."""

    @property
    def trials(self) -> int:
        """Number of trials."""
        return sum(cell.trials for cell in self.cells)

    @property
    def to_run(self) -> int:
        """Number of trials that would be run."""
        return sum(cell.to_run for cell in self.cells)

    @property
    def flops(self) -> float:
        """FLOPs of the trials to run."""
        return sum(cell.flops for cell in self.cells)

    @property
    def seconds(self) -> float:
        """Time of the run."""
        return shortest_time(self.stacks, self.at_once)

    def table(self) -> PlainTable:
        """A row per cell."""
        table = PlainTable()
        for name in ("benchmark", "method"):
            table.add_column(name, no_wrap=True)
        for name in ("buffer", "trials", "stored", "to run", "work", "time"):
            table.add_column(name, justify="right", no_wrap=True)
        for cell in self.cells:
            table.add_row(
                cell.config.benchmark,
                cell.label,
                str(cell.config.buffer or "-"),
                *map(str, (cell.trials, cell.stored, cell.to_run)),
                _write_flops(cell.flops) if cell.to_run else "-",
                _write_time(cell.seconds) if cell.to_run else "-",
            )
        return table

    def summary(self) -> str:
        """The number of trials to run, and about how long they take."""
        counts = f"{len(self.cells)} cells, {self.trials} trials, {self.to_run} to run"
        if not self.to_run:
            return f"{counts}."
        data = ""
        if self.lacking:
            data = f" The data of {', '.join(self.lacking)} will be downloaded first."
        return (
            f"{counts}: about {_write_time(self.seconds)} with {self.at_once} at a time, in "
            f"{len(self.stacks)} stacks, the longest of {_write_time(max(self.stacks))}; "
            f"{_write_flops(self.flops)} in all. Estimated from the work of each method and the "
            f"measured speed of this hardware (docs/scaling.md).{data}"
        )

    def __repr__(self) -> str:
        return f"{self.table()}\n{self.summary()}"


def plan_trials(store: Store | None, configs: Sequence[TrialConfig], options: RunOptions) -> Plan:
    """Plan a run of these trials without running anything; `store=None` is an empty store.

    Refuses what a run would refuse, as far as that does not need missing data.
    """
    wanted = list(dict.fromkeys(configs))
    left = [c for c in wanted if options.again or store is None or not store.is_done(c.hash)]
    executor = executor_for(options)
    lacking = sorted(name for name in {c.benchmark for c in left} if not _has_data(name))
    flops = _once(lambda config: cost_of(config).flops)
    try:
        at_once = executor.at_once(options) if left else options.processes
        stacks = _stacks(left, lacking, at_once, options, executor, flops)
    finally:
        executor.disconnect()
    seconds = {c: own / len(job.configs) for job, own in stacks for c in job.configs}
    by_cell: dict[TrialConfig, list[TrialConfig]] = {}
    for config in wanted:
        by_cell.setdefault(config.cell, []).append(config)
    labels = cell_labels(list(by_cell), {cell: own_title(cell.method) for cell in by_cell})
    cells = []
    for (cell, trials), label in zip(by_cell.items(), labels, strict=True):
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
    flops: Callable[[TrialConfig], float],
) -> list[tuple[Job, float]]:
    """The stacks of these trials, and the seconds that each takes."""
    largest = {
        config.net: options.stack or usual_stack(config, options.device)
        for config in configs
        if config.benchmark in lacking
    }
    largest |= largest_stacks([c for c in configs if c.benchmark not in lacking], options)
    jobs = plan_jobs(configs, at_once, lambda config: largest[config.net])
    if jobs and executor.on_this_machine:
        check_device(options.device)
    durations: dict[tuple[str, int], Callable[[TrialConfig], float]] = {}
    # Rates are measured on the smallest inputs; larger ones take proportionally longer.
    for job in sorted(jobs, key=lambda job: flops(job.configs[0])):
        config, trials = job.configs[0], len(job.configs)
        if (config.net, trials) not in durations:
            rates = executor.call(rates_of, config, trials, options, options=options)
            durations[config.net, trials] = _once(partial(seconds_of, rates=rates))
    return [(job, durations[job.configs[0].net, len(job.configs)](job.configs[0])) for job in jobs]


def _once(function: Callable[[TrialConfig], float]) -> Callable[[TrialConfig], float]:
    """Call `function` only once for configs of equal cost."""
    found: dict[tuple[object, ...], float] = {}

    def call(config: TrialConfig) -> float:
        key = (*config.shape(), config.weights)  # some methods cost more for a larger weight
        if key not in found:
            found[key] = function(config)
        return found[key]

    return call


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
