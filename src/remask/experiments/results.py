"""The results of trials, and their comparison with published figures."""

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, overload

from remask.config import TrialConfig
from remask.errors import MissingPackageError
from remask.experiments.defaults import changed_settings
from remask.papers.experiments import PaperCell
from remask.papers.statements import statements
from remask.record import TrialRecord
from remask.reports.comparison import (
    ComparedCell,
    compare,
    comparison_markdown,
    comparison_summary,
    comparison_table,
    paper_cell,
)
from remask.reports.figures import plot
from remask.reports.statements import (
    STATEMENT_TEST,
    Decision,
    decide,
    decide_by_the_paper,
    decision_table,
)
from remask.reports.tables import (
    CURVES_NOTE,
    PlainTable,
    best_by_validation,
    curve_table,
    masks_chosen,
    results_table,
)
from remask.store.cells import Cell, summarise
from remask.store.export import column_types, flat_row

NOTHING_PUBLISHED = (
    "Nothing is published about these results: figures exist for the paper's benchmarks, methods, "
    "masks and buffers with their published settings."
)


class Compared(Sequence[ComparedCell]):
    """Cells with their published figures; printed as a table and a summary."""

    def __init__(self, cells: Iterable[ComparedCell]) -> None:
        self._cells = tuple(cells)

    @overload
    def __getitem__(self, index: int) -> ComparedCell: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ComparedCell]: ...
    def __getitem__(self, index: int | slice) -> ComparedCell | Sequence[ComparedCell]:
        return self._cells[index]

    def __len__(self) -> int:
        return len(self._cells)

    def table(self) -> PlainTable:
        """A row per cell: ours, with the published figure below."""
        return comparison_table(self._cells)

    def summary(self) -> list[str]:
        """What the table means and shows, a sentence per line."""
        return comparison_summary(self._cells) if self._cells else [NOTHING_PUBLISHED]

    def markdown(self) -> str:
        """The table and the summary in Markdown."""
        table = comparison_markdown(self._cells) if self._cells else ""
        return table + "\n".join(self.summary())

    def __repr__(self) -> str:
        table = [str(self.table())] if self._cells else []
        return "\n".join([*table, *self.summary()])

    def _repr_html_(self) -> str:
        if not self._cells:
            return f"<p>{escape(NOTHING_PUBLISHED)}</p>"
        return self.table()._repr_html_()


class Results(Sequence[TrialRecord]):
    """The records of trials; printed, or shown in a notebook, as a table of cells.

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
        self._order = {cell: n for n, cell in enumerate(dict.fromkeys(c.cell for c in asked))}
        self.failures = list(failures)
        """The trials that failed, with the reasons."""
        self.ran = ran
        """Whether anything was run; False if the store had all trials."""

    @overload
    def __getitem__(self, index: int) -> TrialRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[TrialRecord]: ...
    def __getitem__(self, index: int | slice) -> TrialRecord | Sequence[TrialRecord]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def cells(self) -> list[Cell]:
        """Summaries of the trials that differ only in their seed."""
        order = self._order
        return sorted(summarise(self._records), key=lambda cell: order.get(cell.config, len(order)))

    def table(self) -> PlainTable:
        """A row per cell: accuracy and forgetting. A rich Table; `str(...)` is its text."""
        return results_table(self.cells())

    def best_by_validation(self) -> list[str]:
        """Sentences on the best cell by held-out data; empty if nothing was held out."""
        return best_by_validation(self.cells())

    def masks_chosen(self) -> list[str]:
        """Sentences on the masks chosen after each task where the mask is "auto"."""
        return masks_chosen(self.cells())

    def frame(self) -> Any:
        """A pandas DataFrame with a row per trial: its config and all metrics."""
        try:
            pandas: Any = importlib.import_module("pandas")
        except ImportError:
            raise MissingPackageError("a DataFrame needs pandas: pip install pandas") from None
        return pandas.DataFrame(map(flat_row, self._records), columns=list(column_types()))

    def plot(self, figure: str = "accuracy-over-tasks", setting: str = "class_il") -> Any:
        """Draw a figure of the page: a matplotlib Figure, or None if there is nothing to draw.

        `figure` is `confidence`, `accuracy-over-tasks`, `accuracy-within-tasks`, `losses`,
        `mask-sweep`, `matrices`, `confusion` or `stability-plasticity`; `setting` is `class_il` or
        `task_il`.
        """
        return plot(self.cells(), figure, setting)

    def compare(self) -> Compared:
        """The cells with published settings beside their published figures."""
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


@dataclass(frozen=True, repr=False)
class Reproduction:
    """A part of the paper: our trials, the comparison, and tests of the paper's statements."""

    results: Results
    compared: Compared
    decided: list[Decision]
    """The statements that these cells can decide, by our trials."""
    by_the_paper: list[Decision]
    """The same statements, by the paper's own figures."""

    @classmethod
    def of(cls, cells: Sequence[PaperCell], results: Results) -> "Reproduction":
        """Compare the results of these cells with the paper."""
        ours = results.cells()
        wanted = set(cells)
        stated = [
            statement
            for benchmark in dict.fromkeys(cell.benchmark for cell in cells)
            for statement in statements(benchmark)
            if all({e.higher, e.lower} <= wanted for e in statement.expectations)
        ]
        return cls(
            results,
            Compared(compare(cells, ours)),
            decide(stated, {paper_cell(cell): cell for cell in ours}),
            decide_by_the_paper(stated),
        )

    @property
    def within_tasks(self) -> list[Cell]:
        """The cells that were also measured within tasks."""
        return [cell for cell in self.results.cells() if cell.config.evaluate_every]

    def tables(self) -> list[tuple[PlainTable, str]]:
        """The tables of decided statements and of accuracy within tasks, each with a note."""
        found = []
        if self.decided:
            found.append(
                (decision_table(self.decided, self.by_the_paper), f"Test: {STATEMENT_TEST}.")
            )
        if cells := self.within_tasks:
            found.append((curve_table(cells), CURVES_NOTE))
        return found

    def markdown(self) -> str:
        """The comparison and the tables in Markdown."""
        tables = [table.markdown() + note for table, note in self.tables()]
        return "\n".join([self.compared.markdown(), *tables])

    def __repr__(self) -> str:
        parts = [str(self.compared)]
        for table, note in self.tables():
            parts += [str(table), note]
        return "\n".join([*parts, *self.results.failures])

    def _repr_html_(self) -> str:
        tables = [table._repr_html_() for table, _ in self.tables()]
        return "".join([self.compared._repr_html_(), *tables])
