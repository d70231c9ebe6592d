"""`remask sweep`: every combination of the settings in a file."""

from pathlib import Path
from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.generated import with_groups
from remask.cli.printer import Printing
from remask.cli.process import prepare_workers
from remask.cli.running import print_plan, run_and_print
from remask.results import Store, store_path


@with_groups
def sweep(
    *,
    grid: Annotated[Path, typer.Argument(metavar="GRID.toml", help="What to sweep over.")],
    settings: o.Settings,
    trials: o.Trials = None,
    options: o.Options,
    own_code: o.OwnCode = False,
    skip_unreadable: o.SkipUnreadable = False,
    dry_run: o.DryRun = False,
    output: o.OutputFile = None,
    store: o.StorePath = None,
    printer: Printing,
) -> None:
    """Train every combination of settings that a file asks for, and print a table.

    The file has settings that all trials share, as for `remask run --config`; under `[grid]` lists
    that are crossed; in each `[[zip]]` lists of one length that go together. Options win over what
    all trials share. The trials are stored, resumed and reported like all others. See
    `examples/sweep_masks.toml`.

    With `--validation 0.1`, or `validation = 0.1` in the file, it also names the best cell: by
    training data that was held out, not by the test set.
    """
    if not dry_run:
        prepare_workers(options)
    from remask.experiments import grid_configs  # torch: not before it is needed

    given = settings if trials is None else {**settings, "trials": trials}
    configs = grid_configs(grid, given, own_code=own_code)
    if dry_run:
        print_plan(store, configs, options, printer)
        return
    with Store(store_path(store)) as opened:
        run_and_print(opened, configs, options, printer, output, source=grid, choose=True)
