"""`remask demo`: see it work."""

from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.generated import with_groups
from remask.cli.printer import Printing
from remask.cli.printing import leave_if_damaged
from remask.cli.process import prepare_workers
from remask.cli.running import run_and_print
from remask.results import Store, store_path
from remask.runs.options import RunOptions

_EXPLAINED = """\
Five tasks, two digits each, learnt one after the other with a memory of 20 samples.
Class-IL: which of the ten digits is it? Task-IL: which of its task's two?
A_T: accuracy over all tasks at the end, in percent; higher is better.
F_T: points lost since each task was at its best; lower is better.
MS = masked softmax: while a task is learnt, the logits of all other classes are held
at the value in brackets and get no gradient, so new classes do not push old ones down.

Next: `remask reproduce --dry-run` for the paper's own tables, or the loss in your own loop, see
README.md."""


@with_groups
def demo(
    *,
    trials: Annotated[
        int,
        typer.Option(metavar="N", help="Seeds to run.", min=1, max=1000, rich_help_panel=o.WHAT),
    ] = 10,
    options: Annotated[RunOptions, o.RUN_OPTIONS.only("workers")],
    store: o.StorePath = None,
    printer: Printing,
) -> None:
    """See masked replay forget less, in under a minute, on digits that ship with remask."""
    prepare_workers(options)
    from remask.experiments import demo_configs, write_report  # torch: not before it is needed

    with Store(store_path(store)) as opened:
        run_and_print(opened, demo_configs(trials), options, printer)
        page = opened.path.with_suffix(".html")
        written = write_report(opened, page)
    seen = f"Open {page} in a browser to see why: curves, every trial, how to run each again."
    if printer.json:
        printer.note(seen)
    elif not printer.quiet:
        printer.result(None, _EXPLAINED, seen)
    leave_if_damaged(written.damaged)
