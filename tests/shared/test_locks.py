"""Locks between processes."""

import json
import os
import socket
import subprocess
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from remask import files
from remask.files import DurabilityError, Lock, LockHeldError
from tests.command_line import held_by_another

HOLD = """
import sys, time
from pathlib import Path
from remask.files import Lock
with Lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holding(path: Path) -> AbstractContextManager["subprocess.Popen[str]"]:
    """A process that holds the lock, ended at the end of the block."""
    return held_by_another(HOLD, str(path))


def test_a_lock_is_freed_also_when_its_block_or_its_entry_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    lock = Lock(tmp_path / "folder" / "lock")
    for _ in range(2):
        with lock:
            assert (tmp_path / "folder" / "lock.owner.json").exists()
        assert not (tmp_path / "folder" / "lock.owner.json").exists()
    # Kept, since filelock frees what is no longer referred to.
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    with pytest.raises(ZeroDivisionError), first:
        _ = 1 / 0
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomically", interrupt)
        with pytest.raises(KeyboardInterrupt), second:
            pass
    with Lock(tmp_path / "lock"):
        assert first is not second


def test_a_lock_is_not_taken_twice_within_a_process(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    for inner in (lock, Lock(tmp_path / "lock")):
        with lock:
            with pytest.raises(LockHeldError, match="another call in this process"), inner:
                pass
            with pytest.raises(LockHeldError), Lock(tmp_path / "lock"):
                pass


@pytest.mark.processes
def test_the_message_names_the_process_that_holds_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holding(path) as process:
        owner = json.loads((tmp_path / "lock.owner.json").read_text())
        owner["since"] -= 200
        (tmp_path / "lock.owner.json").write_text(json.dumps(owner))
        start = time.monotonic()
        with pytest.raises(LockHeldError) as caught, Lock(path, timeout=0.3):
            pass
        assert time.monotonic() - start >= 0.3
        for part in (
            f"{path} is held by process {process.pid} on {socket.gethostname()} (-c ",
            "for 3 min now (waited 0.3 s)",
        ):
            assert part in str(caught.value)
        timer = threading.Timer(0.2, process.kill)
        timer.start()
        with Lock(path, timeout=30):
            assert time.monotonic() - start >= 0.5
            assert json.loads((tmp_path / "lock.owner.json").read_text())["pid"] == os.getpid()
        timer.join()


@pytest.mark.parametrize(
    ("pid", "host", "named"),
    [
        (4321, "elsewhere", "process 4321 on elsewhere"),
        (2**31 - 1, socket.gethostname(), "another process"),  # dead: the new one has not signed
    ],
)
def test_an_owner_is_named_unless_dead(tmp_path: Path, pid: int, host: str, named: str) -> None:
    path = tmp_path / "lock"
    with Lock(path):
        owner = {"pid": pid, "host": host, "command": "learn", "since": time.time()}
        (tmp_path / "lock.owner.json").write_text(json.dumps(owner))
        with pytest.raises(LockHeldError, match=f"held by {named}"), Lock(path):
            pass


def test_a_folder_or_link_in_place_of_a_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("my thesis")
    (tmp_path / "lock").symlink_to(tmp_path / "thesis.txt")
    (tmp_path / "folder").mkdir()
    for name in ("lock", "folder"):
        with pytest.raises(DurabilityError, match="cannot lock"), Lock(tmp_path / name):
            pass
    assert (tmp_path / "thesis.txt").read_text() == "my thesis"
