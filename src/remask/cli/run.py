"""`remask run`, `remask resume` and `remask demo`."""

import itertools
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from remask.benchmarks import BENCHMARKS, fetch
from remask.cli.console import errors, output
from remask.cli.options import StorePath, open_store
from remask.cli.progress import Display, download_bar
from remask.config import TrialConfig, check_mask, parse_mask
from remask.launch import (
    LARGEST_STACK,
    Options,
    Run,
    StopRequest,
    continue_run,
    plan_run,
    unfinished_runs,
)
from remask.report import results_table
from remask.settings import SettingsError, trial_configs
from remask.store import Store, config_hash, export, summarise

_DEMO = (
    ("er", None),
    ("er", float("-inf")),
    ("derpp", None),
    ("derpp", float("-inf")),
    ("derpp", -1.0),
)

Device = Annotated[str, typer.Option(help="Where to compute, as torch names it: cpu, cuda, mps.")]
Workers = Annotated[
    int | None,
    typer.Option(min=1, max=4096, help="Processes to run at once. Default: one a core."),
]
Threads = Annotated[int, typer.Option(min=1, max=4096, help="Threads of each process.")]
Checkpoint = Annotated[
    float, typer.Option(min=0.1, help="Seconds between checkpoints within a task.")
]


def run(
    config: Annotated[
        Path | None,
        typer.Option(help="A TOML file with any of the settings below; options win over it."),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option(help="What to learn; see `remask benchmarks`. Default: split-digits."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="How to learn it; see `remask methods`. Several: `er,derpp`. Default: er."
        ),
    ] = None,
    mask: Annotated[
        str | None,
        typer.Option(
            help="What the logits of absent classes are set to: `none`, `-inf` or a number <= 0. "
            "Several: `none,-1,-inf`."
        ),
    ] = None,
    buffer: Annotated[
        str | None, typer.Option(help="Samples the memory holds. Several: `200,500`.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Seeds to run. Default: 10.")] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed. Default: 0.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    batch: Annotated[int | None, typer.Option(help="Samples of the stream in a step.")] = None,
    replay_batch: Annotated[
        int | None, typer.Option(help="Samples in one draw from memory.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over each task.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Weight of the distillation (DER, DER++).")
    ] = None,
    beta: Annotated[
        float | None, typer.Option(help="Weight of the replayed labels (DER++).")
    ] = None,
    net: Annotated[str | None, typer.Option(help="The network. Default: mlp.")] = None,
    device: Device = "cpu",
    workers: Workers = None,
    threads: Threads = 1,
    stack: Annotated[
        int, typer.Option(min=1, max=100_000, help="The most trials to train as one stack.")
    ] = LARGEST_STACK,
    store: StorePath = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run and replace also what the store already has.")
    ] = False,
    checkpoint_seconds: Checkpoint = 60.0,
    json: Annotated[
        Path | None, typer.Option(help="Also write the trials' results to this JSON file.")
    ] = None,
) -> None:
    """Train trials and print a table of their accuracy and forgetting.

    Settings that are not given are the paper's, for the benchmark, method and buffer. A trial that
    the store already has is not run again, and a run that was stopped goes on where it stood.

    Example: `remask run --benchmark split-mnist --method derpp --mask none,-1,-inf --buffer 200`
    """
    given = _read_config(config) if config else {}
    options = {
        "benchmark": benchmark, "method": method, "mask": mask, "buffer": buffer,
        "trials": trials, "seed": seed, "lr": lr, "batch": batch, "replay_batch": replay_batch,
        "epochs": epochs, "alpha": alpha, "beta": beta, "net": net,
    }  # fmt: skip
    given.update({name: value for name, value in options.items() if value is not None})
    configs = _configs(given)
    with open_store(store) as opened:
        _launch(
            opened, configs, workers=workers, stack=stack, again=again,
            options=Options(device, threads, checkpoint_seconds),
        )  # fmt: skip
        _show(opened, configs, json)


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
    with open_store(store) as opened:
        runs = [r for r in unfinished_runs(opened.path) if name is None or r.name == name]
        if not runs:
            what = "no unfinished run" if name is None else f"no unfinished run {name!r}"
            raise SettingsError(f"there is {what} beside {opened.path}")
        for found in runs:
            output.print(f"run {found.name}")
            options = Options(device, threads, checkpoint_seconds)
            _run(opened, found, workers=workers, options=options)
            _show(opened, [config for job in found.jobs for config in job.configs], None)


def demo(
    trials: Annotated[int, typer.Option(min=1, max=1000, help="Seeds to run.")] = 10,
    workers: Workers = None,
    store: StorePath = None,
) -> None:
    """See masked replay forget less, in under a minute, on digits that ship with remask."""
    configs = [
        config
        for method, mask in _DEMO
        for config in trial_configs(
            benchmark="split-digits", method=method, masks=[mask], seeds=range(trials)
        )
    ]
    with open_store(store) as opened:
        _launch(
            opened, configs, workers=workers, stack=LARGEST_STACK, again=False, options=Options()
        )
        _show(opened, configs, None)
    output.print(
        "A_T: accuracy over all tasks at the end. F_T: points lost since each task was at its best."
        "\nMS = masked softmax: the classes absent from the current task are held at the value in"
        "\nbrackets and get no gradient, so learning new classes does not push the old ones down.",
        highlight=False,
    )


def _configs(given: dict[str, Any]) -> list[TrialConfig]:
    """The trials of every combination of method, mask and buffer asked for."""
    benchmark = str(given.pop("benchmark", "split-digits"))
    methods = _several(given.pop("method", "er"))
    masks = [_mask(text) for text in _several(given.pop("mask"))] if "mask" in given else None
    buffers = (
        [_integer("buffer", text) for text in _several(given.pop("buffer"))]
        if "buffer" in given
        else [None]
    )
    trials, seed = (
        _integer("trials", given.pop("trials", 10)),
        _integer("seed", given.pop("seed", 0)),
    )
    if not 1 <= trials <= 1_000_000:
        raise SettingsError(f"trials = {trials}: from 1 to 1,000,000")
    if not 0 <= seed < 2**62:
        raise SettingsError(f"seed = {seed}: from 0 to 2**62 - 1")
    return [
        config
        for method, buffer in itertools.product(methods, buffers)
        for config in trial_configs(
            benchmark=benchmark,
            method=method,
            masks=masks,
            buffer=buffer,
            seeds=range(seed, seed + trials),
            overrides=given,
        )
    ]


def _several(value: object) -> list[str]:
    """`a,b` from the command line, or a list from a file, as strings."""
    parts = value if isinstance(value, list) else str(value).split(",")
    texts = [str(part).strip() for part in parts]
    if not texts or not all(texts):
        raise SettingsError(f"{value!r} is not a comma-separated list of values")
    return list(dict.fromkeys(texts))


def _mask(text: str) -> float | None:
    value = parse_mask(text)
    return check_mask(value if value is None else float(value))  # type: ignore[arg-type]


def _integer(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise SettingsError(f"{name} = {value!r}: a whole number is needed") from None


def _read_config(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > 1_000_000:
            raise SettingsError(f"{path} is larger than a config file can sensibly be (1 MB)")
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"the config file {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the config file {path} is not valid TOML: {error}") from None


def _launch(
    store: Store,
    configs: Sequence[TrialConfig],
    *,
    workers: int | None,
    stack: int,
    options: Options,
    again: bool,
) -> None:
    dataset = BENCHMARKS[configs[0].benchmark].dataset
    if dataset is not None:  # here, once, with a progress bar, rather than in every worker
        with download_bar() as bar:
            fetch(dataset, progress=bar)
    planned = plan_run(
        store, configs, workers=workers or _cores(), largest_stack=stack, again=again
    )
    if planned is None:
        output.print(f"All {len(configs)} trials are in {store.path} already.", highlight=False)
        return
    _run(store, planned, workers=workers, options=options)


def _run(store: Store, planned: Run, *, workers: int | None, options: Options) -> None:
    with StopRequest() as stop, Display(planned.jobs) as display:
        for event in continue_run(
            store, planned, workers=workers or _cores(), options=options, stop=stop
        ):
            display.show(event)
    if display.failures:
        for failure in display.failures:
            errors.print(failure, style="red", highlight=False, markup=False)
        raise typer.Exit(1)


def _show(store: Store, configs: Sequence[TrialConfig], json: Path | None) -> None:
    found = (store.get(config_hash(config)) for config in dict.fromkeys(configs))
    records = [record for record in found if record is not None]
    output.print(results_table(summarise(records)))
    if json is not None:
        export(records, "json", json)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
