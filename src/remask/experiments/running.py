"""Running trials: what is missing, in which stacks, and where."""

import math
import os
from collections.abc import Sequence
from contextlib import closing, nullcontext
from functools import cache

import torch

from remask.config import TrialConfig
from remask.console import PlainConsole
from remask.data.dataset import fetch
from remask.data.registry import BENCHMARKS
from remask.engine.validation import check_config
from remask.errors import SettingsError, counted
from remask.experiments.cost import Sizes
from remask.experiments.display import Display, RunLog, download_bar
from remask.experiments.executors import Executor, ThisProcess, WorkerProcesses
from remask.experiments.job_queue import open_queue
from remask.experiments.jobs import Failed, Run, benchmark_of, plan_run, unfinished_runs
from remask.experiments.options import RunOptions
from remask.experiments.results import Results
from remask.files import make_folder
from remask.machine import StopRequest, check_device, require_room
from remask.methods import find_method
from remask.nets.builders import net_builder, preferred_stack
from remask.own_code import check_trusted, find_source, names_own_code
from remask.store.store import Store


def run_trials(
    store: Store,
    configs: Sequence[TrialConfig],
    options: RunOptions,
    executor: Executor | None = None,
    *,
    run: Run | None = None,
) -> Results:
    """Run the trials that the store lacks; returns the results of all.

    With `run`, an unfinished run of these trials is continued as it was planned. Raises `Stopped`
    if asked to stop.
    """
    executor = executor or executor_for(options)
    configs = list(dict.fromkeys(configs))
    if not (options.again if run is None else run.again):
        note_changed_code(store, configs, options.console)
    if run is None:
        run = _planned(store, configs, options, executor)
    elif executor.on_this_machine:
        check_device(options.device)
    failures: list[str] = []
    if run is not None:
        if options.save_nets is not None:
            make_folder(options.save_nets)
        jobs = run.jobs_left(store)
        if options.progress:
            data = ", ".join({config.benchmark: None for config in run.configs})
            trials = counted(sum(len(job.configs) for job in jobs), "trial")
            options.console.print(f"{data}: {trials} to run; results are stored in {store.path}")
        titles = {job.name: job.title() for job in jobs}
        with (
            StopRequest() as stop,
            Display(jobs, options.console, lines=options.progress is True) as display,
            RunLog(run, options) if options.log else nullcontext() as log,
            open_queue(store, run, stop, executor.tries) as queue,
            closing(executor.run(queue, options, stop)) as events,
        ):
            for event in events:
                if (handled := queue.handle(event)) is None:
                    continue
                display.show(handled)
                if log is not None:
                    log.take(handled)
                if isinstance(handled, Failed):
                    failures.append(f"{titles[handled.job]}: {handled.error}")
    stored = [record for config in configs if (record := store.get(config.hash)) is not None]
    return Results(stored, asked=configs, failures=failures, ran=run is not None)


def _planned(
    store: Store, configs: Sequence[TrialConfig], options: RunOptions, executor: Executor
) -> Run | None:
    """The run of what the store lacks, in stacks that fit; None if it lacks nothing."""
    largest = {}
    if options.again or not all(store.is_done(config.hash) for config in configs):
        if executor.on_this_machine:
            check_device(options.device)
        _fetch_data(configs, options)
        largest = largest_stacks(configs, options, here=executor.on_this_machine)
    return plan_run(
        store,
        configs,
        workers=executor.at_once(options),
        largest_stack=lambda config: largest.get(config.net, len(configs)),
        again=options.again,
    )


def executor_for(options: RunOptions) -> Executor:
    """The executor that the options ask for: Ray, or processes of this machine."""
    if options.on == "ray":
        from remask.experiments.ray_cluster import Ray  # slow to import

        return Ray.of(options)
    if options.processes == 1:
        return ThisProcess()
    return WorkerProcesses(options.processes)


def runs_to_resume(store: Store, name: str | None, *, own_code: bool = False) -> list[Run]:
    """The named run, or every unfinished one.

    `own_code` permits importing the user's own code that their plans name.
    """
    runs = [run for run in unfinished_runs(store.path) if name is None or run.name == name]
    if not runs:
        what = "no unfinished run" if name is None else f"no unfinished run {name!r}"
        raise SettingsError(f"there is {what} beside {store.path}")
    if not own_code:
        for config in (config for run in runs for config in run.configs):
            check_trusted(config.code, trusted=[])
    return runs


def _fetch_data(configs: Sequence[TrialConfig], options: RunOptions) -> None:
    """Fetch missing datasets once, before any worker needs them."""
    names = list(dict.fromkeys(config.benchmark for config in configs))
    if options.data is not None and (len(names) > 1 or names[0] not in BENCHMARKS):
        raise SettingsError(f"`data` is for one of remask's datasets, not for {', '.join(names)}")
    for name in names:
        if name in BENCHMARKS:
            with download_bar(options.console) as bar:
                fetch(BENCHMARKS[name].dataset, progress=bar, data=options.data)


def largest_stacks(
    configs: Sequence[TrialConfig],
    options: RunOptions,
    *,
    here: bool = False,
    lacking: Sequence[str] = (),
) -> dict[str, int]:
    """The number of trials to stack, by net. Refuses splits, nets and settings that cannot run.

    If they run `here`, it also refuses a trial that needs more than the free memory: the system
    would kill the process without a message. The data of `lacking` benchmarks are not there.
    """
    largest: dict[str, int] = {}
    built = set()
    for config in sorted(configs, key=_split):  # loads each benchmark once
        method = find_method(config.method)
        if config.benchmark not in lacking:
            check_config(config, method, benchmark_of(config))
        if (key := (*_split(config), config.net, config.method)) in built:
            continue
        built.add(key)
        sizes = Sizes.of(config)
        # The user's own code is run as in training; others need no memory for the weights.
        with nullcontext() if names_own_code(config.net) else torch.device("meta"):
            build = net_builder(config.net)
            net = build(sizes.shape, sizes.classes)
            method.adapt_net(build, sizes.tasks)(sizes.shape, sizes.classes)
        if here:
            size = sum(weight.nbytes for weight in net.parameters())
            size += config.buffer * math.prod(sizes.shape)
            require_room(size, f"{config.net} with a buffer of {config.buffer:,}")
        largest[config.net] = options.stack or preferred_stack(net, options.device)
    return largest


def _split(config: TrialConfig) -> tuple[str, ...]:
    """The settings that identify a loaded benchmark, sortable."""
    return tuple(map(str, (config.benchmark, *config.split.values())))


def note_changed_code(store: Store, configs: Sequence[TrialConfig], console: PlainConsole) -> None:
    """Print how many stored trials were run with another version of the user's own code."""
    files: set[str] = set()
    changed = 0
    source_of = cache(find_source)
    for config in configs:
        if not any(map(names_own_code, config.code)) or not store.is_done(config.hash):
            continue
        record = store.find(config.hash)
        stale = {
            os.path.relpath(source.file)
            for module, fingerprint in record.own_code.items()
            if (source := source_of(module)) is not None and source.fingerprint != fingerprint
        }
        changed += bool(stale)
        files |= stale
    if changed:
        console.print(
            f"{changed} stored trial{'s were' if changed > 1 else ' was'} run with an older "
            f"version of {' and '.join(sorted(files))}; `again` (--again) runs them again",
            style="yellow",
        )
