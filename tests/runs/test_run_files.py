"""What a run keeps on the disk, when the disk is full or somebody has been at its files."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from remask.config import TrialConfig
from remask.experiments.jobs import Advanced, Run, plan_run
from remask.store import Store
from tests.command_line import Answer, CommandLine
from tests.runs.run_samples import events_of, planned, small, stop_when
from tests.store.store_samples import contents

# A checkpoint of one of these trials takes 74 kB, and the log of the store grows beyond 100 kB. As
# one stack it is the other way round: its checkpoint is larger than the log.
TRIALS = 12
RUN = (
    "run", "--benchmark", "split-digits", "--method", "er", "--limit", "20", "--epochs", "1",
    "--trials", str(TRIALS), "--stack", "1", "--workers", "1",
)  # fmt: skip
LIMITED = """\
import resource, sys
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from remask.__main__ import main
main()
"""

Rows = dict[TrialConfig, object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """What RUN shows if nobody disturbs it."""
    path = tmp_path_factory.mktemp("whole") / "results.db"
    with Store(path) as store:
        _finish(store, _planned(store))
    assert len(_rows(path)) == TRIALS
    return _rows(path)


def _planned(store: Store) -> Run:
    """The run that RUN asks for, begun or not."""
    return planned(store, small(TRIALS))


def _stopped(path: Path) -> Run:
    """RUN, stopped as by Ctrl-C while its first trial was at its third task."""
    with Store(path) as store:
        run = _planned(store)
        stop_when(lambda e: isinstance(e, Advanced) and e.task == 3, signal.SIGINT, store, run)
    assert list(run.folder.glob("*/checkpoint-*"))
    return run


def _rows(path: Path) -> Rows:
    """What the finished trials have shown."""
    with Store(path, create=False) as store:
        return {
            record.config: (record.class_il, record.task_il, record.confidence)
            for record in store.records({"status": "finished"})
        }


def _with_files_up_to(limit: int, *args: str, store: Path) -> Answer:
    """`remask ARGS` in a process whose files cannot grow beyond so many bytes."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), *args],
        env={**os.environ, "REMASK_STORE": str(store), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def _is_a_message(answer: Answer) -> bool:
    assert answer.code == 1, answer
    assert "Traceback" not in answer.text
    assert "bug in remask" not in answer.text
    return True


@pytest.mark.processes
@pytest.mark.parametrize(
    ("limit", "workers", "stack", "expected"),
    [
        (5_000, "1", "1", "Check the disk and its free space"),  # the store is not even made
        (400_000, "1", "12", "ulimit -f"),  # the checkpoint is too large
        pytest.param(100_000, "1", "1", "cannot be read or written", marks=pytest.mark.faults),
        *(
            pytest.param(limit, "2", stack, "results.db", marks=pytest.mark.faults)
            for limit in range(0, 160_000, 40_000)
            for stack in ("1", "6")
        ),
    ],
)
def test_a_run_on_a_full_disk_says_so_and_goes_on_when_there_is_space(
    remask: CommandLine, whole: Rows, limit: int, workers: str, stack: str, expected: str
) -> None:
    command = (*RUN, "--workers", workers, "--stack", stack)
    answer = _with_files_up_to(limit, *command, store=remask.store)
    assert _is_a_message(answer)
    assert expected in answer.text
    if limit >= 100_000:  # there is a store
        assert _rows(remask.store).items() <= whole.items()
    answer = remask(*command)
    assert answer.code == 0, answer.err
    assert _rows(remask.store) == whole


def test_a_place_that_cannot_be_written_is_refused_with_a_message(
    remask: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    answer = remask(*RUN, "--store", str(tmp_path / "file" / "results.db"))
    assert _is_a_message(answer)
    assert f"cannot use {tmp_path}/file/results.db: Not a directory" in answer.text
    (tmp_path / "results.db.runs").write_text("in the way")  # where the checkpoints would be
    answer = remask(*RUN)
    assert _is_a_message(answer)
    assert f"cannot make the folder {tmp_path}/results.db.runs" in answer.text
    assert (tmp_path / "results.db.runs").read_text() == "in the way"
    assert _rows(remask.store) == {}


@pytest.mark.thorough
def test_a_damaged_plan_is_refused_wherever_it_is_damaged_and_nothing_is_changed(
    remask: CommandLine, whole: Rows
) -> None:
    plan = _stopped(remask.store).folder / "run.json"
    sound = plan.read_bytes()
    size = len(sound)
    cut = [sound[:length] for length in (0, 1, 2, size // 4, size // 2, size - 2, size - 1)]
    flipped = [
        sound[:at] + bytes([sound[at] ^ 1 << number % 8]) + sound[at + 1 :]
        for number, at in enumerate(range(0, size, size // 32))
    ]
    assert len(flipped) > 30
    for damaged in cut + flipped:
        plan.write_bytes(damaged)
        before = contents(remask.store.parent)
        for command in (("resume", "--workers", "1"), RUN):
            answer = remask(*command)
            assert _is_a_message(answer)
            assert f"{plan} cannot be read as the plan of a run" in answer.text
            assert contents(remask.store.parent) == before
    plan.write_bytes(sound)
    assert remask("resume", "--workers", "1").code == 0
    assert _rows(remask.store) == whole


def test_the_checkpoints_of_another_job_are_refused_and_not_gone_on_from(
    remask: CommandLine, whole: Rows
) -> None:
    run = _stopped(remask.store)
    first, second = (run.folder / job.name for job in run.jobs[:2])
    (config,) = run.jobs[1].configs
    first.rename(second)
    foreign = {path: path.read_bytes() for path in second.glob("checkpoint-*")}
    assert foreign
    answer = remask(*RUN)
    assert _is_a_message(answer)
    assert "belongs to another run" in answer.text
    assert all(path.read_bytes() == data for path, data in foreign.items())
    assert _rows(remask.store) == {c: shown for c, shown in whole.items() if c != config}
    shutil.rmtree(second)  # as the message says
    answer = remask(*RUN)
    assert answer.code == 0, answer.err
    assert _rows(remask.store) == whole


def test_a_plan_of_which_others_have_stored_everything_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with Store(path) as store:
        begun = _plan(store, 2, stack=2)
        all_of_them = _plan(store, 3)
        assert begun is not None
        assert all_of_them is not None
        _finish(store, all_of_them)
        assert _plan(store, 2) is None
    assert [path.name for path in (tmp_path / "results.db.runs").iterdir()] == ["claims"]


def _plan(store: Store, trials: int, stack: int = 1) -> Run | None:
    configs = small(trials)
    return plan_run(store, configs, workers=1, largest_stack=lambda _: stack, again=False)


def _finish(store: Store, run: Run) -> None:
    for _ in events_of(store, run):
        pass
