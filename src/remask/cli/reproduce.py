"""`remask reproduce`: the paper, figure beside figure."""

import typer

from remask.cli import options as o
from remask.cli.console import errors, output
from remask.cli.printing import leave_if_failed, print_reproduction, say_if_all_were_stored


def reproduce(
    context: typer.Context,
    experiment: o.Experiment = "main",
    benchmark: o.PaperBenchmarks = "split-mnist",
    method: o.OnlyMethods = None,
    mask: o.OnlyMasks = None,
    buffer: o.OnlyBuffers = None,
    trials: o.PaperTrials = None,
    dry_run: o.DryRun = False,
    markdown: o.Markdown = False,
    data: o.Data = None,
    device: o.Device = "cpu",
    workers: o.Workers = None,
    threads: o.Threads = 1,
    stack: o.Stack = None,
    checkpoint_seconds: o.CheckpointSeconds = 60.0,
    store: o.StorePath = None,
) -> None:
    """Run what is missing of a table or figure of the paper, and put ours beside it.

    `main`: ER and DER++ with and without masks, three buffers. `low-buffer`: buffers of 10, 50 and
    100. `ablation`: nine masking values. `confidence`: what the network believes of each class.
    `appendix`: every system of the paper's tables. `all`: all of them. The trials go into the
    store; what it has is not run again, and what was stopped goes on.
    """
    from remask.experiments import plan_cells, run_cells, wanted_cells
    from remask.runs.options import RunOptions

    cells = wanted_cells(experiment, benchmark, o.filters(context))
    how = RunOptions(
        device=device,
        workers=workers,
        threads=threads,
        stack=stack,
        data=data,
        checkpoint_seconds=checkpoint_seconds,
        progress=True,
    )
    with o.open_store(store) as opened:
        if dry_run:
            planned = plan_cells(opened, cells, trials, how)
            output.print(planned.table())
            output.print(planned.summary(), highlight=False, soft_wrap=True)
            return
        found = run_cells(opened, cells, trials, how, remedy="--again runs")
    say_if_all_were_stored(found.results, opened.path)
    print_reproduction(found, markdown=markdown)
    errors.print("`remask report` makes a page of it.", highlight=False)
    leave_if_failed(found.results.failures)
