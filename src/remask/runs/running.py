"""Runs: a set of trials asked for together, from the plan to the store."""

import hashlib
import shutil
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace

from remask.config import TrialConfig
from remask.durable import DurabilityError, make_folder, remove_quietly
from remask.errors import SettingsError, Stopped
from remask.locks import Lock, LockHeldError
from remask.planning import check_trusted
from remask.results import Store, StoreMovedError, TrialRecord
from remask.runs.display import Display
from remask.runs.events import Event, Failed, Finished, Lost
from remask.runs.executor import Executor, ThisProcess
from remask.runs.options import RunOptions
from remask.runs.plans import (
    Run,
    RunError,
    plan_jobs,
    read_plan,
    runs_folder,
    unfinished_runs,
    write_plan,
)
from remask.runs.preparing import check_memory, fetch_data, largest_stacks, note_changed_code
from remask.runs.queue import Claims, JobQueue, jobs_left
from remask.runs.run_log import RunLog
from remask.runs.signals import StopRequest
from remask.runs.storing import rescued, store_end
from remask.runs.train import check_device
from remask.runs.worker_processes import WorkerProcesses


def run_missing(
    store: Store,
    configs: Sequence[TrialConfig],
    options: RunOptions,
    *,
    remedy: str,
    executor: Executor | None = None,
) -> list[str] | None:
    """Run what the store lacks of these trials; returns what failed, or None: nothing was lacking.

    `remedy` is what the user can do to run stored trials again. Raises `Stopped` if asked to stop.
    """
    executor = executor_for(options) if executor is None else executor
    if not options.again:
        note_changed_code(store, configs, remedy, options.console)
    _check(options, executor)
    largest: dict[str, int] = {}
    fitting = None
    missing = [c for c in configs if options.again or not store.is_done(c.hash)]
    if missing:
        fetch_data(configs, options)
        largest = largest_stacks(configs, options)
        if executor is None or executor.on_this_machine:
            check_memory(missing, largest, options)
        else:
            fitting = executor.largest_stacks(missing, options)
    run = plan_run(
        store,
        configs,
        workers=options.processes if executor is None else executor.at_once(options),
        largest_stack=fitting or (lambda config: largest.get(config.net, len(configs))),
        again=options.again,
    )
    return None if run is None else _run_and_show(store, run, options, executor)


def executor_for(options: RunOptions) -> Executor | None:
    """The executor that options ask for; None: this machine, and as many processes as it has."""
    if options.on is None:
        return None
    from remask.runs.ray_cluster import Ray  # nobody else waits for it

    return Ray.of(options)


def runs_to_resume(store: Store, name: str | None, *, own_code: bool = False) -> list[Run]:
    """The named run, or every unfinished one.

    With `own_code`, what their plans name of the user's own code may be imported.
    """
    runs = [run for run in unfinished_runs(store.path) if name is None or run.name == name]
    if not runs:
        what = "no unfinished run" if name is None else f"no unfinished run {name!r}"
        raise SettingsError(f"there is {what} beside {store.path}")
    if not own_code:
        for config in (config for run in runs for config in run.configs):
            check_trusted([config.benchmark, config.method, config.net], trusted=[])
    return runs


def finish_run(
    store: Store, run: Run, options: RunOptions, *, remedy: str, executor: Executor | None = None
) -> list[str]:
    """Go on with a run to its end; returns what failed."""
    executor = executor_for(options) if executor is None else executor
    _check(options, executor)
    if not run.again:
        note_changed_code(store, run.configs, remedy, options.console)
    return _run_and_show(store, run, options, executor)


def plan_run(
    store: Store,
    configs: Sequence[TrialConfig],
    *,
    workers: int,
    largest_stack: Callable[[TrialConfig], int],
    again: bool,
) -> Run | None:
    """The run for these trials: the one begun earlier, or a new one of what the store lacks.

    `largest_stack` says how many trials like a given one to train as one. None if there is nothing
    to do. With `again`, what the store has is run once more. Raises LockHeldError while another
    process is at work on this run.
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
    # Not before the lock is ours: a plan that another process works by must stay as it is.
    with Lock(run.lock):
        if run.plan.exists():
            begun = read_plan(run.folder)
            if not set(begun.configs) <= set(wanted):
                raise RunError(
                    f"{run.plan} is the plan of other trials than its name says. Nothing was "
                    f"changed. Move the folder {run.folder} away to start this run over."
                )
            if all(len(job.configs) <= largest_stack(job.configs[0]) for job in begun.jobs):
                return begun
            # Smaller stacks are wanted now, perhaps because the larger ones failed.
        if not missing:
            _discard(run)
            return None
        jobs = plan_jobs(missing, workers, largest_stack)
        write_plan(run, jobs)
    return replace(run, jobs=jobs)


def continue_run(
    store: Store,
    run: Run,
    options: RunOptions,
    stop: StopRequest,
    executor: Executor | None = None,
) -> Iterator[Event]:
    """Run what is left of a run, and put every finished trial into the store.

    Yields the jobs' events; raises `Stopped` if asked to stop. When all is done, removes the run's
    folder. If the store's file goes away meanwhile, everything is kept elsewhere and StoreError
    says where.
    """
    with Lock(run.lock):
        if not run.plan.exists():
            _discard(run)  # another process finished it while this one waited
            return
        if [job.name for job in read_plan(run.folder).jobs] != [job.name for job in run.jobs]:
            raise RunError(
                f"another process has worked on the run in {run.folder} just now. Give the same "
                f"command again to go on from there."
            )
        if executor is None:
            workers = min(options.processes, len(jobs_left(store, run)))
            executor = ThisProcess() if workers <= 1 else WorkerProcesses(workers)
        with Claims(runs_folder(store.path) / "claims") as claims:
            queue = JobQueue(store, run, claims, executor.tries)
            events = executor.run(queue, options, stop)
            failed = yield from _store_results(store, run, queue, events, stop)
        # Not before the claims are given back: what a killed process leaves of them is removed by
        # whoever goes on with its plan.
        if not failed:
            _discard(run)


def _store_results(
    store: Store, run: Run, queue: JobQueue, events: Generator[Event], stop: StopRequest
) -> Generator[Event, None, bool]:
    """Store the results of all jobs, and pass their events on; whether any of them failed."""
    failed = False
    unsaved: list[str] = []
    unstored: list[TrialRecord] | None = None
    with closing(events):
        for happened in events:
            if isinstance(happened, Failed | Lost) and stop.signal is not None:
                unsaved.append(f"{queue.job(happened.job).title()}: {happened.error}")
                if isinstance(happened, Lost):
                    continue
            event = queue.retry(happened) if isinstance(happened, Lost) else happened
            try:
                store.check_in_place()
                if isinstance(event, Finished | Failed):
                    job = queue.job(event.job)
                    store_end(store, run, job, event)
                    queue.release(job)
            except StoreMovedError:
                # What is running is saved as for any other stop.
                stop.signal = stop.signal or signal.SIGTERM
                unstored = [
                    *(unstored or []),
                    *(event.records if isinstance(event, Finished) else []),
                ]
                continue
            failed = failed or isinstance(event, Failed)
            yield queue.as_planned(event)
    if unstored is not None:
        with suppress(DurabilityError):  # a plan that cannot be kept must not cost the results
            queue.keep_plan()
        raise rescued(store, unstored, run.folder)
    if unsaved or not queue.is_finished():
        assert stop.signal is not None, "the executor left before the queue was empty"
        queue.keep_plan()
        raise Stopped(stop.signal, unsaved)
    return failed


def _run_and_show(
    store: Store, run: Run, options: RunOptions, executor: Executor | None
) -> list[str]:
    """Go on with a run, and show it; returns what failed, for people."""
    jobs = jobs_left(store, run)
    titles = {job.name: job.title() for job in jobs}
    failures = []
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
    return failures


def _check(options: RunOptions, executor: Executor | None) -> None:
    """Refuse before the training what would fail after it."""
    if executor is None or executor.on_this_machine:
        check_device(options.device)
    if options.save_nets is not None:
        make_folder(options.save_nets)


def _discard(run: Run) -> None:
    """Remove what is on the disk of a run, whose lock must be held."""
    # The plan goes first: a folder without one is not a run.
    remove_quietly(run.plan)
    shutil.rmtree(run.folder, ignore_errors=True)


def _remove_remains(run: Run) -> None:
    """Remove what a process left that died before it had a plan, or while it removed all."""
    if run.folder.exists():
        with suppress(LockHeldError, DurabilityError), Lock(run.lock):
            if not run.plan.exists():
                _discard(run)
