"""`remask report`: the store as a page, and as figures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remask.cli import options as o
from remask.cli.console import errors
from remask.cli.generated import with_groups
from remask.cli.printing import leave_if_damaged
from remask.durable import check_output
from remask.results import Store, store_path

if TYPE_CHECKING:
    from remask.experiments import Written


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
) -> None:
    """Write a page of the results: tables beside the paper's, curves, every trial.

    It is one HTML file that needs nothing else and no network. With `--watch` it is written anew
    while trials come in, and reloads itself, until Ctrl-C.
    """
    from remask import experiments  # torch: not before it is needed

    check_output(target)
    with Store(store_path(store), create=False) as opened:
        if watch:
            experiments.watch(opened, target, filters, _say, paper=paper)
            return
        experiments.check_trials(opened, filters)
        written = experiments.write_report(opened, target, filters, figures=figures, paper=paper)
    _say(written)
    if figures is not None:
        count = len(written.figures)
        errors.print(f"{count} figures in {figures}", highlight=False, soft_wrap=True)
    leave_if_damaged(written.damaged)


def _say(written: "Written") -> None:
    errors.print(f"{written.trials} trials in {written.page}", highlight=False, soft_wrap=True)
