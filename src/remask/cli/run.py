"""`remask run`: trials of chosen settings."""

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
def run(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A TOML file with any of the settings below; options win over it.",
            rich_help_panel=o.WHAT,
        ),
    ] = None,
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
    """Train trials and print a table of their accuracy and forgetting.

    Settings that are not given are the paper's, for the benchmark, method and buffer. A trial that
    the store already has is not run again, and a run that was stopped goes on where it stood.

    Example: `remask run --benchmark split-mnist --method derpp --mask none,-1,-inf --buffer 200`
    """
    if not dry_run:
        prepare_workers(options)
    from remask.experiments import configs_from  # torch: not before it is needed

    given = settings if trials is None else {**settings, "trials": trials}
    configs = configs_from(given, file=config, own_code=own_code)
    if dry_run:
        print_plan(store, configs, options, printer)
        return
    with Store(store_path(store)) as opened:
        run_and_print(opened, configs, options, printer, output, source=config)
