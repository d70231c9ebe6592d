"""`remask report`: the store as a page, and as figures."""

from pathlib import Path
from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.generated import with_groups
from remask.cli.printer import Printing
from remask.cli.printing import leave_if_damaged
from remask.durable import check_output
from remask.results import Store, store_path


@with_groups
def report(
    *,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The HTML file to write.")] = Path(
        "remask-report.html"
    ),
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also draw the figures, as SVG and PNG, in this folder."
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Write the page anew whenever a trial comes in.")
    ] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="Also list what of the paper was not run.")
    ] = False,
    filters: o.Filters,
    store: o.StorePath = None,
    printer: Printing,
) -> None:
    """Write a page of the results: tables beside the paper's, curves, every trial.

    It is one HTML file that needs nothing else and no network. With `--watch` it is written anew
    while trials come in, and reloads itself, until Ctrl-C; a store that is not there yet is waited
    for.
    """
    from remask import experiments  # torch: not before it is needed

    path = store_path(store)
    check_output(target, [path])
    if watch:
        if not path.exists():
            printer.note(f"waiting for {path}")
        written = experiments.watch(
            path,
            target,
            filters,
            lambda new: printer.note(f"{new.trials} trials in {new.page}"),
            paper=paper,
        )
        if written is None:  # asked to stop before there was a store
            return
    else:
        with Store(path, create=False) as opened:
            experiments.check_trials(opened, filters)
            written = experiments.write_report(
                opened, target, filters, figures=figures, paper=paper
            )
        printer.note(f"{written.trials} trials in {written.page}")
        if figures is not None:
            printer.note(f"{len(written.figures)} figures in {figures}")
    if printer.json:
        shape = {"page": written.page, "trials": written.trials, "figures": written.figures}
        printer.result({**shape, "damaged": written.damaged})
    leave_if_damaged(written.damaged)
