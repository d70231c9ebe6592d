"""Saving while the disk fails or the machine dies, and reading what is left or damaged."""

import errno
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from remask.files import DurabilityError, Lock, LockHeldError
from tests.runs.faults import (
    CrashError,
    FaultyDisk,
    damaged_versions,
    filled,
    reopened,
    save,
    state,
    version_of,
)

ERRNOS = (errno.ENOSPC, errno.EIO, errno.EROFS)


def every_point(
    tmp_path: Path, make: Callable[[int], FaultyDisk]
) -> Iterator[tuple[Path, FaultyDisk]]:
    """Save version 4 over 2 and 3 again and again, with a fault at each operation in turn."""
    for at in range(100):
        path = tmp_path / str(at)
        folder = filled(path)
        # A dead process's temporary file, so that its removal is one of the points.
        stale = path / f".old.{'0' * 8}-1-{'0' * 16}.tmp"
        stale.touch()
        os.utime(stale, (0, 0))
        disk = make(at)
        with pytest.MonkeyPatch.context() as monkeypatch:
            disk.install(monkeypatch)
            try:
                save(folder, 4)
                saved, message = True, ""
            except (DurabilityError, CrashError) as error:
                saved, message = False, str(error)
        assert saved or disk.reached
        assert saved or disk.error is CrashError or str(path) in message
        if not disk.reached:
            assert at == len(disk.log) >= 7
            return
        found = version_of(reopened(path).load(state(0)))
        assert found == 4 if saved else found in (3, 4)
        yield path, disk
    raise AssertionError("a save has no end of operations")


def assert_next_save_works(path: Path) -> None:
    folder = reopened(path)
    assert version_of(folder.load(state(0))) in (3, 4)
    save(folder, 5)
    assert version_of(reopened(path).load(state(0))) == 5
    assert len(list(path.glob("checkpoint-*"))) == 2


@pytest.mark.parametrize(
    ("code", "late", "lasting"),
    [
        (errno.ENOSPC, False, False),
        (errno.ENOSPC, True, True),
        (errno.EIO, True, False),
        (errno.EROFS, False, True),
    ],
)
def test_a_save_that_fails_at_any_point_leaves_a_whole_state_and_the_next_save_works(
    tmp_path: Path, code: int, late: bool, lasting: bool
) -> None:
    error = partial(OSError, code, os.strerror(code))
    for path, disk in every_point(
        tmp_path, lambda at: FaultyDisk(at, error, late=late, lasting=lasting)
    ):
        if not lasting and disk.log[disk.at or 0] != "_remove":
            assert not list(path.glob(".checkpoint*.tmp"))
        assert_next_save_works(path)


@pytest.mark.parametrize("power", ["stays", "fails", "fails, and renames are lost"])
@pytest.mark.parametrize("late", [False, True])
def test_a_crash_at_any_point_leaves_a_whole_state_and_the_next_save_works(
    tmp_path: Path, late: bool, power: str
) -> None:
    for path, disk in every_point(tmp_path, lambda at: FaultyDisk(at, late=late)):
        if power != "stays":
            disk.cut_power(renames_are_lost="renames" in power)
        assert_next_save_works(path)


@pytest.mark.parametrize("renames_are_lost", [False, True])
def test_a_power_cut_after_a_save_takes_nothing_of_it_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames_are_lost: bool
) -> None:
    disk = FaultyDisk()
    disk.install(monkeypatch)
    filled(tmp_path / "new" / "folder", versions=2)
    disk.cut_power(renames_are_lost=renames_are_lost)
    found = reopened(tmp_path / "new" / "folder").load(state(0))
    assert version_of(found) == 2
    assert found is not None
    assert found.warnings == ()
    # Each new folder is synced into its parent before anything is put in it.
    assert disk.log[:5] == ["_make_folder", "_sync_folder"] * 2 + ["_create"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "bits",
    [(1,), (128,), pytest.param(tuple(1 << bit for bit in range(8)), marks=pytest.mark.faults)],
)
def test_a_checkpoint_damaged_anywhere_is_noticed_and_the_one_before_is_loaded(
    tmp_path: Path, bits: tuple[int, ...]
) -> None:
    filled(tmp_path)
    newest = tmp_path / "checkpoint-00000003.safetensors"
    for data in damaged_versions(newest.read_bytes(), bits):
        newest.write_bytes(data)
        found = reopened(tmp_path).load(state(0))
        assert version_of(found) == 2
        assert found is not None
        assert [str(newest) in warning for warning in found.warnings] == [True]


@pytest.mark.parametrize("code", ERRNOS, ids=errno.errorcode.get)
def test_a_lock_is_held_even_where_its_owner_cannot_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    (tmp_path / "lock.owner.json").write_text(
        f'{{"pid": {os.getpid()}, "host": "h", "command": "innocent", "since": 0}}'
    )
    for operation in range(5):
        with monkeypatch.context() as patch:
            error = partial(OSError, code, os.strerror(code))
            FaultyDisk(operation, error).install(patch)
            with Lock(tmp_path / "lock"):
                with pytest.raises(LockHeldError) as caught, Lock(tmp_path / "lock"):
                    pass
                assert "innocent" not in str(caught.value)
