"""`remask reproduce`: the paper, figure beside figure."""

from typing import Annotated, Any

import typer

from remask.cli import options as o
from remask.cli.completing import EXPERIMENT, VALUES
from remask.cli.generated import with_groups
from remask.cli.printer import Printing
from remask.cli.printing import leave_if_failed, print_reproduction, say_if_all_were_stored
from remask.cli.process import prepare_workers
from remask.cli.running import print_plan
from remask.cli.shapes import reproduction_shape
from remask.results import Store, store_path


@with_groups
def reproduce(
    *,
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="`main`, `low-buffer`, `ablation`, `confidence`, `appendix`, `all`, `gap`; or "
            "several, comma-separated.",
            autocompletion=EXPERIMENT,
        ),
    ] = "main",
    benchmark: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="On which benchmarks of the paper, or `all`. Several: "
            "`split-mnist,split-cifar10`.",
            rich_help_panel=o.WHAT,
            autocompletion=VALUES["benchmark"],
        ),
    ] = "split-mnist",
    trials: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Seeds to run. Default: as many as the paper.",
            min=1,
            max=1000,
            rich_help_panel=o.WHAT,
        ),
    ] = None,
    filters: Annotated[dict[str, Any], o.FILTER_OPTIONS.only("method", "mask", "buffer")],
    dry_run: o.DryRun = False,
    options: o.Options,
    markdown: o.Markdown = False,
    store: o.StorePath = None,
    printer: Printing,
) -> None:
    """Run what is missing of a table or figure of the paper, and put ours beside it.

    `main`: ER and DER++ with and without masks, three buffers. `low-buffer`: buffers of 10, 50 and
    100. `ablation`: nine masking values. `confidence`: what the network believes of each class.
    `appendix`: every system of the paper's tables. `all`: all of them. `gap`, which the paper does
    not have: how far old tasks fall right after a switch. The trials go into the store; what it has
    is not run again, and what was stopped goes on.
    """
    if not dry_run:
        prepare_workers(options)
    from remask import experiments  # torch: only when needed

    cells = experiments.wanted_cells(experiment, benchmark, filters)
    configs = experiments.cell_configs(cells, trials)
    if dry_run:
        print_plan(store, configs, options, printer)
        return
    how = printer.applied_to(options)
    with Store(store_path(store)) as opened:
        results = experiments.run_trials(opened, configs, how)
    found = experiments.Reproduction.of(cells, results)
    if printer.json:
        printer.result(reproduction_shape(found))
    else:
        say_if_all_were_stored(found.results, opened.path)
        print_reproduction(found, markdown=markdown)
    printer.note("`remask report` makes a page of it.")
    leave_if_failed(found.results.failures)
