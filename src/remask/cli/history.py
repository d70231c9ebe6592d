"""`remask history`: the visits of a learner, and its accuracy per class after each."""

from pathlib import Path
from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.console import output
from remask.cli.generated import with_groups
from remask.cli.printer import Printing
from remask.durable import check_output


@with_groups
def history(
    folder: o.LearnerFolder,
    *,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page, .html, or a figure, .png or .svg."),
    ] = None,
    encoder: o.OwnEncoder = None,
    net: o.OwnNet = None,
    method: o.OwnMethod = None,
    printer: Printing,
) -> None:
    """Show what a learner has learnt, when, and its accuracy per class after each visit.

    A page also has the memory, the calibration and the confusion matrix of held-out samples.

    Example: `remask history animals --page animals.html`
    """
    from remask.experiments import learner_now, learnt_visits, write_learner_history  # torch
    from remask.reports.history import classes_table, is_page, visits_table

    if page is not None:
        check_output(page)
    visits = learnt_visits(folder)
    if page is not None:
        now = None
        if visits and is_page(page):
            now = learner_now(folder, encoder=encoder, net=net, method=method)
            if now.missing is not None:
                printer.note(f"the page has no confusion matrix: {now.missing}")
        write_learner_history(folder, page, now)
        printer.note(f"{len(visits)} visits in {page}")
    if printer.json or not visits:
        printer.result(visits, f"{folder} has not learnt anything yet.")
    elif page is None:
        output.print(visits_table(visits), crop=False)
        output.print("Right on held-out samples after each visit (%):")
        output.print(classes_table(visits), crop=False)
