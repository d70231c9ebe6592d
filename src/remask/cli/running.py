"""Behind `remask run`, `resume` and `demo`: from what was asked for to a table.

Imported when a command needs it, because torch takes seconds to import.
"""

import itertools
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from remask.benchmarks import BENCHMARKS, fetch
from remask.cli.console import errors, output
from remask.cli.progress import Display, download_bar
from remask.config import TrialConfig, read_mask
from remask.engine import check_config, preferred_stack
from remask.errors import RemaskError
from remask.launch import (
    Options,
    Run,
    StopRequest,
    benchmark_of,
    check_device,
    continue_run,
    plan_run,
    unfinished_runs,
)
from remask.methods import find_method
from remask.nets import net_builder
from remask.own_code import names_own_code
from remask.report import results_table
from remask.settings import SettingsError, trial_configs
from remask.store import Store, config_hash, export, summarise

_DEMO: tuple[tuple[str, float | None], ...] = (
    ("er", None),
    ("er", float("-inf")),
    ("derpp", None),
    ("derpp", float("-inf")),
    ("derpp", -1.0),
)


def run_configs(
    store: Store,
    configs: Sequence[TrialConfig],
    *,
    options: Options,
    workers: int | None = None,
    stack: int | None = None,
    again: bool = False,
    json: Path | None = None,
    data: Path | None = None,
) -> None:
    """Run what the store lacks of these trials, then print the table of all of them."""
    check_device(options.device)
    info = BENCHMARKS.get(configs[0].benchmark)
    if info is None and data is not None:
        raise SettingsError(
            f"--data is for remask's own datasets; {configs[0].benchmark} says itself where its is"
        )
    if info and info.dataset is not None:  # here, with a progress bar, not in every worker
        with download_bar() as bar:
            fetch(info.dataset, progress=bar, data=data)
    # A wrong split, or a wrong net, is better refused here than by every worker.
    benchmark = benchmark_of(configs[0])
    build, shape = net_builder(configs[0].net), (benchmark.input_shape, benchmark.num_classes)
    net = build(*shape)
    methods = {name: find_method(name) for name in dict.fromkeys(c.method for c in configs)}
    for config in configs:
        check_config(config, methods[config.method], benchmark)
    for method in methods.values():
        method.adapt_net(build, benchmark.num_tasks)(*shape)
    planned = plan_run(
        store,
        configs,
        workers=workers or _cores(),
        largest_stack=stack or preferred_stack(net, options.device),
        again=again,
    )
    if planned is None:
        output.print(f"All {len(configs)} trials are in {store.path} already.", highlight=False)
    else:
        _run(store, planned, workers=workers, options=options)
    _show(store, configs, json)


def resume_runs(
    store: Store,
    name: str | None,
    *,
    options: Options,
    workers: int | None = None,
    own_code: bool = False,
) -> None:
    """Go on with the named run, or with every unfinished one.

    With `own_code`, what their plans name of the user's own code is imported.
    """
    check_device(options.device)
    runs = [run for run in unfinished_runs(store.path) if name is None or run.name == name]
    if not runs:
        what = "no unfinished run" if name is None else f"no unfinished run {name!r}"
        raise SettingsError(f"there is {what} beside {store.path}")
    if not own_code:
        for run in runs:
            for config in (config for job in run.jobs for config in job.configs):
                _check_trusted([config.benchmark, config.method, config.net], trusted=[])
    for run in runs:
        output.print(f"run {run.name}", highlight=False)
        _run(store, run, workers=workers, options=options)
        _show(store, [config for job in run.jobs for config in job.configs], None)


def demo_configs(trials: int) -> list[TrialConfig]:
    """The trials of the demo: replay with and without masks on the embedded digits."""
    return [
        config
        for method, mask in _DEMO
        for config in trial_configs(
            benchmark="split-digits", method=method, masks=[mask], seeds=range(trials)
        )
    ]


def has_published_settings(config: TrialConfig) -> bool:
    """Whether a trial has exactly the settings that were published for its cell."""
    try:
        (published,) = trial_configs(
            benchmark=config.benchmark,
            method=config.method,
            masks=[config.mask],
            buffer=config.buffer or None,
            seeds=[config.seed],
        )
    except RemaskError:  # nothing is published, or a name is no longer known
        return False
    return published == config


def configs_from(
    given: dict[str, Any], trusted: Sequence[str | None] | None = None
) -> list[TrialConfig]:
    """The trials of every combination of method, mask and buffer asked for.

    With `trusted`, only own code that one of these texts names may be imported.
    """
    benchmark = str(given.pop("benchmark", "split-digits"))
    methods = _several(given.pop("method", "er"))
    if trusted is not None:
        typed = [name for text in trusted if text for name in _several(text)]
        _check_trusted([benchmark, *methods, str(given.get("net", ""))], typed)
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
    if "class_order" in given:
        given["class_order"] = _class_order(given["class_order"])
    if isinstance(given.get("weights"), list | tuple):  # from the command line; a file has a table
        given["weights"] = dict(_weight(text) for text in given["weights"])
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


def _class_order(value: object) -> int | list[int]:
    order = [_integer("class_order", text) for text in _several(value)]
    return order if len(order) > 1 or isinstance(value, list) else order[0]


def _weight(text: object) -> tuple[str, float]:
    name, _, value = str(text).partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise SettingsError(f"{text!r} is no weight: say its name and value, gamma=0.5") from None


def _check_trusted(names: Sequence[str], trusted: Sequence[str]) -> None:
    """Nothing that is read from a file may run code, unless the user says so."""
    for name in names:
        if names_own_code(name) and name not in trusted:
            raise SettingsError(
                f"a file names code to import, {name!r}, and importing runs it. If it is yours, "
                f"say --own-code, or name it on the command line yourself."
            )


def _mask(text: str) -> float | None:
    try:
        return read_mask(text)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _integer(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise SettingsError(f"{name} = {value!r}: a whole number is needed") from None


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a TOML file."""
    try:
        if path.stat().st_size > 1_000_000:
            raise SettingsError(f"{path} is larger than a config file can sensibly be (1 MB)")
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"the config file {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the config file {path} is not valid TOML: {error}") from None


def _run(store: Store, planned: Run, *, workers: int | None, options: Options) -> None:
    with StopRequest() as stop, Display(planned.jobs) as display:
        for event in continue_run(
            store, planned, workers=workers or _cores(), options=options, stop=stop
        ):
            display.show(event)
    if display.failures:
        for failure in display.failures:
            errors.print(failure, style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1)


def _show(store: Store, configs: Sequence[TrialConfig], json: Path | None) -> None:
    found = (store.get(config_hash(config)) for config in dict.fromkeys(configs))
    records = [record for record in found if record is not None]
    asked = [config.model_copy(update={"seed": 0}) for config in configs]
    cells = sorted(summarise(records), key=lambda cell: asked.index(cell.config))
    output.print(results_table(cells))
    if json is not None:
        export(records, "json", json)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
