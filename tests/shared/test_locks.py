"""One process at a time, and none that is dead."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from remask import locks
from remask.durable import (
    DurabilityError,
)
from remask.locks import Lock, LockHeldError
from tests.command_line import held_by_another

HOLD = """
import sys, time
from pathlib import Path
from remask.locks import Lock
with Lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holding(path: Path) -> AbstractContextManager["subprocess.Popen[str]"]:
    """A process that holds the lock, ended at the end of the block."""
    return held_by_another(HOLD, str(path))


def test_a_lock_can_be_taken_again_after_it_was_freed(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "folder" / "lock")
    for _ in range(2):
        with lock:
            assert (tmp_path / "folder" / "lock.owner.json").exists()
        assert not (tmp_path / "folder" / "lock.owner.json").exists()


def test_a_lock_is_freed_when_its_block_or_its_entry_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # Kept, since filelock frees what is no longer referred to.
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    with pytest.raises(ZeroDivisionError), first:
        _ = 1 / 0
    with monkeypatch.context() as patch:
        patch.setattr(locks, "write_atomically", interrupt)
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
def test_a_lock_of_a_living_process_is_refused_and_the_message_names_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holding(path) as process:
        owner = json.loads((tmp_path / "lock.owner.json").read_text())
        owner["since"] -= 200
        (tmp_path / "lock.owner.json").write_text(json.dumps(owner))
        with pytest.raises(LockHeldError) as caught, Lock(path):
            pass
        message = str(caught.value)
        process.kill()
    for part in (
        f"{path} is held by process {process.pid} on {socket.gethostname()} (-c ",
        "for 3 min now",
        f"kill {process.pid}",
    ):
        assert part in message


def test_a_process_of_another_host_is_not_to_be_killed_here(tmp_path: Path) -> None:
    with Lock(tmp_path / "lock"):
        owner = {"pid": 4321, "host": "elsewhere", "command": "learn", "since": time.time()}
        (tmp_path / "lock.owner.json").write_text(json.dumps(owner))
        with pytest.raises(LockHeldError, match=r"end it \(on elsewhere\)") as caught:
            Lock(tmp_path / "lock").__enter__()
    assert "kill" not in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="links need privileges elsewhere")
def test_a_symbolic_link_in_place_of_a_lock_is_refused_and_its_target_stays(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("my thesis")
    (tmp_path / "lock").symlink_to(tmp_path / "thesis.txt")
    with pytest.raises(DurabilityError, match="cannot lock"), Lock(tmp_path / "lock"):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "my thesis"


@pytest.mark.processes
def test_a_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holding(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert json.loads((tmp_path / "lock.owner.json").read_text())["pid"] == process.pid
        with Lock(path):
            assert json.loads((tmp_path / "lock.owner.json").read_text())["pid"] == os.getpid()


@pytest.mark.processes
def test_a_lock_is_waited_for_as_long_as_allowed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holding(path) as process:
        start = time.monotonic()
        with pytest.raises(LockHeldError), Lock(path, timeout=0.3):
            pass
        assert time.monotonic() - start >= 0.3
        timer = threading.Timer(0.2, process.kill)
        timer.start()
        with Lock(path, timeout=30):
            assert time.monotonic() - start >= 0.5
        timer.join()


@pytest.mark.processes
def test_a_holder_that_has_not_signed_yet_is_not_mistaken_for_the_dead_one_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lock"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with Lock(path):
        owner = {"pid": dead.pid, "host": socket.gethostname(), "command": "dead", "since": 0}
        (tmp_path / "lock.owner.json").write_text(json.dumps(owner))
        with pytest.raises(LockHeldError, match="held by another process"), Lock(path):
            pass


@pytest.mark.processes
def test_processes_that_compete_for_a_lock_never_hold_it_together(tmp_path: Path) -> None:
    """Each makes a file that must not be there; one of them dies with the lock in its hands."""
    script = """
import os, sys, time
from pathlib import Path
from remask.locks import Lock
folder, me = Path(sys.argv[1]), int(sys.argv[2])
for turn in range(20):
    with Lock(folder / "lock", timeout=60):
        inside = folder / "inside"
        inside.touch(exist_ok=False)
        (folder / "turns").open("a").write("x")
        time.sleep(0.002)
        inside.unlink()
        if me == 0 and turn == 5:
            os.kill(os.getpid(), 9)
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), str(number)])
        for number in range(4)
    ]
    assert [process.wait(timeout=120) for process in processes] == [-9, 0, 0, 0]
    assert (tmp_path / "turns").read_text() == "x" * 66


def test_a_lock_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with (
        pytest.raises(DurabilityError, match=r"cannot lock .*Is a directory"),
        Lock(tmp_path / "lock"),
    ):
        pass
