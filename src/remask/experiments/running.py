"""Runs: a set of trials, from the plan to the store."""

import hashlib
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from remask.config import TrialConfig
from remask.console import PlainConsole
from remask.data.dataset import fetch
from remask.data.registry import BENCHMARKS
from remask.errors import RemaskError, SettingsError, Stopped
from remask.experiments.display import Display, RunLog, download_bar
from remask.experiments.executors import Claims, Executor, JobQueue, ThisProcess, jobs_left
from remask.experiments.jobs import (
    Event,
    Failed,
    Finished,
    Job,
    Lost,
    Run,
    RunError,
    largest_stacks,
    plan_jobs,
    read_plan,
    runs_folder,
    unfinished_runs,
    write_plan,
)
from remask.experiments.options import RunOptions
from remask.experiments.results import Results
from remask.experiments.workers import WorkerProcesses
from remask.files import (
    DurabilityError,
    Lock,
    LockHeldError,
    make_folder,
    remove_quietly,
    write_atomically,
)
from remask.machine import StopRequest, check_device
from remask.own_code import OwnSource, check_trusted, find_source, names_own_code
from remask.record import TrialRecord
from remask.store.database import StoreError, StoreMovedError
from remask.store.export import export
from remask.store.store import Store


def run_trials(
    store: Store,
    trials: Sequence[TrialConfig] | Run,
    options: RunOptions,
    executor: Executor | None = None,
) -> Results:
    """Run the trials that the store lacks, or continue a run; returns the results of all.

    Raises `Stopped` if asked to stop.
    """
    executor = executor or executor_for(options)
    run = trials if isinstance(trials, Run) else None
    configs = list(dict.fromkeys(trials.configs if isinstance(trials, Run) else trials))
    again = options.again if run is None else run.again
    if not again:
        note_changed_code(store, configs, options.console)
    missing = [c for c in configs if again or not store.is_done(c.hash)]
    if missing and executor.on_this_machine:
        check_device(options.device)
    if run is None:
        largest = _check_runnable(configs, options, executor) if missing else {}
        fitting = executor.largest_stacks(missing, options) if missing else None
        run = plan_run(
            store,
            configs,
            workers=executor.at_once(options),
            largest_stack=fitting or (lambda config: largest.get(config.net, len(configs))),
            again=again,
        )
    failures: list[str] = []
    if run is not None:
        if options.save_nets is not None:
            make_folder(options.save_nets)
        jobs = jobs_left(store, run)
        titles = {job.name: job.title() for job in jobs}
        with (
            StopRequest() as stop,
            Display(jobs, options.console, lines=options.progress is True) as display,
            RunLog(run, options) as log,
        ):
            for event in continue_run(store, run, options, stop, executor):
                display.show(event)
                log.take(event)
                if isinstance(event, Failed):
                    failures.append(f"{titles[event.job]}: {event.error}")
    stored = [record for config in configs if (record := store.get(config.hash)) is not None]
    return Results(stored, asked=configs, failures=failures, ran=run is not None)


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
            check_trusted([config.benchmark, config.method, config.net], trusted=[])
    return runs


def plan_run(
    store: Store,
    configs: Sequence[TrialConfig],
    *,
    workers: int,
    largest_stack: Callable[[TrialConfig], int],
    again: bool,
) -> Run | None:
    """The run of these trials: the one begun earlier, or a new one of what the store lacks.

    `largest_stack` is how many trials like a given one to train as one. None: nothing to do. With
    `again`, stored trials are run again. Raises LockHeldError while another process works on this
    run.
    """
    wanted = list(dict.fromkeys(configs))
    hashes = sorted(config.hash for config in wanted)
    mark = "again" if again else "missing"
    name = hashlib.sha256(" ".join([mark, *hashes]).encode()).hexdigest()[:12]
    run = Run(runs_folder(store.path) / name, [], again)
    missing = [c for c in wanted if again or not store.is_done(c.hash)]
    if not missing and not run.plan.exists():
        _remove_remains(run)
        return None
    # Under the lock: a plan that another process works by must stay as it is.
    with Lock(run.lock):
        if run.plan.exists():
            begun = read_plan(run.folder)
            if not set(begun.configs) <= set(wanted):
                raise RunError(
                    f"{run.plan} is the plan of other trials. Nothing was changed. Move the folder "
                    f"{run.folder} away to start this run over."
                )
            if all(len(job.configs) <= largest_stack(job.configs[0]) for job in begun.jobs):
                return begun
            # Smaller stacks are asked for now, perhaps because larger ones failed.
        if not missing:
            _discard(run)
            return None
        jobs = plan_jobs(missing, workers, largest_stack)
        write_plan(run, jobs)
    return replace(run, jobs=jobs)


def continue_run(
    store: Store, run: Run, options: RunOptions, stop: StopRequest, executor: Executor
) -> Iterator[Event]:
    """Train what is left of a run and store every finished trial; yields the jobs' events.

    Removes the run's folder at the end. Raises `Stopped` if asked to stop. If the store's file is
    moved meanwhile, all results are saved elsewhere, and StoreError says where.
    """
    with Lock(run.lock):
        if not run.plan.exists():
            _discard(run)  # another process finished it while this one waited
            return
        if read_plan(run.folder).jobs != run.jobs:
            raise RunError(
                f"another process has just worked on the run in {run.folder}. Run the same command "
                f"again to continue."
            )
        failed = False
        unsaved: list[str] = []
        unstored: list[TrialRecord] | None = None
        with Claims(runs_folder(store.path) / "claims") as claims:
            queue = JobQueue(store, run, claims, executor.tries)
            with closing(executor.run(queue, options, stop)) as events:
                for event in events:
                    if isinstance(event, Failed | Lost) and stop.signal is not None:
                        unsaved.append(f"{queue.job(event.job).title()}: {event.error}")
                        if isinstance(event, Lost):
                            continue
                    if isinstance(event, Lost):
                        event = queue.retry(event)
                    try:
                        store.check_in_place()
                        if isinstance(event, Finished | Failed):
                            _store_end(store, run, queue.job(event.job), event)
                            queue.release(queue.job(event.job))
                    except StoreMovedError:
                        # Running jobs are saved as for any other stop.
                        stop.signal = stop.signal or signal.SIGTERM
                        unstored = unstored or []
                        if isinstance(event, Finished):
                            unstored += event.records
                        continue
                    failed = failed or isinstance(event, Failed)
                    yield queue.as_planned(event)
            if unstored is not None:
                with suppress(DurabilityError):  # results are more important than the plan
                    queue.keep_plan()
                raise _rescued(store, unstored, run.folder)
            if unsaved or not queue.is_finished():
                assert stop.signal is not None, "the executor left before the queue was empty"
                queue.keep_plan()
                raise Stopped(stop.signal, unsaved)
        # After the claims are given back: those of a killed process are removed by whoever
        # continues its plan.
        if not failed:
            _discard(run)


def _store_end(store: Store, run: Run, job: Job, event: Finished | Failed) -> None:
    """Store how a job ended; only then its checkpoints are removed."""
    if isinstance(event, Failed):
        for config in job.configs:
            store.add(TrialRecord.failure(config, event.error))
        return
    for record in event.records:
        store.add(record, replace=run.again)
    if run.again:
        write_atomically(run.mark(job), b"")
    shutil.rmtree(run.checkpoints(job), ignore_errors=True)


def _rescued(store: Store, computed: Sequence[TrialRecord], folder: Path) -> StoreError:
    """Save the trials of a store whose file was moved beside its old place.

    If that fails, they go to the folder for temporary files. Returns the error to raise.
    """
    trials: dict[str, TrialRecord] = {}
    with suppress(StoreError):  # the file may be truncated
        trials |= {record.config_hash: record for record in store.held()}
    trials |= {record.config_hash: record for record in computed}
    begun = f"{store.path} was moved, removed or replaced while a run was writing to it. The run "
    if not trials:
        return StoreError(
            f"{begun}stopped before its first result; its checkpoints are in {folder}. Run the "
            f"same command again to continue."
        )
    name = f"{store.path.name}.rescued-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}.json"
    for place in (store.path.parent, Path(tempfile.gettempdir())):
        target = place / name
        try:
            make_folder(place)
            export(trials.values(), "json", target)
        except RemaskError as error:
            reason = error
            continue
        return StoreError(
            f"{begun}stopped. Its {len(trials)} trials are in {target}: `remask results import "
            f"{target} --store {store.path}` restores them, and then the same command continues "
            f"from the checkpoints in {folder}."
        )
    return StoreError(f"{begun}stopped, and its {len(trials)} trials could not be saved: {reason}")


def _discard(run: Run) -> None:
    """Remove a run from the disk; its lock must be held."""
    remove_quietly(run.plan)  # first: a folder without a plan is not a run
    shutil.rmtree(run.folder, ignore_errors=True)


def _remove_remains(run: Run) -> None:
    """Remove the folder of a process that died before it had a plan, or while it removed all."""
    if run.folder.exists():
        with suppress(LockHeldError, DurabilityError), Lock(run.lock):
            if not run.plan.exists():
                _discard(run)


def _check_runnable(
    configs: Sequence[TrialConfig], options: RunOptions, executor: Executor
) -> dict[str, int]:
    """Fetch missing datasets once, before any worker needs them; returns the largest stacks."""
    names = list(dict.fromkeys(config.benchmark for config in configs))
    if options.data is not None and (len(names) > 1 or names[0] not in BENCHMARKS):
        raise SettingsError(f"`data` is for one of remask's datasets, not for {', '.join(names)}")
    for name in names:
        if name in BENCHMARKS:
            with download_bar(options.console) as bar:
                fetch(BENCHMARKS[name].dataset, progress=bar, data=options.data)
    return largest_stacks(configs, options, check_memory=executor.on_this_machine)


def note_changed_code(store: Store, configs: Sequence[TrialConfig], console: PlainConsole) -> None:
    """Print how many stored trials were run with another version of the user's own code."""
    here = Path.cwd()
    files: set[str] = set()
    changed = 0
    sources: dict[str, OwnSource | None] = {}
    for config in dict.fromkeys(configs):
        if not any(map(names_own_code, (config.benchmark, config.method, config.net))):
            continue
        record = store.get(config.hash)
        if record is None or record.status == "failed":  # it is run again anyway
            continue
        for module in record.own_code.keys() - sources.keys():
            sources[module] = find_source(module)
        stale = {
            source.file
            for module, fingerprint in record.own_code.items()
            if (source := sources[module]) is not None and source.fingerprint != fingerprint
        }
        changed += bool(stale)
        files |= {str(f.relative_to(here) if f.is_relative_to(here) else f) for f in stale}
    if changed:
        console.print(
            f"{changed} stored trial{'s were' if changed > 1 else ' was'} run with an older "
            f"version of {' and '.join(sorted(files))}; `again` (--again) runs them again",
            style="yellow",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
