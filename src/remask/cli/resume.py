"""`remask resume`: go on with what was stopped."""

from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.console import output
from remask.cli.generated import with_groups
from remask.cli.printing import leave_if_failed, print_results
from remask.cli.process import prepare_workers
from remask.results import Store, store_path
from remask.runs.options import RunOptions


@with_groups
def resume(
    *,
    name: Annotated[
        str | None, typer.Argument(help="The run to go on with. Default: every unfinished one.")
    ] = None,
    # A run that was planned has its data and its stacks.
    options: Annotated[RunOptions, o.RUN_OPTIONS.without("again", "data", "stack")],
    own_code: o.OwnCode = False,
    skip_unreadable: o.SkipUnreadable = False,
    store: o.StorePath = None,
) -> None:
    """Go on with runs that were stopped."""
    prepare_workers(options)
    from remask.experiments import resume_run, runs_to_resume  # torch: not before it is needed

    failures = []
    with Store(store_path(store)) as opened:
        for unfinished in runs_to_resume(opened, name, own_code=own_code):
            output.print(f"run {unfinished.name}", highlight=False)
            results = resume_run(opened, unfinished, options, remedy="`remask run --again` runs")
            print_results(results, options.save_nets)
            failures += results.failures
    leave_if_failed(failures)
