"""`remask run`, `remask resume` and `remask demo`.

What they need of torch is imported when they are called: it takes seconds.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remask.cli import options as o
from remask.cli.console import output
from remask.cli.printing import leave_if_failed, print_results, say_if_all_were_stored
from remask.cli.results import leave_if_damaged
from remask.config import TrialConfig
from remask.durable import check_output
from remask.results import Store, export

if TYPE_CHECKING:
    from remask.experiments import How

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
    "benchmark", "method", "mask", "positive_mask", "mask_stored", "fade", "buffer", "trials",
    "seed", "lr", "batch", "replay_batch", "epochs", "lr_drops", "alpha", "beta", "weights", "net",
    "tasks", "class_order", "limit", "validation", "task_free",
)  # fmt: skip
"""The options of `run` that say which trials; a config file may have the same ones."""


def run(
    context: typer.Context,
    config: o.ConfigFile = None,
    benchmark: o.Benchmark = None,
    method: o.Methods = None,
    mask: o.Masks = None,
    positive_mask: o.PositiveMask = False,
    mask_stored: o.MaskStored = False,
    fade: o.Fade = None,
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
    skip_unreadable: o.SkipUnreadable = False,
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
    from remask.asking import configs_from, read_config
    from remask.experiments import How

    given = {**(read_config(config) if config else {}), **asked_for(context)}
    configs = configs_from(given, trusted=None if own_code else [benchmark, method, net])
    how = How(
        device=device,
        workers=workers,
        threads=threads,
        stack=stack,
        again=again,
        data=data,
        checkpoint_seconds=checkpoint_seconds,
        save_nets=save_nets,
        progress=True,
    )
    with o.open_store(store) as opened:
        run_and_print(opened, configs, how, json)


def run_and_print(
    store: Store,
    configs: Sequence[TrialConfig],
    how: "How",
    json: Path | None = None,
    *,
    choose: bool = False,
) -> None:
    """Run what the store lacks of these trials, then print the table of all of them.

    With `choose`, also say which cell is best by validation.
    """
    from remask.experiments import run_trials

    if json is not None:
        check_output(json)
    results = run_trials(store, configs, how, remedy="--again runs")
    if json is not None:  # before anything is printed: nobody may be there to read it
        export(results, "json", json)
    say_if_all_were_stored(results, store.path)
    print_results(results, how.options.nets, choose=choose)
    leave_if_failed(results.failures)


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
    skip_unreadable: o.SkipUnreadable = False,
    checkpoint_seconds: o.CheckpointSeconds = 60.0,
    save_nets: o.SaveNets = None,
    store: o.StorePath = None,
) -> None:
    """Go on with runs that were stopped."""
    from remask.experiments import How, resume_run, runs_to_resume

    how = How(
        device=device,
        workers=workers,
        threads=threads,
        checkpoint_seconds=checkpoint_seconds,
        save_nets=save_nets,
        progress=True,
    )
    failures = []
    with o.open_store(store) as opened:
        for unfinished in runs_to_resume(opened, name, own_code=own_code):
            output.print(f"run {unfinished.name}", highlight=False)
            results = resume_run(opened, unfinished, how, remedy="`remask run --again` runs")
            print_results(results, save_nets)
            failures += results.failures
    leave_if_failed(failures)


def demo(trials: o.DemoTrials = 10, workers: o.Workers = None, store: o.StorePath = None) -> None:
    """See masked replay forget less, in under a minute, on digits that ship with remask."""
    from remask.experiments import How, demo_configs, write_report

    with o.open_store(store) as opened:
        run_and_print(opened, demo_configs(trials), How(workers=workers, progress=True))
        page = opened.path.with_suffix(".html")
        written = write_report(opened, page)
    output.print(_DEMO_EXPLAINED, highlight=False)
    output.print(
        f"Open {page} in a browser to see why: curves, every trial, how to run each again.",
        highlight=False,
        soft_wrap=True,
    )
    leave_if_damaged(written.damaged)
