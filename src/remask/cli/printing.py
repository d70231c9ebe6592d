"""What several commands print."""

from collections.abc import Sequence

import typer
from rich import box
from rich.table import Table

from remask.cli.console import output
from remask.report import (
    TEST,
    ComparedCell,
    Decision,
    comparison_markdown,
    comparison_table,
    verdicts,
)


def print_comparison(compared: Sequence[ComparedCell], *, markdown: bool) -> None:
    """Ours beside the published figures, and how many of them agree."""
    if markdown:
        typer.echo(comparison_markdown(compared), nl=False)
    else:
        output.print(comparison_table(compared), crop=False, soft_wrap=True)
    counts = ", ".join(f"{count} {what}" for what, count in verdicts(compared).items() if count)
    typer.echo(
        f"{counts or 'Nothing is published of these cells'}. Reproduced: within 2 std of the "
        f"published figure. Not told apart (?): further off, but Welch's z <= 2."
    )


def print_decisions(
    decided: Sequence[Decision], by_the_paper: Sequence[Decision], *, markdown: bool
) -> None:
    """The paper's statements, and what ours and the paper's own figures say to them."""
    columns = ["the paper says", "our trials", "holds in", "the paper's own figures"]
    rows = [
        [
            ours.statement.text,
            ours.finding,
            f"{sum(e.finding == 'holds' for e in ours.evidence)} of {len(ours.evidence)}",
            "-" if theirs.finding == "not run" else theirs.finding,
        ]
        for ours, theirs in zip(decided, by_the_paper, strict=True)
    ]
    if markdown:
        for row in (columns, ["---"] * len(columns), *rows):
            typer.echo(f"| {' | '.join(row)} |")
    else:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for name in columns:
            table.add_column(name)
        for row in rows:
            table.add_row(*row)
        output.print(table)
    typer.echo(f"Test: {TEST}.")
