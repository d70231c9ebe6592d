"""Reproducing the paper: which cells, and what they show."""

from collections.abc import Mapping, Sequence

from remask.config import TrialConfig
from remask.experiments.comparing import Reproduction
from remask.experiments.results import run_trials
from remask.names import (
    UnknownNameError,
    systems_named,
    unknown,
    unknown_method,
)
from remask.papers.experiments import (
    PaperCell,
    experiment_cells,
    published_benchmarks,
    published_figures,
)
from remask.planning import SettingsError, several, trial_configs
from remask.results import Store
from remask.runs import Executor, RunOptions
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


def cell_configs(cells: Sequence[PaperCell], trials: int | None) -> list[TrialConfig]:
    """The trials of several cells."""
    return [config for cell in cells for config in configs_of(cell, trials)]


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
    configs = cell_configs(cells, trials)
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
