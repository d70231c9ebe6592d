"""`remask history`: what a learner has learnt, when, and how well it still knows it."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.console import errors, output
from remask.durable import check_output


def history(
    folder: o.LearnerFolder,
    *,
    as_json: o.AsJson = False,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page, .html, or a figure, .png or .svg."),
    ] = None,
) -> None:
    """Show what a learner has learnt, when, and its accuracy per class after each visit.

    Example: `remask history animals --page animals.html`
    """
    from remask.experiments import learnt_visits, write_learner_history  # torch
    from remask.reports import classes_table, visits_table

    if page is not None:
        check_output(page)
    visits = learnt_visits(folder)
    if page is not None:
        write_learner_history(folder, page)
        errors.print(f"{len(visits)} visits in {page}", highlight=False, soft_wrap=True)
    if as_json:
        shown = [dataclasses.asdict(visit) for visit in visits]
        sys.stdout.write(json.dumps(shown, indent=1) + "\n")
    elif not visits:
        output.print(f"{folder} has not learnt anything yet.", highlight=False, soft_wrap=True)
    elif page is None:
        output.print(visits_table(visits), crop=False)
        output.print("Right on held-out samples after each visit (%):")
        output.print(classes_table(visits), crop=False)
