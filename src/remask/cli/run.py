"""`remask run`, `remask resume` and `remask demo`: their options."""

from pathlib import Path
from typing import Annotated

import typer

from remask.cli.console import output
from remask.cli.options import StorePath, open_store

_DEMO_EXPLAINED = """\
A_T: accuracy over all tasks at the end; higher is better.
F_T: points lost since each task was at its best; lower is better.
MS = masked softmax: while a task is learnt, the logits of all other classes are held
at the value in brackets and get no gradient, so new classes do not push old ones down."""

_WHAT = "What to run"
_SETTINGS = "Settings; the paper's unless given"
_HOW = "How to run it"

Device = Annotated[
    str,
    typer.Option(
        help="Where to compute, as torch names it: cpu, cuda, mps.",
        metavar="NAME",
        rich_help_panel=_HOW,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=4096,
        metavar="N",
        help="Processes to run at once. Default: one a core.",
        rich_help_panel=_HOW,
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        min=1, max=4096, metavar="N", help="Threads of each process.", rich_help_panel=_HOW
    ),
]
Checkpoint = Annotated[
    float,
    typer.Option(
        min=0.1,
        metavar="X",
        help="Seconds between checkpoints within a task.",
        rich_help_panel=_HOW,
    ),
]


def run(
    config: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with any of the settings below; options win over it.",
            rich_help_panel=_WHAT,
            metavar="FILE",
        ),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option(
            help="What to learn; see `remask benchmarks`. Default: split-digits.",
            rich_help_panel=_WHAT,
            metavar="NAME",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="How to learn it; see `remask methods`. Several: `er,derpp`. Default: er.",
            rich_help_panel=_WHAT,
            metavar="NAMES",
        ),
    ] = None,
    mask: Annotated[
        str | None,
        typer.Option(
            help="What the logits of absent classes are set to: `none`, `-inf` or a number <= 0. "
            "Several: `none,-1,-inf`.",
            rich_help_panel=_WHAT,
            metavar="MASKS",
        ),
    ] = None,
    buffer: Annotated[
        str | None,
        typer.Option(
            help="Samples the memory holds. Several: `200,500`.",
            rich_help_panel=_WHAT,
            metavar="SIZES",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Seeds to run. Default: 10.", rich_help_panel=_WHAT, metavar="N"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="The first seed. Default: 0.", rich_help_panel=_WHAT, metavar="N"),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate.", rich_help_panel=_SETTINGS, metavar="X")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Samples of the stream in a step.", rich_help_panel=_SETTINGS, metavar="N"
        ),
    ] = None,
    replay_batch: Annotated[
        int | None,
        typer.Option(
            help="Samples in one draw from memory.", rich_help_panel=_SETTINGS, metavar="N"
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes over each task.", rich_help_panel=_SETTINGS, metavar="N"),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Weight of the distillation (DER, DER++).", rich_help_panel=_SETTINGS, metavar="X"
        ),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(
            help="Weight of the replayed labels (DER++).", rich_help_panel=_SETTINGS, metavar="X"
        ),
    ] = None,
    net: Annotated[
        str | None,
        typer.Option(
            help="`mlp`, `resnet18`, or `resnet18:20` (width 20). Default: the paper's.",
            rich_help_panel=_SETTINGS,
            metavar="NAME",
        ),
    ] = None,
    tasks: Annotated[
        int | None,
        typer.Option(
            help="Deal the classes to so many tasks.", rich_help_panel=_SETTINGS, metavar="N"
        ),
    ] = None,
    class_order: Annotated[
        str | None,
        typer.Option(
            help="The order of the classes, `3,1,0,2`, or one number: a seed to draw it.",
            rich_help_panel=_SETTINGS,
            metavar="ORDER",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            help="Keep only so many samples of each class, for a quick look.",
            rich_help_panel=_SETTINGS,
            metavar="N",
        ),
    ] = None,
    task_free: Annotated[
        bool,
        typer.Option(
            "--task-free",
            help="Tell no task boundaries: mask by each batch's labels.",
            rich_help_panel=_SETTINGS,
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="A folder or archive that has the dataset already.",
            rich_help_panel=_HOW,
            metavar="PATH",
        ),
    ] = None,
    device: Device = "cpu",
    workers: Workers = None,
    threads: Threads = 1,
    stack: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            help="The most trials to train as one. Default: 10; 1 for convolutions on a CPU.",
            rich_help_panel=_HOW,
            metavar="N",
        ),
    ] = None,
    store: StorePath = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Run and replace also what the store already has.", rich_help_panel=_HOW
        ),
    ] = False,
    checkpoint_seconds: Checkpoint = 60.0,
    json: Annotated[
        Path | None,
        typer.Option(
            help="Also write the trials' results to this JSON file.",
            rich_help_panel=_HOW,
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Train trials and print a table of their accuracy and forgetting.

    Settings that are not given are the paper's, for the benchmark, method and buffer. A trial that
    the store already has is not run again, and a run that was stopped goes on where it stood.

    Example: `remask run --benchmark split-mnist --method derpp --mask none,-1,-inf --buffer 200`
    """
    from remask.cli import running
    from remask.launch import Options

    given = running.read_config(config) if config else {}
    options = {
        "benchmark": benchmark, "method": method, "mask": mask, "buffer": buffer,
        "trials": trials, "seed": seed, "lr": lr, "batch": batch, "replay_batch": replay_batch,
        "epochs": epochs, "alpha": alpha, "beta": beta, "net": net,
        "tasks": tasks, "class_order": class_order, "limit": limit, "task_free": task_free or None,
    }  # fmt: skip
    given.update({name: value for name, value in options.items() if value is not None})
    configs = running.configs_from(given)
    with open_store(store) as opened:
        running.run_configs(
            opened,
            configs,
            options=Options(device, threads, checkpoint_seconds),
            workers=workers,
            stack=stack,
            again=again,
            json=json,
            data=data,
        )


def resume(
    name: Annotated[
        str | None, typer.Argument(help="The run to go on with. Default: every unfinished one.")
    ] = None,
    device: Device = "cpu",
    workers: Workers = None,
    threads: Threads = 1,
    store: StorePath = None,
    checkpoint_seconds: Checkpoint = 60.0,
) -> None:
    """Go on with runs that were stopped."""
    from remask.cli import running
    from remask.launch import Options

    options = Options(device, threads, checkpoint_seconds)
    with open_store(store) as opened:
        running.resume_runs(opened, name, options=options, workers=workers)


def demo(
    trials: Annotated[int, typer.Option(min=1, max=1000, help="Seeds to run.")] = 10,
    workers: Workers = None,
    store: StorePath = None,
) -> None:
    """See masked replay forget less, in under a minute, on digits that ship with remask."""
    from remask.cli import running
    from remask.launch import Options

    configs = running.demo_configs(trials)
    with open_store(store) as opened:
        running.run_configs(opened, configs, options=Options(), workers=workers)
    output.print(_DEMO_EXPLAINED, highlight=False)
