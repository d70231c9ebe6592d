"""What trials have shown: the records, and what is made of them for people."""

import importlib
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, overload

from remask.config import TrialConfig
from remask.errors import MissingPackageError
from remask.experiments.comparing import Compared
from remask.planning import changed_settings, trial_configs
from remask.reports.comparison import compare, paper_cell
from remask.reports.figures import plot
from remask.reports.selection import best_by_validation, masks_chosen
from remask.reports.tables import PlainTable, results_table
from remask.results import (
    Cell,
    Store,
    TrialRecord,
    column_types,
    flat_row,
    summarise,
)
from remask.runs import Executor, Run, RunOptions, executor_for, finish_run, prepare_run
from remask.runs.preparing import note_changed_code

_DEMO: tuple[tuple[str, float | None], ...] = (
    ("er", None),
    ("er", float("-inf")),
    ("derpp", None),
    ("derpp", float("-inf")),
    ("derpp", -1.0),
)


class Results(Sequence[TrialRecord]):
    """Trials, a record each. Printed, or shown by a notebook, they are a table of cells.

    `asked` is the order in which cells are shown; without it they are sorted.
    """

    def __init__(
        self,
        records: Iterable[TrialRecord],
        *,
        asked: Sequence[TrialConfig] = (),
        failures: Sequence[str] = (),
        ran: bool = False,
    ) -> None:
        self._records = tuple(records)
        self._asked = [config.cell for config in asked]
        self.failures = list(failures)
        """What failed and why, for people."""
        self.ran = ran
        """Whether anything had to be run: the store may have had them all."""

    @overload
    def __getitem__(self, index: int) -> TrialRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[TrialRecord]: ...
    def __getitem__(self, index: int | slice) -> TrialRecord | Sequence[TrialRecord]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def cells(self) -> list[Cell]:
        """What trials that differ in their seed only show together."""
        order = {config: place for place, config in enumerate(dict.fromkeys(self._asked))}
        found = summarise(self._records)
        return sorted(found, key=lambda cell: order.get(cell.config, len(order)))

    def table(self) -> PlainTable:
        """A row per cell: accuracy and forgetting. A rich Table; `str(...)` is its text."""
        return results_table(self.cells())

    def best_by_validation(self) -> list[str]:
        """Which cell is best by held-out training data, in words; empty: nothing was held out."""
        return best_by_validation(self.cells())

    def masks_chosen(self) -> list[str]:
        """What trials with the mask "auto" chose after each task, in words; empty: none has it."""
        return masks_chosen(self.cells())

    def frame(self) -> Any:
        """A row per trial, with its config and all metrics, as a pandas DataFrame."""
        try:
            pandas: Any = importlib.import_module("pandas")
        except ImportError:
            raise MissingPackageError(
                "a DataFrame needs pandas, which is not installed: pip install pandas"
            ) from None
        return pandas.DataFrame(map(flat_row, self._records), columns=list(column_types()))

    def plot(self, figure: str = "accuracy-over-tasks", setting: str = "class_il") -> Any:
        """Draw a figure of the page: a matplotlib Figure, or None if there is nothing to draw.

        `figure` is `confidence`, `accuracy-over-tasks`, `accuracy-within-tasks`, `losses`,
        `mask-sweep`, `matrices`, `confusion` or `stability-plasticity`; `setting` is `class_il` or
        `task_il`.
        """
        return plot(self.cells(), figure, setting)

    def compare(self) -> Compared:
        """Ours beside the published figures, of the cells whose settings are the published ones."""
        cells = [cell for cell in self.cells() if not changed_settings(cell.config)]
        compared = compare([paper_cell(cell) for cell in cells], cells)
        return Compared(cell for cell in compared if cell.figures)

    def __repr__(self) -> str:
        table = str(self.table()) if self._records else "No trials."
        return "\n".join([table, *self.failures])

    def _repr_html_(self) -> str:
        if not self._records:
            return f"<p>{escape(repr(self))}</p>"
        return self.table()._repr_html_()


def run_trials(
    store: Store,
    configs: Sequence[TrialConfig],
    options: RunOptions,
    *,
    remedy: str = "again=True runs",
    executor: Executor | None = None,
) -> Results:
    """Run what the store lacks of these trials; returns what it then has of all of them.

    `remedy` is what the user can do to run stored trials again. Raises `Stopped` if asked to stop.
    """
    executor = executor or executor_for(options)
    run = prepare_run(store, configs, options, executor, remedy=remedy)
    failures = [] if run is None else finish_run(store, run, options, executor)
    ran = run is not None
    return Results(_stored(store, configs), asked=configs, failures=failures, ran=ran)


def resume_run(
    store: Store,
    run: Run,
    options: RunOptions,
    *,
    remedy: str = "`remask.run` with again=True runs",
    executor: Executor | None = None,
) -> Results:
    """Go on with a run to its end; returns what the store then has of it."""
    executor = executor or executor_for(options)
    if not run.again:
        note_changed_code(store, run.configs, remedy, options.console)
    failures = finish_run(store, run, options, executor)
    return Results(_stored(store, run.configs), asked=run.configs, failures=failures, ran=True)


def demo_configs(trials: int) -> list[TrialConfig]:
    """The trials of the demo: replay with and without masks on the embedded digits."""
    return [
        config
        for method, mask in _DEMO
        for config in trial_configs(
            benchmark="split-digits", method=method, masks=[mask], seeds=range(trials)
        )
    ]


def _stored(store: Store, configs: Sequence[TrialConfig]) -> list[TrialRecord]:
    """What the store has of these trials."""
    found = (store.get(config.hash) for config in dict.fromkeys(configs))
    return [record for record in found if record is not None]
