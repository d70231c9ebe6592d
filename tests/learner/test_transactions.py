"""A change of a learner happens as a whole or not at all, whatever interrupts it."""

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
from tests.learner.samples import (
    VISITS,
    bits,
    blobs,
    create,
    files_with,
    interrupted,
    samples_of,
    taught,
)
from tests.runs.faults import CrashError, FaultyDisk

FOURTH = ("fox", "gnu")
CHANGES: dict[str, Callable[[Learner], object]] = {
    "learn": lambda learner: learner.learn(*blobs(FOURTH, seed=1), name="fourth"),
    "undo": lambda learner: learner.undo(),
    "rename": lambda learner: learner.rename("bee", "wasp"),
    "merge": lambda learner: learner.rename("bee", "ant", merge=True),
    "forget": lambda learner: learner.forget("bee", retrain=True),
}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("before") / "a"
    taught(path, *VISITS)
    return path


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory, before: Path) -> Path:
    """After the fourth visit."""
    path = tmp_path_factory.mktemp("after") / "a"
    shutil.copytree(before, path)
    CHANGES["learn"](Learner.open(path))
    return path


@pytest.fixture
def path(tmp_path: Path, before: Path) -> Path:
    """A learner that a test may change."""
    return Path(shutil.copytree(before, tmp_path / "a"))


@pytest.mark.parametrize("steps", [1, 6, 13])
def test_an_interrupted_visit_continues_and_ends_with_the_same_bits(
    path: Path, before: Path, after: Path, steps: int
) -> None:
    learner = Learner.open(path)
    interrupted(learner, FOURTH, steps, name="fourth")
    assert bits(path) == bits(before)
    assert learner.unfinished == "fourth"
    seen: list[Progress] = []
    learner = Learner.open(path)
    learner.learn(*blobs(FOURTH, seed=1), name="fourth", on_progress=seen.append)
    assert seen[0].step == steps + 1
    assert seen[0].resumed
    assert bits(path) == bits(after)
    assert not (path / "visit").exists()


def test_an_unfinished_visit_is_not_mixed_with_another(path: Path, after: Path) -> None:
    learner = Learner.open(path)
    interrupted(learner, ["emu"], name="first try", seed=0)
    for inputs, labels, name in (
        (*blobs(FOURTH, seed=1), "fourth"),
        (*blobs(["emu"]), "another name"),
        (*blobs(["emu"], seed=5), "first try"),
    ):
        with pytest.raises(LearnerError, match=r"'first try' was started .* discard=True"):
            learner.learn(inputs, labels, name=name)
    learner.learn(*blobs(FOURTH, seed=1), name="fourth", discard=True)
    assert bits(path) == bits(after)


def test_ctrl_c_waits_for_the_end_of_a_step_and_saves(path: Path, after: Path) -> None:

    def interrupt(progress: Progress) -> None:
        if progress.step == 4:
            os.kill(os.getpid(), signal.SIGINT)

    learner, seen = Learner.open(path), list[Progress]()
    handler = signal.getsignal(signal.SIGINT)  # a job in the background ignores Ctrl-C
    with pytest.raises(KeyboardInterrupt):
        learner.learn(*blobs(FOURTH, seed=1), name="fourth", on_progress=interrupt)
    learner.learn(*blobs(FOURTH, seed=1), name="fourth", on_progress=seen.append)
    assert seen[0].step == 5
    assert bits(path) == bits(after)
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize(
    ("name", "code", "every"),
    [
        *((name, None, 2) for name in ("undo", "rename", "merge")),
        pytest.param("learn", errno.ENOSPC, 13, marks=pytest.mark.thorough),
        pytest.param("learn", None, 17, marks=pytest.mark.thorough),
        pytest.param("forget", None, 1, marks=pytest.mark.faults),
        *(
            pytest.param("learn", code, 1, marks=pytest.mark.faults)
            for code in (errno.ENOSPC, errno.EIO, None)
        ),
    ],
)
def test_a_crash_at_any_point_leaves_the_learner_before_or_after_the_change(
    tmp_path: Path, before: Path, name: str, code: int | None, every: int
) -> None:
    change = CHANGES[name]
    error = CrashError if code is None else partial(OSError, code, os.strerror(code))
    shutil.copytree(before, tmp_path / "after")
    change(Learner.open(tmp_path / "after"))
    old, new = bits(before), bits(tmp_path / "after")
    for at in range(0, 999, every):
        broken, path = tmp_path / "broken", tmp_path / "a"
        shutil.copytree(before, broken)
        disk = FaultyDisk(at, error, late=bool(at // every % 2))
        with pytest.MonkeyPatch.context() as monkeypatch:
            disk.install(monkeypatch)
            with suppress(RemaskError, CrashError):
                learner = Learner.open(broken)
                learner.checkpoint_seconds = 0.05
                change(learner)
        shutil.copytree(broken, path)  # a dead process holds no lock, but this one lives
        assert bits(path) in (old, new)
        learner = Learner.open(path)
        assert learner.predict(blobs(["ant"], each=2)[0])
        if bits(path) == old:
            change(learner)
        assert bits(path) == new
        named = {note.name for note in read_manifest(path).files}
        there = {p.name for p in path.iterdir() if not p.name.startswith("learner.lock")}
        assert there == named | {MANIFEST}
        assert name != "forget" or not files_with(path, samples_of("bee"))
        shutil.rmtree(path)
        shutil.rmtree(broken)
        if not disk.reached:
            return
    raise AssertionError("the change has no end of operations")


def rounds(path: Path) -> None:
    """Learn, rename, merge, undo and forget, each unless it is done already."""
    learner = Learner.open(path)
    learner.checkpoint_seconds = 0.01
    if "fox" not in learner.classes and "eel" in learner.classes:
        CHANGES["learn"](learner)
    if "bee" in learner.classes:
        learner.rename("bee", "wasp")
    if "cat" in learner.classes:
        learner.rename("cat", "dog", merge=True)
    if "fox" in learner.classes:
        learner.undo()
    if "eel" in learner.classes:
        learner.forget("eel", retrain=True)


def forked(action: Callable[[], object]) -> int:
    """Run an action in a child process; return its id."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return child


def killed(path: Path, seconds: float) -> bool:
    """Run the rounds in a child process that is killed after some time; whether it was."""
    child, deadline = forked(partial(rounds, path)), time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
            return os.waitstatus_to_exitcode(status) != 0
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        reader = Learner.open(path)
        assert set(reader.predict(blobs(["ant"], each=2)[0]).names) <= set(reader.classes)


@pytest.mark.parametrize(
    "kills",
    [pytest.param(4, marks=pytest.mark.processes), pytest.param(130, marks=pytest.mark.faults)],
)
def test_changes_killed_at_random_moments_end_with_the_same_bits(
    tmp_path: Path, before: Path, kills: int
) -> None:
    shutil.copytree(before, tmp_path / "after")
    rounds(tmp_path / "after")
    expected = bits(tmp_path / "after")
    source, path, count = random.Random(kills), tmp_path / "a", 0
    while True:
        if not path.exists():
            shutil.copytree(before, path)
        if count < kills and killed(path, source.uniform(0.0, 0.6)):
            count += 1
            continue
        rounds(path)
        assert bits(path) == expected
        assert not files_with(path, samples_of("eel"))
        if count >= kills:
            return
        shutil.rmtree(path)


def test_leftovers_of_a_dead_process_are_removed(path: Path) -> None:
    (path / "state-000099.safetensors").write_bytes(b"half")
    (path / "visit").mkdir()
    (path / "visit" / "inputs.npy").write_bytes(b"half")
    Learner.open(path)
    assert not (path / "state-000099.safetensors").exists()
    assert not (path / "visit").exists()


def test_every_damaged_byte_is_found(path: Path, before: Path) -> None:
    names = [MANIFEST, *(note.name for note in read_manifest(path).own_files)]
    source = random.Random(0)
    for name in names:
        whole = (path / name).read_bytes()
        damaged = [whole[:cut] for cut in (0, 1, len(whole) // 2)]
        for _ in range(12):
            flipped = bytearray(whole)
            flipped[source.randrange(len(whole))] ^= 1 << source.randrange(8)
            if name != MANIFEST or flipped.split() != whole.split():
                damaged.append(bytes(flipped))
        for data in damaged:
            (path / name).write_bytes(data)
            with pytest.raises(LearnerError, match=r"damaged|newer|older"):
                Learner.open(path).learn(*blobs(["yak"]), name="third")
        (path / name).write_bytes(whole)
    assert bits(path) == bits(before)


def test_a_newer_version_s_learner_is_left_alone(path: Path) -> None:
    text = (path / MANIFEST).read_text().replace('"format": 5', '"format": 6', 1)
    (path / MANIFEST).write_text(text)
    with pytest.raises(LearnerError, match=r"newer remask \(format 6.*Update"):
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
        assert Learner.open(path).settings.method == "er"
    raise AssertionError("creating has no end of operations")
