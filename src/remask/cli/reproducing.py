"""Behind `remask reproduce`: which cells, how long they take, and what they show.

Imported when a command needs it, because torch takes seconds to import.
"""

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from remask.asking import SettingsError, several, trial_configs
from remask.benchmarks import BENCHMARKS, verify
from remask.cli.console import errors, output
from remask.cli.printing import print_comparison, print_decisions
from remask.cli.running import How, largest_stacks
from remask.config import TrialConfig, read_mask
from remask.launch import estimate_seconds, plan_jobs
from remask.names import (
    UnknownNameError,
    system_name,
    systems_named,
    unknown,
    unknown_method,
)
from remask.papers import (
    PaperCell,
    experiment_cells,
    published_benchmarks,
    published_figures,
    statements,
)
from remask.reports import compare, decide, decide_by_the_paper, paper_cell
from remask.store import Store, TrialRecord, config_hash, summarise

_USUAL_TRIALS = 10  # where nothing is published of a cell


def wanted_cells(
    experiment: str, benchmarks: str, filters: Mapping[str, object]
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
        raise SettingsError(f"the paper has no {experiment!r} experiment on {', '.join(names)}")
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
        seeds=range(trials or in_the_paper or _USUAL_TRIALS),
    )


def print_plan(store: Store, cells: Sequence[PaperCell], trials: int | None, how: How) -> None:
    """Which cells there are, what the store has of them, and how long the rest will take."""
    configs = {cell: configs_of(cell, trials) for cell in cells}
    missing = {
        cell: [config for config in own if not store.is_done(config_hash(config))]
        for cell, own in configs.items()
    }
    seconds = _seconds([config for own in missing.values() for config in own], how)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in ("benchmark", "method", "buffer", "trials", "stored", "to run", "core time"):
        words = name in ("benchmark", "method")
        table.add_column(name, justify="left" if words else "right", no_wrap=True)
    for cell, own in configs.items():
        left = len(missing[cell])
        times = [seconds.get(config) for config in missing[cell]]
        table.add_row(
            cell.benchmark,
            system_name(cell.method, cell.mask),
            str(cell.buffer or "-"),
            str(len(own)),
            str(len(own) - left),
            str(left),
            _write_time(None if None in times else sum(filter(None, times))) if left else "-",
        )
    output.print(table)
    to_run = sum(map(len, missing.values()))
    output.print(
        f"{len(cells)} cells, {sum(map(len, configs.values()))} trials, {to_run} to run"
        + (f": {_write_total(missing, seconds, how)}" if to_run else "."),
        highlight=False,
        soft_wrap=True,
    )


def print_findings(
    cells: Sequence[PaperCell], records: Sequence[TrialRecord], *, markdown: bool
) -> None:
    """Ours beside the published figures, then the statements that these cells can decide."""
    ours = summarise(records)
    print_comparison(compare(cells, ours), markdown=markdown)
    by_cell = {paper_cell(cell): cell for cell in ours}
    wanted = set(cells)
    asked = [
        statement
        for benchmark in dict.fromkeys(cell.benchmark for cell in cells)
        for statement in statements(benchmark)
        if all({e.higher, e.lower} <= wanted for e in statement.expectations)
    ]
    if asked:
        print_decisions(decide(asked, by_cell), decide_by_the_paper(asked), markdown=markdown)


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
            raise UnknownNameError(unknown(f"{field} of these cells", text, options))
    return [cell for cell in cells if getattr(cell, field) in chosen]


def _read(field: str, text: str) -> object:
    try:
        return read_mask(text) if field == "mask" else int(text)
    except ValueError as error:
        raise SettingsError(f"{field} = {text!r}: {error}") from None


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _seconds(configs: Sequence[TrialConfig], how: How) -> dict[TrialConfig, float]:
    """What each trial takes of a core, as one of its stack; no entry where the data is missing."""
    benchmarks = dict.fromkeys(config.benchmark for config in configs)
    there = [benchmark for benchmark in benchmarks if _has_data(benchmark)]
    measurable = [config for config in configs if config.benchmark in there]
    largest = largest_stacks(measurable, how)
    jobs = plan_jobs(measurable, how.processes, lambda config: largest[config.net])
    rates: dict[object, float] = {}
    found = {}
    if jobs:
        errors.print("timing a few steps of every kind of trial ...", highlight=False)
    for job in jobs:
        shape = (job.configs[0].shape(), len(job.configs))
        if shape not in rates:
            rates[shape] = estimate_seconds(job, how.options) / len(job.configs)
        found.update(dict.fromkeys(job.configs, rates[shape]))
    return found


def _has_data(benchmark: str) -> bool:
    dataset = BENCHMARKS[benchmark].dataset
    return dataset is None or all(status.state == "ok" for status in verify(dataset))


def _write_total(
    missing: Mapping[PaperCell, Sequence[TrialConfig]],
    seconds: Mapping[TrialConfig, float],
    how: How,
) -> str:
    unknown_data = dict.fromkeys(
        cell.benchmark for cell, own in missing.items() if any(c not in seconds for c in own)
    )
    total = _write_time(sum(seconds.values()) / how.processes)
    measured = (
        f"about {total} with {how.processes} at a time, from a few steps of every task of each "
        f"kind of trial, timed just now"
    )
    unmeasured = (
        f"no time is known for {', '.join(unknown_data)}, whose data is not there yet "
        f"(`remask data fetch`)"
    )
    return "; ".join([measured] * bool(seconds) + [unmeasured] * bool(unknown_data)) + "."


def _write_time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"
