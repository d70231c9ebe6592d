"""What several commands print."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from remask.cli.console import output
from remask.reports import (
    TEST,
    ComparedCell,
    Decision,
    comparison_markdown,
    comparison_summary,
    comparison_table,
)


def print_comparison(compared: Sequence[ComparedCell], *, markdown: bool) -> None:
    """Ours beside the published figures, and how many of them agree."""
    if markdown:
        _say(comparison_markdown(compared).removesuffix("\n"))
    else:
        output.print(comparison_table(compared), crop=False, soft_wrap=True)
    for line in comparison_summary(compared):
        _say(line)


def print_decisions(
    decided: Sequence[Decision], by_the_paper: Sequence[Decision], *, markdown: bool
) -> None:
    """The paper's statements, what ours say to them by which test, and what the paper's own do."""
    columns = ["the paper says", "our trials", "holds in", "test", "the paper's own figures"]
    rows = [
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
    if markdown:
        for row in (columns, ["---"] * len(columns), *rows):
            _say(f"| {' | '.join(row)} |")
    else:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for name in columns:
            table.add_column(name)
        for row in rows:
            table.add_row(*row)
        output.print(table)
    _say(f"Test: {TEST}.")


def _say(text: str) -> None:
    """Print as it is, however long its lines are."""
    output.print(text, highlight=False, soft_wrap=True)
