"""`remask methods` and `remask benchmarks`: what there is."""

from collections.abc import Mapping

from rich.table import Table

from remask.cli.console import output
from remask.cli.generated import with_groups
from remask.cli.printer import Printer, Printing
from remask.names import MASKED_NAMES, SUMMARIES


@with_groups
def methods(*, printer: Printing) -> None:
    """List the methods, with one line each."""
    masked = {
        name: f"{base} with a mask, {mask:g} unless --mask says otherwise"
        for name, (base, mask) in MASKED_NAMES.items()
    }
    _print(printer, {**SUMMARIES, **masked})


@with_groups
def benchmarks(*, printer: Printing) -> None:
    """List the benchmarks, with one line each."""
    from remask.benchmarks import BENCHMARKS

    _print(printer, {name: info.summary for name, info in BENCHMARKS.items()})


def _print(printer: Printer, summaries: Mapping[str, str]) -> None:
    """Names in bold, and what there is to say about each."""
    if printer.json:
        printer.result([{"name": name, "summary": text} for name, text in summaries.items()])
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for name, summary in summaries.items():
        table.add_row(name, summary)
    output.print(table)
