"""Runs that want some of the same trials share the work; whoever stops one loses nothing."""

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event as EventOfProcesses
from pathlib import Path

import pytest

from remask.experiments.job_queue import Claims
from remask.experiments.jobs import Advanced, Event, Finished, Note, PickedUp, Run, unfinished_runs
from remask.store import Store
from tests.runs.run_samples import events_of, planned, small, stop_when
from tests.store.store_samples import make_record


def _hashes(seeds: Sequence[int]) -> list[str]:
    return [config.hash for config in small(seeds)]


def _planned(store: Store, seeds: Sequence[int]) -> Run:
    return planned(store, small(seeds), stack=len(seeds))


def _seeds(event: Event) -> list[int]:
    assert isinstance(event, Finished | PickedUp)
    return [result.config.seed for result in event.records]


def _is_at_task_3(event: Event) -> bool:
    return isinstance(event, Advanced) and event.task == 3


def _hold(claims: Path, hashes: Sequence[str], held: EventOfProcesses) -> None:
    with closing(Claims(claims)) as own:
        assert all(own.take(name) for name in hashes)
        held.set()
        time.sleep(600)


def _kill(process: BaseProcess) -> None:
    process.kill()
    process.join()


@contextmanager
def _claimed(store: Path, seeds: Sequence[int]) -> Iterator[BaseProcess]:
    """Another process that has claimed these trials, and dies at the end of the block."""
    context = multiprocessing.get_context("fork")
    held = context.Event()
    claims = store.with_name(f"{store.name}.runs") / "claims"
    process = context.Process(target=_hold, args=(claims, _hashes(seeds), held))
    process.start()
    try:
        assert held.wait(60)
        yield process
    finally:
        _kill(process)


@pytest.mark.processes
def test_a_claim_holds_between_processes_and_dies_with_its_own(tmp_path: Path) -> None:
    store = tmp_path / "results.db"
    mine, theirs = _hashes([0, 1])
    with closing(Claims(tmp_path / "results.db.runs" / "claims")) as claims:
        with _claimed(store, [1]) as process:
            assert claims.take(mine)
            assert not claims.take(theirs)
            _kill(process)
            assert claims.take(theirs)
        claims.free(theirs)
        with _claimed(store, [1]):
            assert not claims.take(theirs)


@pytest.mark.processes
def test_what_another_process_computes_is_left_out_and_picked_up_when_it_is_stored(
    tmp_path: Path,
) -> None:
    path = tmp_path / "results.db"
    with Store(path) as store, _claimed(path, [1, 3]) as other:
        computed, picked_up, waiting = [], [], []
        for event in events_of(store, _planned(store, [0, 1, 2, 3])):
            if isinstance(event, Finished):
                computed.append(_seeds(event))
            elif isinstance(event, PickedUp):
                picked_up.append(_seeds(event))
            elif isinstance(event, Note):
                waiting.append(event.text)
                store.add(make_record(small([3])[0]))  # as the other one does,
                _kill(other)  # which then dies before it has finished the rest
        assert store.count() == 4
    assert computed == [[0, 2], [1]]
    assert picked_up == [[3]]
    assert len(waiting) == 1
    assert "another process trains 2 of these trials" in waiting[0]
    assert unfinished_runs(path) == []


@pytest.mark.processes
def test_a_divided_stack_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with Store(path) as store:
        with _claimed(path, [1]):
            stop_when(_is_at_task_3, signal.SIGINT, store, _planned(store, [0, 1, 2]))
        (run,) = unfinished_runs(path)
        assert sorted(len(job.configs) for job in run.jobs) == [1, 2]
        events = list(events_of(store, _planned(store, [0, 1, 2])))
        first = next(event for event in events if isinstance(event, Advanced))
        assert (first.task, first.job) == (3, run.jobs[0].name)
        assert [_seeds(e) for e in events if isinstance(e, Finished)] == [[0, 2], [1]]


@pytest.mark.processes
def test_a_stack_that_has_a_checkpoint_is_not_divided_but_waits(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with Store(path) as store:
        stop_when(_is_at_task_3, signal.SIGINT, store, _planned(store, [0, 1, 2]))
        with _claimed(path, [1]) as other:
            first, *rest = _after_waiting(store, _planned(store, [0, 1, 2]), other)
        assert isinstance(first, Note)
        began = rest[0]
        assert isinstance(began, Advanced)
        assert began.task == 3
        assert [_seeds(e) for e in rest if isinstance(e, Finished)] == [[0, 1, 2]]


def _after_waiting(store: Store, run: Run, other: BaseProcess) -> Iterator[Event]:
    for event in events_of(store, run):
        if isinstance(event, Note):
            _kill(other)
        yield event
