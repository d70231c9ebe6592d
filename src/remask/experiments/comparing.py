"""Ours beside what was published, to be printed or looked into."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, overload

from remask.papers.experiments import PaperCell
from remask.papers.statements import statements
from remask.reports.comparison import (
    ComparedCell,
    compare,
    comparison_markdown,
    comparison_summary,
    comparison_table,
    paper_cell,
)
from remask.reports.statements import (
    STATEMENT_TEST,
    Decision,
    decide,
    decide_by_the_paper,
    decision_table,
)
from remask.reports.tables import CURVES_NOTE, PlainTable, curve_table

if TYPE_CHECKING:
    from remask.experiments.results import Results
    from remask.results import Cell


NOTHING_PUBLISHED = (
    "Nothing is published about any of these results: figures exist for the paper's benchmarks, "
    "methods, masks and buffers with their published settings."
)


class Compared(Sequence[ComparedCell]):
    """Cells with what is published of them. Printed, they are a table and what it shows in all."""

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
        """A row per cell: ours, below it the published figure."""
        return comparison_table(self._cells)

    def summary(self) -> list[str]:
        """What the table means and shows in all, a sentence per line."""
        return comparison_summary(self._cells) if self._cells else [NOTHING_PUBLISHED]

    def markdown(self) -> str:
        """The table and the summary for a document."""
        table = comparison_markdown(self._cells) if self._cells else ""
        return table + "\n".join(self.summary())

    def __repr__(self) -> str:
        if not self._cells:
            return NOTHING_PUBLISHED
        return "\n".join([str(self.table()), *self.summary()])

    def _repr_html_(self) -> str:
        if not self._cells:
            return f"<p>{escape(repr(self))}</p>"
        return self.table()._repr_html_()


@dataclass(frozen=True, repr=False)
class Reproduction:
    """A part of the paper: our trials, ours beside the published, the statements put to a test."""

    results: "Results"
    compared: Compared
    decided: list[Decision]
    """What our trials say to the statements that these cells can decide."""
    by_the_paper: list[Decision]
    """What the paper's own figures say to the same."""

    @classmethod
    def of(cls, cells: Sequence[PaperCell], results: "Results") -> "Reproduction":
        """Put what the trials of these cells have shown beside the paper."""
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
    def test(self) -> str:
        """By which test statements are decided."""
        return f"Test: {STATEMENT_TEST}."

    @property
    def within_tasks(self) -> "list[Cell]":
        """The cells that were measured within tasks, too."""
        return [cell for cell in self.results.cells() if cell.config.evaluate_every]

    @property
    def within_tasks_note(self) -> str:
        """What `curve_table` shows."""
        return CURVES_NOTE

    def curve_table(self) -> PlainTable:
        """A row per cell that was measured within tasks: the lowest accuracy, the drops."""
        return curve_table(self.within_tasks)

    def decision_table(self) -> PlainTable:
        """A row per statement: what our trials say to it, and what the paper's figures do."""
        return decision_table(self.decided, self.by_the_paper)

    def markdown(self) -> str:
        """All of it for a document."""
        parts = [self.compared.markdown()]
        if self.decided:
            parts += [self.decision_table().markdown() + self.test]
        if self.within_tasks:
            parts += [self.curve_table().markdown() + self.within_tasks_note]
        return "\n".join(parts)

    def __repr__(self) -> str:
        parts = [str(self.compared)]
        if self.decided:
            parts += [str(self.decision_table()), self.test]
        if self.within_tasks:
            parts += [str(self.curve_table()), self.within_tasks_note]
        return "\n".join([*parts, *self.results.failures])

    def _repr_html_(self) -> str:
        parts = [self.compared._repr_html_()]
        if self.decided:
            parts.append(self.decision_table()._repr_html_())
        if self.within_tasks:
            parts.append(self.curve_table()._repr_html_())
        return "".join(parts)
