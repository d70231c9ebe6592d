"""Runs: a set of trials asked for together, from the plan to the store."""

import hashlib
import shutil
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace

from remask.config import TrialConfig
from remask.durable import DurabilityError, remove_quietly, write_atomically
from remask.errors import Stopped
from remask.locks import Lock, LockHeldError
from remask.results import Store, StoreMovedError, TrialRecord, config_hash
from remask.runs.agenda import RunAgenda, jobs_left
from remask.runs.claims import Claims
from remask.runs.events import Event, Failed, Finished
from remask.runs.jobs import plan_jobs
from remask.runs.options import RunOptions
from remask.runs.plans import Run, RunError, read_plan, runs_folder, write_plan
from remask.runs.pool import run_jobs
from remask.runs.provenance import provenance
from remask.runs.rescue import rescued
from remask.runs.signals import StopRequest


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
    hashes = sorted(config_hash(config) for config in wanted)
    mark = "again" if again else "missing"
    name = hashlib.sha256(" ".join([mark, *hashes]).encode()).hexdigest()[:12]
    run = Run(runs_folder(store.path) / name, [], again)
    missing = [c for c in wanted if again or not store.is_done(config_hash(c))]
    if not missing and not run.plan.exists():
        _remove_remains(run)
        return None
    # Not before the lock is ours: a plan that another process works by must stay as it is.
    with Lock(run.lock):
        if run.plan.exists():
            begun = read_plan(run.folder)
            if not {config for job in begun.jobs for config in job.configs} <= set(wanted):
                raise RunError(
                    f"{run.plan} is the plan of other trials than its name says. Nothing was "
                    f"changed. Move the folder {run.folder} away to begin this run anew."
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
    store: Store, run: Run, *, workers: int, options: RunOptions, stop: StopRequest
) -> Iterator[Event]:
    """Run what is left of a run, and put every finished trial into the store.

    Yields the jobs' events. When all is done, removes the run's folder. If the store's file goes
    away meanwhile, everything is kept elsewhere and StoreError says where.
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
        with Claims(runs_folder(store.path) / "claims") as claims:
            agenda = RunAgenda(store, run, claims)
            workers = min(workers, max(len(jobs_left(store, run)), 1))
            failed = yield from _work_off(store, run, agenda, workers, options, stop)
        # Not before the claims are given back: what a killed process leaves of them is removed by
        # whoever goes on with its plan.
        if not failed:
            _discard(run)


def _work_off(
    store: Store, run: Run, agenda: RunAgenda, workers: int, options: RunOptions, stop: StopRequest
) -> Generator[Event, None, bool]:
    """Run what is on the agenda; whether any of it failed."""
    failed, unstored = False, None
    events = run_jobs(agenda, workers=workers, options=options, stop=stop)
    with closing(events):
        try:
            for event in events:
                try:
                    store.check_in_place()
                    _keep(store, run, agenda, event)
                except StoreMovedError:
                    # What is in hand is saved as for any other stop.
                    stop.signal = stop.signal or signal.SIGTERM
                    unstored = [*(unstored or []), *_records(event)]
                    continue
                failed = failed or isinstance(event, Failed)
                yield agenda.shown(event)
        except Stopped:
            if unstored is None:
                agenda.keep_plan()
                raise
            with suppress(DurabilityError):  # a plan that cannot be kept must not cost the results
                agenda.keep_plan()
    if unstored is not None:
        raise rescued(store, unstored, run.folder)
    return failed


def _discard(run: Run) -> None:
    """Remove what is on the disk of a run, whose lock must be held."""
    # The plan goes first: a folder without one is nothing, whatever else is left in it.
    remove_quietly(run.plan)
    shutil.rmtree(run.folder, ignore_errors=True)


def _remove_remains(run: Run) -> None:
    """Remove what a process left that died before it had a plan, or while it removed all."""
    if run.folder.exists():
        with suppress(LockHeldError, DurabilityError), Lock(run.lock):
            if not run.plan.exists():
                _discard(run)


def _keep(store: Store, run: Run, agenda: RunAgenda, event: Event) -> None:
    """Store how a job has ended, if it has; only then its checkpoints may go."""
    if not isinstance(event, Finished | Failed):
        return
    job = agenda.job(event.job)
    for record in _records(event):
        store.add(record, replace=run.again)
    if isinstance(event, Finished):
        if run.again:
            write_atomically(run.mark(job), b"")
        shutil.rmtree(run.checkpoints(job), ignore_errors=True)
    else:
        for config in job.configs:
            store.add(TrialRecord.failure(config, event.error, **provenance()))
    agenda.put_away(job)


def _records(event: Event) -> Iterator[TrialRecord]:
    """The trials that have come to their end."""
    if not isinstance(event, Finished):
        return
    for result in event.results:
        yield TrialRecord(
            config=result.config,
            title=result.title,
            status="finished" if result.diverged_at is None else "diverged",
            diverged_at=result.diverged_at,
            error=None,
            class_il=result.class_il,
            task_il=result.task_il,
            validation_class_il=result.validation_class_il,
            validation_task_il=result.validation_task_il,
            confidence=result.confidence,
            tasks=result.tasks,
            class_names=result.class_names,
            own_code=event.own_code,
            started=event.started,
            # Trials of a stack run at once: each has its share of the time.
            seconds=event.seconds / len(event.results),
            **provenance(),
        )
