"""`remask methods`, `remask benchmarks` and `remask encoders`: lists of what a name can mean."""

from collections.abc import Mapping
from dataclasses import asdict

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


@with_groups
def encoders(*, printer: Printing) -> None:
    """List the pretrained encoders of photographs and texts."""
    from remask.encoders import known_encoders

    known = known_encoders()
    if printer.json:
        printer.result([{**asdict(info), "install": info.install} for info in known])
        return
    table = Table(box=None, pad_edge=False)
    for title in ("name", "of", "MB", "features", "licence", "installed"):
        right = title in ("MB", "features")
        table.add_column(
            title,
            style="bold" if title == "name" else None,
            justify="right" if right else "left",
            overflow="fold",
        )
    for info in known:
        megabytes = "" if info.megabytes is None else f"{info.megabytes:.0f}"
        features = "" if info.features is None else f"{info.features:,}"
        installed = "yes" if info.installed else f"no: {info.install}"
        row = (info.name, info.kind, megabytes, features, info.licence, installed)
        table.add_row(*row)
    output.print(table)


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
