"""`remask reproduce`: the paper, figure beside figure."""

import typer

from remask.cli import options as o
from remask.cli.console import errors


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
    from remask.cli import reproducing, running
    from remask.launch import Options

    cells = reproducing.wanted_cells(experiment, benchmark, o.filters(context))
    how = running.How(Options(device, threads, checkpoint_seconds), workers, stack, data=data)
    with o.open_store(store) as opened:
        if dry_run:
            reproducing.print_plan(opened, cells, trials, how)
            return
        configs = [config for cell in cells for config in reproducing.configs_of(cell, trials)]
        failures = running.run_trials(opened, configs, how)
        reproducing.print_findings(cells, running.stored(opened, configs), markdown=markdown)
    errors.print("`remask report` makes a page of it.", highlight=False)
    running.leave_if_failed(failures)
