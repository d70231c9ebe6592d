"""Runs that want some of the same trials share the work; whoever stops one loses nothing."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from remask.errors import Stopped
from remask.experiments.job_queue import Claims
from remask.experiments.jobs import Advanced, Event, Finished, Note, PickedUp, Run, unfinished_runs
from remask.machine import StopRequest
from remask.store import Store
from tests.runs.faults import script_environment
from tests.runs.run_samples import events_of, planned, small
from tests.store.store_samples import make_record

COMPUTE = """
import json, sys
from remask.experiments.jobs import Finished
from remask.experiments.jobs import plan_run
from remask.store import Store
from tests.runs.run_samples import events_of, small

path, seeds, stack = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
configs = small(seeds)
print("ready", flush=True)
sys.stdin.readline()
with Store(path) as store:
    run = plan_run(store, configs, workers=1, largest_stack=lambda _: stack, again=False)
    for event in events_of(store, run) if run is not None else ():
        if isinstance(event, Finished):
            print(*(record.config.seed for record in event.records), flush=True)
    assert all(store.is_done(config.hash) for config in configs), "it left too early"
"""


def _hashes(seeds: Sequence[int]) -> list[str]:
    return [config.hash for config in small(seeds)]


def _planned(store: Store, seeds: Sequence[int]) -> Run:
    return planned(store, small(seeds), stack=len(seeds))


def _seeds(event: Event) -> list[int]:
    assert isinstance(event, Finished | PickedUp)
    return [result.config.seed for result in event.records]


def _is_at_task_3(event: Event) -> bool:
    return isinstance(event, Advanced) and event.task == 3


class Holder:
    """Another process that has claimed trials."""

    def __init__(self, claims: Path, hashes: Sequence[str]) -> None:
        reader, writer = os.pipe()
        self._pid: int | None = os.fork()
        if self._pid == 0:
            try:
                with closing(Claims(claims)) as held:
                    assert all(held.take(name) for name in hashes)
                    os.write(writer, b"held")
                    time.sleep(600)
            finally:
                os._exit(1)
        os.close(writer)
        assert os.read(reader, 4) == b"held"
        os.close(reader)

    def kill(self) -> None:
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None


@contextmanager
def _claimed(store: Path, seeds: Sequence[int]) -> Iterator[Holder]:
    """Another process that has claimed these trials, and dies at the end of the block."""
    holder = Holder(store.with_name(f"{store.name}.runs") / "claims", _hashes(seeds))
    try:
        yield holder
    finally:
        holder.kill()


@pytest.mark.processes
def test_a_claim_holds_between_processes_and_dies_with_its_own(tmp_path: Path) -> None:
    store = tmp_path / "results.db"
    mine, theirs = _hashes([0, 1])
    with closing(Claims(tmp_path / "results.db.runs" / "claims")) as claims:
        with _claimed(store, [1]) as process:
            assert claims.take(mine)
            assert not claims.take(theirs)
            process.kill()
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
                other.kill()  # which then dies before it has finished the rest
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
        stop = StopRequest()
        with _claimed(path, [1]), pytest.raises(Stopped):  # noqa: PT012
            for event in events_of(store, _planned(store, [0, 1, 2]), stop=stop):
                if isinstance(event, Advanced) and event.task == 3:
                    stop.signal = signal.SIGINT
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
        stop = StopRequest()
        with pytest.raises(Stopped):  # noqa: PT012
            for event in events_of(store, _planned(store, [0, 1, 2]), stop=stop):
                if isinstance(event, Advanced) and event.task == 3:
                    stop.signal = signal.SIGINT
        with _claimed(path, [1]) as other:
            first, *rest = _after_waiting(store, _planned(store, [0, 1, 2]), other)
        assert isinstance(first, Note)
        began = rest[0]
        assert isinstance(began, Advanced)
        assert began.task == 3
        assert [_seeds(e) for e in rest if isinstance(e, Finished)] == [[0, 1, 2]]


def _after_waiting(store: Store, run: Run, other: Holder) -> Iterator[Event]:
    for event in events_of(store, run):
        if isinstance(event, Note):
            other.kill()
        yield event


@pytest.mark.faults
@pytest.mark.processes
@pytest.mark.parametrize("rounds", [1, 6])
def test_six_processes_with_overlapping_trials_compute_each_only_once(
    tmp_path: Path, rounds: int
) -> None:
    chance = random.Random(rounds)
    for number in range(rounds):
        path = tmp_path / f"{number}.db"
        wanted = [chance.sample(range(13), chance.randint(5, 9)) for _ in range(6)]
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", COMPUTE, str(path), json.dumps(seeds),
                 str(chance.randint(1, 4))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=script_environment(),
            )
            for seeds in wanted
        ]  # fmt: skip
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        # communicate() lets each go in turn; the first go on while the others are told.
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        computed = [process.communicate(timeout=180)[0].split() for process in processes]
        assert [process.returncode for process in processes] == [0] * 6
        times = Counter(int(seed) for seeds in computed for seed in seeds)
        assert times == Counter({seed for seeds in wanted for seed in seeds})
        assert unfinished_runs(path) == []
