"""`remask resume`: go on with what was stopped."""

from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.completing import RUN
from remask.cli.generated import with_groups
from remask.cli.printer import Printing
from remask.cli.printing import leave_if_failed, print_results
from remask.cli.process import prepare_workers
from remask.cli.shapes import results_shape
from remask.results import Store, store_path
from remask.runs.options import RunOptions


@with_groups
def resume(
    *,
    name: Annotated[
        str | None,
        typer.Argument(
            help="The run to go on with. Default: every unfinished one.", autocompletion=RUN
        ),
    ] = None,
    # A run that was planned has its data and its stacks.
    options: Annotated[RunOptions, o.RUN_OPTIONS.without("again", "data", "stack")],
    own_code: o.OwnCode = False,
    skip_unreadable: o.SkipUnreadable = False,
    store: o.StorePath = None,
    printer: Printing,
) -> None:
    """Go on with runs that were stopped."""
    prepare_workers(options)
    from remask.experiments import resume_run, runs_to_resume  # torch: not before it is needed

    failures, shapes = [], []
    how = printer.applied_to(options)
    with Store(store_path(store)) as opened:
        for unfinished in runs_to_resume(opened, name, own_code=own_code):
            if not printer.json:
                printer.result(None, f"run {unfinished.name}")
            results = resume_run(opened, unfinished, how)
            if printer.json:
                shapes.append(results_shape(results, run=unfinished.name))
            else:
                print_results(results, options.save_nets)
            failures += results.failures
    if printer.json:
        printer.result(shapes)
    leave_if_failed(failures)
