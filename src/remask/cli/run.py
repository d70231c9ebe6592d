"""`remask run`, `remask resume` and `remask demo`.

What they need of torch is imported when they are called: it takes seconds.
"""

from typing import Annotated, Any

import typer

from remask.cli import options as o
from remask.cli.console import output
from remask.cli.results import leave_if_damaged

_DEMO_EXPLAINED = """\
Five tasks, two digits each, learnt one after the other with a memory of 20 samples.
Class-IL: which of the ten digits is it? Task-IL: which of its task's two?
A_T: accuracy over all tasks at the end, in percent; higher is better.
F_T: points lost since each task was at its best; lower is better.
MS = masked softmax: while a task is learnt, the logits of all other classes are held
at the value in brackets and get no gradient, so new classes do not push old ones down.

Next: `remask reproduce --dry-run` for the paper's own tables, or the loss in your own loop, see
README.md."""

_TRIAL_OPTIONS = (
    "benchmark", "method", "mask", "buffer", "trials", "seed", "lr", "batch", "replay_batch",
    "epochs", "lr_drops", "alpha", "beta", "weights", "net", "tasks", "class_order", "limit",
    "validation", "task_free",
)  # fmt: skip
"""The options of `run` that say which trials; a config file may have the same ones."""


def run(
    context: typer.Context,
    config: o.ConfigFile = None,
    benchmark: o.Benchmark = None,
    method: o.Methods = None,
    mask: o.Masks = None,
    buffer: o.Buffers = None,
    trials: o.Trials = None,
    seed: o.Seed = None,
    lr: o.LearningRate = None,
    batch: o.Batch = None,
    replay_batch: o.ReplayBatch = None,
    epochs: o.Epochs = None,
    lr_drops: o.LearningRateDrops = None,
    alpha: o.Alpha = None,
    beta: o.Beta = None,
    weights: o.Weights = None,
    net: o.Net = None,
    tasks: o.Tasks = None,
    class_order: o.ClassOrder = None,
    limit: o.Limit = None,
    validation: o.Validation = None,
    task_free: o.TaskFree = False,
    data: o.Data = None,
    device: o.Device = "cpu",
    workers: o.Workers = None,
    threads: o.Threads = 1,
    stack: o.Stack = None,
    again: o.Again = False,
    own_code: o.OwnCode = False,
    checkpoint_seconds: o.CheckpointSeconds = 60.0,
    save_nets: o.SaveNets = None,
    json: o.JsonFile = None,
    store: o.StorePath = None,
) -> None:
    """Train trials and print a table of their accuracy and forgetting.

    Settings that are not given are the paper's, for the benchmark, method and buffer. A trial that
    the store already has is not run again, and a run that was stopped goes on where it stood.

    Example: `remask run --benchmark split-mnist --method derpp --mask none,-1,-inf --buffer 200`
    """
    from remask import asking
    from remask.cli import running
    from remask.launch import Options

    given = {**(asking.read_config(config) if config else {}), **asked_for(context)}
    configs = asking.configs_from(given, trusted=None if own_code else [benchmark, method, net])
    options = Options(device, threads, checkpoint_seconds, running.nets_folder(save_nets))
    how = running.How(options, workers, stack, again, data)
    with o.open_store(store) as opened:
        running.run_and_show(opened, configs, how, json)


def asked_for(context: typer.Context) -> dict[str, Any]:
    """Those of the options that say which trials that were given."""
    typed = {name: context.params[name] for name in _TRIAL_OPTIONS}
    # Not `not in (None, False)`: 0 equals False, and somebody who says 0 means it.
    return {n: v for n, v in typed.items() if not (v is None or v is False or v == ())}


def resume(
    name: Annotated[
        str | None, typer.Argument(help="The run to go on with. Default: every unfinished one.")
    ] = None,
    device: o.Device = "cpu",
    workers: o.Workers = None,
    threads: o.Threads = 1,
    own_code: o.OwnCode = False,
    checkpoint_seconds: o.CheckpointSeconds = 60.0,
    save_nets: o.SaveNets = None,
    store: o.StorePath = None,
) -> None:
    """Go on with runs that were stopped."""
    from remask.cli import running
    from remask.launch import Options

    options = Options(device, threads, checkpoint_seconds, running.nets_folder(save_nets))
    how = running.How(options, workers)
    with o.open_store(store) as opened:
        running.resume_runs(opened, name, how, own_code=own_code)


def demo(trials: o.DemoTrials = 10, workers: o.Workers = None, store: o.StorePath = None) -> None:
    """See masked replay forget less, in under a minute, on digits that ship with remask."""
    from remask.cli import running
    from remask.cli.page import write_page
    from remask.launch import Options

    configs = running.demo_configs(trials)
    with o.open_store(store) as opened:
        running.run_and_show(opened, configs, running.How(Options(), workers))
        page = opened.path.with_suffix(".html")
        damaged = write_page(opened, page)
    output.print(_DEMO_EXPLAINED, highlight=False)
    output.print(
        f"Open {page} in a browser to see why: curves, every trial, how to run each again.",
        highlight=False,
        soft_wrap=True,
    )
    leave_if_damaged(damaged)
