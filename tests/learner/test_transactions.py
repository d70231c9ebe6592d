"""A visit is learnt as a whole or not at all, whatever interrupts it."""

import errno
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from remask.errors import RemaskError
from remask.learner import Learner, LearnerError, Progress
from remask.learner.manifest import MANIFEST, read_manifest
from tests.learner.samples import bits, blobs, create, taught
from tests.runs.faults import CrashError, FaultyDisk

VISIT = ("cat", "dog")


class Stop(Exception):  # noqa: N818 - somebody's wish
    """Raised by a caller who has had enough."""


def begun(path: Path) -> Learner:
    return taught(path, ["ant", "bee"])


def second(learner: Learner, **changes: object) -> None:
    learner.learn(*blobs(VISIT, seed=1), name="second", **changes)  # type: ignore[arg-type]


def stop_after(steps: int) -> Callable[[Progress], None]:
    def look(progress: Progress) -> None:
        if progress.step == steps:
            raise Stop

    return look


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("before") / "a"
    begun(path)
    return path


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory, before: Path) -> Path:
    path = tmp_path_factory.mktemp("after") / "a"
    shutil.copytree(before, path)
    learner = Learner.open(path)
    second(learner)
    return path


@pytest.mark.parametrize("steps", [1, 6, 7, 13])
def test_a_visit_that_was_stopped_goes_on_and_ends_with_the_same_bits(
    tmp_path: Path, before: Path, after: Path, steps: int
) -> None:
    path = tmp_path / "a"
    shutil.copytree(before, path)
    learner = Learner.open(path)
    with pytest.raises(Stop):
        second(learner, on_progress=stop_after(steps))
    assert bits(path) == bits(before)
    assert learner.unfinished == "second"
    assert learner.classes == ("ant", "bee")
    told: list[Progress] = []
    learner = Learner.open(path)
    second(learner, on_progress=told.append)
    assert told[0].step == steps + 1
    assert told[0].resumed
    assert bits(path) == bits(after)
    assert not (path / "visit").exists()


def test_an_unfinished_visit_is_not_mixed_with_another(
    tmp_path: Path, before: Path, after: Path
) -> None:
    path = tmp_path / "a"
    shutil.copytree(before, path)
    learner = Learner.open(path)
    with pytest.raises(Stop):
        learner.learn(*blobs(["emu"]), name="first try", on_progress=stop_after(2))
    for inputs, labels, name in (
        (*blobs(VISIT, seed=1), "second"),
        (*blobs(["emu"]), "another name"),
        (*blobs(["emu"], seed=5), "first try"),
    ):
        with pytest.raises(LearnerError, match=r"'first try' was started .* discard=True"):
            learner.learn(inputs, labels, name=name)
    second(learner, discard=True)
    assert bits(path) == bits(after)


def test_ctrl_c_waits_for_the_end_of_a_step_and_saves(
    tmp_path: Path, before: Path, after: Path
) -> None:
    path = tmp_path / "a"
    shutil.copytree(before, path)

    def interrupt(progress: Progress) -> None:
        if progress.step == 4:
            os.kill(os.getpid(), signal.SIGINT)

    learner = Learner.open(path)
    with pytest.raises(KeyboardInterrupt):
        second(learner, on_progress=interrupt)
    told: list[Progress] = []
    second(learner, on_progress=told.append)
    assert told[0].step == 5
    assert bits(path) == bits(after)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("code", "late", "every"),
    [
        pytest.param(errno.ENOSPC, False, 9, marks=pytest.mark.thorough),
        pytest.param(None, True, 11, marks=pytest.mark.thorough),
        *(
            pytest.param(code, late, 1, marks=pytest.mark.faults)
            for code in (errno.ENOSPC, errno.EIO, None)
            for late in (False, True)
        ),
    ],
)
def test_a_disk_that_fails_at_any_point_leaves_the_learner_as_it_was_or_as_it_will_be(
    tmp_path: Path, before: Path, after: Path, code: int | None, late: bool, every: int
) -> None:
    error = CrashError if code is None else partial(OSError, code, os.strerror(code))
    old, new = bits(before), bits(after)
    for at in range(0, 999, every):
        broken, path = tmp_path / "broken", tmp_path / "a"
        shutil.copytree(before, broken)
        disk = FaultyDisk(at, error, late=late)
        with pytest.MonkeyPatch.context() as monkeypatch:
            disk.install(monkeypatch)
            with suppress(RemaskError, CrashError):
                learner = Learner.open(broken)
                learner.checkpoint_seconds = 0.05
                second(learner)
        shutil.copytree(broken, path)  # a dead process holds no lock, but this one lives
        assert bits(path) in (old, new)
        learner = Learner.open(path)
        second(learner)
        assert learner.predict(blobs(VISIT)[0])
        assert bits(path) == new
        assert sorted(name.name for name in path.iterdir() if name.name[0] != ".")[:2] == [
            MANIFEST,
            "learner.lock",
        ]
        shutil.rmtree(path)
        shutil.rmtree(broken)
        if not disk.reached:
            return
    raise AssertionError("a visit has no end of operations")


def killed_visit(path: Path, seconds: float | None) -> bool:
    """Learn the second visit in a child process that is killed after some time; whether it was."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            learner = Learner.open(path)
            learner.checkpoint_seconds = 0.01
            second(learner)
            code = 0
        finally:
            os._exit(code)
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
            return os.waitstatus_to_exitcode(status) != 0
        if deadline is not None and time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            deadline = None
        time.sleep(0.002)


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(3, marks=pytest.mark.processes),
        pytest.param(30, marks=pytest.mark.faults),
    ],
)
def test_a_visit_killed_at_random_moments_ends_with_the_same_bits(
    tmp_path: Path, before: Path, after: Path, kills: int
) -> None:
    source, path, killed = random.Random(kills), tmp_path / "a", 0
    while killed < kills:
        if not path.exists():
            shutil.copytree(before, path)
        if killed_visit(path, source.uniform(0.0, 0.25)):
            killed += 1
            assert Learner.open(path).predict(blobs(["ant"])[0])
        else:  # it has come to its end before it could be killed again
            assert bits(path) == bits(after)
            shutil.rmtree(path)
    if path.exists():
        killed_visit(path, None)
        assert bits(path) == bits(after)


@pytest.mark.processes
def test_readers_find_a_whole_learner_while_another_process_learns(
    tmp_path: Path, before: Path
) -> None:
    path = tmp_path / "a"
    shutil.copytree(before, path)
    child = os.fork()
    if child == 0:
        code = 70
        try:
            learner = Learner.open(path)
            for number in range(6):
                learner.learn(*blobs([f"x{number}"], each=8), name=str(number))
            code = 0
        finally:
            os._exit(code)
    seen: set[tuple[str, ...]] = set()
    while not os.waitpid(child, os.WNOHANG)[0]:
        reader = Learner.open(path)
        assert set(reader.predict(blobs(["ant"])[0]).names) <= set(reader.classes)
        seen.add(reader.classes)
    assert len(seen) > 1
    assert len(Learner.open(path).classes) == 8


def test_leftovers_of_a_dead_process_are_removed(tmp_path: Path, before: Path) -> None:
    path = tmp_path / "a"
    shutil.copytree(before, path)
    (path / "state-000099.safetensors").write_bytes(b"half")
    (path / "visit").mkdir()
    (path / "visit" / "inputs.npy").write_bytes(b"half")
    learner = Learner.open(path)
    assert not (path / "state-000099.safetensors").exists()
    second(learner)
    assert not (path / "visit").exists()


def test_every_damaged_byte_is_found(tmp_path: Path, before: Path) -> None:
    path = tmp_path / "a"
    shutil.copytree(before, path)
    names = [MANIFEST, *(note.name for note in read_manifest(path).files)]
    source = random.Random(0)
    for name in names:
        whole = (path / name).read_bytes()
        for _ in range(20):
            data = bytearray(whole)
            data[source.randrange(len(data))] ^= 1 << source.randrange(8)
            if name == MANIFEST and data.split() == whole.split():
                continue
            (path / name).write_bytes(data)
            with pytest.raises(LearnerError, match=r"damaged|newer|older"):
                Learner.open(path).learn(*blobs(["cat"]), name="third")
        for cut in (0, 1, len(whole) // 2):
            (path / name).write_bytes(whole[:cut])
            with pytest.raises(LearnerError, match="damaged"):
                Learner.open(path).learn(*blobs(["cat"]), name="third")
        (path / name).write_bytes(whole)
    assert bits(path) == bits(before)


def test_a_newer_versions_learner_is_left_alone(tmp_path: Path, before: Path) -> None:
    path = tmp_path / "a"
    shutil.copytree(before, path)
    text = (path / MANIFEST).read_text().replace('"format": 3', '"format": 4', 1)
    (path / MANIFEST).write_text(text)
    with pytest.raises(LearnerError, match=r"newer remask \(format 4.*Update"):
        Learner.open(path)
    assert (path / MANIFEST).read_text() == text


def test_a_create_that_fails_can_be_tried_again(tmp_path: Path) -> None:
    for at in range(40):
        broken, path = tmp_path / "broken", tmp_path / str(at)
        disk = FaultyDisk(at)
        with pytest.MonkeyPatch.context() as monkeypatch:
            disk.install(monkeypatch)
            with suppress(CrashError):
                create(broken)
        if not disk.reached:
            return
        if broken.exists():
            shutil.copytree(broken, path)
            shutil.rmtree(broken)
        if not (path / MANIFEST).exists():
            create(path)
        learner = Learner.open(path)
        assert learner.classes == ()
        assert learner.settings.method == "er"
    raise AssertionError("creating has no end of operations")
