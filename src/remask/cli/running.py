"""Behind `remask run`, `sweep`, `reproduce`, `resume` and `demo`: trials, from asked to stored.

Imported when a command needs it, because torch takes seconds to import.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import typer
from torch import nn

from remask.asking import SettingsError, check_trusted, trial_configs
from remask.benchmarks import BENCHMARKS, Benchmark, fetch
from remask.cli.console import errors, output
from remask.cli.older import say_what_is_older
from remask.cli.progress import Display, download_bar
from remask.config import TrialConfig
from remask.durable import check_output, make_folder
from remask.engine import check_config, preferred_stack
from remask.launch import (
    Options,
    Room,
    Run,
    StopRequest,
    benchmark_of,
    check_device,
    check_room,
    continue_run,
    jobs_left,
    plan_jobs,
    plan_run,
    unfinished_runs,
    without_net,
)
from remask.methods import find_method
from remask.nets import NetBuilder, net_builder
from remask.own_code import names_own_code
from remask.reports import best_by_validation, results_table
from remask.store import Cell, Store, TrialRecord, config_hash, export, summarise

_DEMO: tuple[tuple[str, float | None], ...] = (
    ("er", None),
    ("er", float("-inf")),
    ("derpp", None),
    ("derpp", float("-inf")),
    ("derpp", -1.0),
)


@dataclass(frozen=True)
class How:
    """How to run trials; nothing here changes their results."""

    options: Options
    workers: int | None = None
    """Processes; None: one a core."""
    stack: int | None = None
    """The most trials to train as one; None: what suits the net."""
    again: bool = False
    data: Path | None = None

    @property
    def processes(self) -> int:
        """How many processes to run."""
        return self.workers or _cores()


def run_trials(store: Store, configs: Sequence[TrialConfig], how: How) -> list[str]:
    """Run what the store lacks of these trials; returns what failed, for people."""
    if not how.again:
        say_what_is_older(store, configs, "--again runs")
    planned = plan_trials(store, configs, how)
    if planned is None:
        output.print(f"All {len(configs)} trials are in {store.path} already.", highlight=False)
        return []
    return _run(store, planned, how)


def plan_trials(store: Store, configs: Sequence[TrialConfig], how: How) -> Run | None:
    """The run of what the store lacks of these trials, or None; refuses what cannot be run."""
    check_device(how.options.device)
    largest: dict[str, int] = {}
    missing = [c for c in configs if how.again or not store.is_done(config_hash(c))]
    if missing:
        _fetch(configs, how.data)
        largest = largest_stacks(configs, how)
        _check_room(missing, largest, how)
    return plan_run(
        store,
        configs,
        workers=how.processes,
        largest_stack=lambda config: largest.get(config.net, len(configs)),
        again=how.again,
    )


def run_and_show(
    store: Store,
    configs: Sequence[TrialConfig],
    how: How,
    json: Path | None = None,
    *,
    choose: bool = False,
) -> None:
    """Run what the store lacks of these trials, then print the table of all of them.

    With `choose`, also say which cell is best by validation.
    """
    if json is not None:
        check_output(json)
    failures = run_trials(store, configs, how)
    records = stored(store, configs)
    if json is not None:  # before anything is printed: nobody may be there to read it
        export(records, "json", json)
    cells = _show(configs, records)
    if choose:
        _choose(cells)
    _say_which_have_no_net(records, how)
    leave_if_failed(failures)


def resume_runs(store: Store, name: str | None, how: How, *, own_code: bool = False) -> None:
    """Go on with the named run, or with every unfinished one.

    With `own_code`, what their plans name of the user's own code is imported.
    """
    check_device(how.options.device)
    runs = [run for run in unfinished_runs(store.path) if name is None or run.name == name]
    if not runs:
        what = "no unfinished run" if name is None else f"no unfinished run {name!r}"
        raise SettingsError(f"there is {what} beside {store.path}")
    if not own_code:
        for run in runs:
            for config in (config for job in run.jobs for config in job.configs):
                check_trusted([config.benchmark, config.method, config.net], trusted=[])
    failures = []
    for run in runs:
        output.print(f"run {run.name}", highlight=False)
        configs = [config for job in run.jobs for config in job.configs]
        if not run.again:
            say_what_is_older(store, configs, "`remask run --again` runs")
        failures += _run(store, run, how)
        records = stored(store, configs)
        _show(configs, records)
        _say_which_have_no_net(records, how)
    leave_if_failed(failures)


def demo_configs(trials: int) -> list[TrialConfig]:
    """The trials of the demo: replay with and without masks on the embedded digits."""
    return [
        config
        for method, mask in _DEMO
        for config in trial_configs(
            benchmark="split-digits", method=method, masks=[mask], seeds=range(trials)
        )
    ]


def stored(store: Store, configs: Sequence[TrialConfig]) -> list[TrialRecord]:
    """What the store has of these trials."""
    found = (store.get(config_hash(config)) for config in dict.fromkeys(configs))
    return [record for record in found if record is not None]


def leave_if_failed(failures: Sequence[str]) -> None:
    """Say what failed, and leave with an error, if anything did."""
    if failures:
        for failure in failures:
            errors.print(failure, style="red", highlight=False, soft_wrap=True)
        raise typer.Exit(1)


def _fetch(configs: Sequence[TrialConfig], data: Path | None) -> None:
    """Here, with a progress bar, not in every worker."""
    names = list(dict.fromkeys(config.benchmark for config in configs))
    if data is not None and (len(names) > 1 or names[0] not in BENCHMARKS):
        raise SettingsError(
            f"--data is for one of remask's own datasets at a time, not for {', '.join(names)}"
        )
    for info in (BENCHMARKS[name] for name in names if name in BENCHMARKS):
        if info.dataset is not None:
            with download_bar() as bar:
                fetch(info.dataset, progress=bar, data=data)


def largest_stacks(configs: Sequence[TrialConfig], how: How) -> dict[str, int]:
    """How many trials of each net to stack.

    On the way, what no worker could run is refused: a wrong split, net or setting.
    """
    methods = {name: find_method(name) for name in dict.fromkeys(c.method for c in configs)}
    largest = {}
    built = set()
    for config in sorted(configs, key=_split):  # a benchmark is loaded once
        benchmark, method = benchmark_of(config), methods[config.method]
        check_config(config, method, benchmark)
        if (key := (*_split(config), config.net, config.method)) not in built:
            built.add(key)
            build = net_builder(config.net)
            net = _outline(config, build, benchmark)
            largest[config.net] = how.stack or preferred_stack(net, how.options.device)
            _outline(config, method.adapt_net(build, benchmark.num_tasks), benchmark)
    return largest


def _outline(config: TrialConfig, build: NetBuilder, benchmark: Benchmark) -> nn.Module:
    """A net to look at: without its numbers, for which there may be no room, unless it is own code.

    Code of the user's own is tried as it will be run.
    """
    with nullcontext() if names_own_code(config.net) else torch.device("meta"):
        return build(benchmark.input_shape, benchmark.num_classes)


def _check_room(configs: Sequence[TrialConfig], largest: Mapping[str, int], how: How) -> None:
    if torch.device(how.options.device).type != "cpu":
        return  # what a device holds, its own driver tells
    rooms: dict[tuple[str, ...], Room] = {}
    jobs = []
    for job in plan_jobs(sorted(configs, key=_split), how.processes, lambda c: largest[c.net]):
        config = job.configs[0]
        key = (*_split(config), config.net, config.method)
        if key not in rooms:
            benchmark, method = benchmark_of(config), find_method(config.method)
            build = method.adapt_net(net_builder(config.net), benchmark.num_tasks)
            rooms[key] = Room.of(benchmark, method, _outline(config, build, benchmark))
        jobs.append((job, rooms[key]))
    check_room(jobs, how.processes)


def _split(config: TrialConfig) -> tuple[str, ...]:
    """What decides which benchmark is loaded, in an order to sort by."""
    return tuple(map(str, (config.benchmark, config.tasks, config.class_order, config.limit)))


def _run(store: Store, planned: Run, how: How) -> list[str]:
    with StopRequest() as stop, Display(jobs_left(store, planned)) as display:
        for event in continue_run(
            store, planned, workers=how.processes, options=how.options, stop=stop
        ):
            display.show(event)
    return display.failures


def _show(configs: Sequence[TrialConfig], records: Sequence[TrialRecord]) -> list[Cell]:
    asked = [config.model_copy(update={"seed": 0}) for config in configs]
    cells = sorted(summarise(records), key=lambda cell: asked.index(cell.config))
    output.print(results_table(cells), crop=False)
    return cells


def _choose(cells: Sequence[Cell]) -> None:
    lines = best_by_validation(cells)
    if not lines and len(cells) > 1:
        lines = ["To choose one of these without looking at the test set, add --validation 0.1."]
    for line in lines:
        output.print(line, highlight=False, markup=False, soft_wrap=True)


def nets_folder(asked: Path | None) -> Path | None:
    """The folder for nets, made now: better refused before the training than after it."""
    if asked is not None:
        make_folder(asked)
    return asked


def _say_which_have_no_net(records: Sequence[TrialRecord], how: How) -> None:
    folder = how.options.nets
    if folder is None:
        return
    finished = [record.config for record in records if record.status == "finished"]
    missing = without_net(folder, finished)
    diverged = sum(record.status == "diverged" for record in records)
    text = f"Nets in {folder}: {len(finished) - len(missing)}."
    if missing:
        text += (
            f" Trials without one: {len(missing)}. The store had them already, and it keeps no "
            f"nets; with --again they are trained anew, and their nets saved."
        )
    if diverged:
        text += f" Trials that diverged, and so have none: {diverged}."
    output.print(text, highlight=False, markup=False, soft_wrap=True)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
