"""The paper's statements beside what ours, and the paper's own figures, say to them."""

from collections.abc import Sequence

from remask.reports.findings import Decision
from remask.reports.tables import PlainTable

_COLUMNS = ["the paper says", "our trials", "holds in", "test", "the paper's own figures"]


def decision_table(decided: Sequence[Decision], by_the_paper: Sequence[Decision]) -> PlainTable:
    """A row per statement: what our trials say to it by which test, and what the paper's do."""
    table = PlainTable()
    for name in _COLUMNS:
        table.add_column(name)
    for row in _rows(decided, by_the_paper):
        table.add_row(*row)
    return table


def decision_markdown(decided: Sequence[Decision], by_the_paper: Sequence[Decision]) -> str:
    """The same for a document."""
    lines = [_COLUMNS, ["---"] * len(_COLUMNS), *_rows(decided, by_the_paper)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _rows(decided: Sequence[Decision], by_the_paper: Sequence[Decision]) -> list[list[str]]:
    return [
        [
            ours.statement.text,
            ours.finding,
            f"{sum(e.finding == 'holds' for e in ours.evidence)} of {len(ours.evidence)}",
            ", ".join(sorted({e.measured.test.kind for e in ours.evidence if e.measured.test}))
            or "-",
            "-" if theirs.finding == "not run" else theirs.finding,
        ]
        for ours, theirs in zip(decided, by_the_paper, strict=True)
    ]
