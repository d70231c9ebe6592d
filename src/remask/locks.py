"""A lock that does not outlive its process."""

import json
import os
import shlex
import socket
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import filelock

from remask.durable import (
    is_running,
    make_folder,
    read_limited,
    refusal,
    remove_quietly,
    write_atomically,
)
from remask.errors import RemaskError
from remask.printable import printable

_DAY = 24 * 60 * 60
_MAX_OWNER_BYTES = 1 << 16
_LONGEST_COMMAND = 200


class LockHeldError(RemaskError):
    """Another process holds the lock; the message says which, since when, and what to do."""


@dataclass(frozen=True)
class LockOwner:
    """Who holds a lock."""

    pid: int
    host: str
    command: str
    since: float
    """Seconds since 1970."""


class Lock:
    """Hold a lock while in its `with` block; no other process can at the same time.

    The operating system frees the lock of a process that dies, however it dies. What is written
    beside it, in NAME.owner.json, is for messages only and decides nothing.
    """

    def __init__(self, path: Path, *, timeout: float = 0.0) -> None:
        """Prepare to lock the file `path`, waiting for at most `timeout` seconds."""
        self._path = path
        self._owner_path = path.with_name(f"{path.name}.owner.json")
        self._timeout = max(timeout, 0.0)
        self._lock = filelock.FileLock(path, timeout=self._timeout, thread_local=False)

    def __enter__(self) -> Self:
        """Take the lock."""
        make_folder(self._path.parent)
        # filelock would let the same object take it twice, and the inner block would free it.
        if self._lock.is_locked:
            raise self._held()
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise self._held() from None
        except (OSError, NotImplementedError) as error:
            raise refusal("lock", self._path, error) from error
        try:
            self._sign()
        except BaseException:  # without a block to leave, nobody else would free it
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Free the lock."""
        remove_quietly(self._owner_path)
        self._lock.release()

    def _sign(self) -> None:
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])[:_LONGEST_COMMAND]
        owner = LockOwner(os.getpid(), socket.gethostname(), command, time.time())
        try:
            write_atomically(self._owner_path, json.dumps(asdict(owner)).encode())
        except OSError:  # we do hold the lock; but an earlier owner must not be named
            remove_quietly(self._owner_path)

    def _held(self) -> LockHeldError:
        owner = _read_owner(self._owner_path)
        # Between taking the lock and signing, what is there is the dead holder's before.
        if owner is None or not _may_be_alive(owner):
            return LockHeldError(
                f"{self._path} is held by another process. Wait for it to end, then try again."
            )
        held = f"for {_duration(time.time() - owner.since)} now"
        if self._timeout:
            held += f" (waited {self._timeout:g} s)"
        if owner.host != socket.gethostname():
            advice = f"Wait for it to end, or end it on {owner.host}, then try again."
        elif owner.pid == os.getpid():
            return LockHeldError(
                f"{self._path} is held by another call in this process ({owner.command}), {held}. "
                f"Wait for that call to end, then try again."
            )
        else:
            advice = f"Wait for it to end, or end it (kill {owner.pid}), then try again."
        return LockHeldError(
            f"{self._path} is held by process {owner.pid} on {owner.host} ({owner.command}), "
            f"{held}. {advice}"
        )


def holder_of(path: Path) -> LockOwner | None:
    """Who seems to hold the lock at `path`, without trying to take it; None: nobody is known."""
    owner = _read_owner(path.with_name(f"{path.name}.owner.json"))
    return owner if owner is not None and _may_be_alive(owner) else None


def _read_owner(path: Path) -> LockOwner | None:
    """Who signed, or None if nobody did or it cannot be read."""
    try:
        match json.loads(read_limited(path, _MAX_OWNER_BYTES)):
            case {"pid": int(pid), "host": str(host), "command": str(command), "since": since}:
                if pid > 1:  # the message tells to kill it, and below are others than it
                    return LockOwner(pid, _shown(host), _shown(command), float(since))
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        pass
    return None


def _shown(text: str) -> str:
    return printable(text[:_LONGEST_COMMAND]).replace("\n", "?").replace("\t", "?")


def _duration(seconds: float) -> str:
    for size, unit in ((_DAY, "days"), (60 * 60, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _may_be_alive(owner: LockOwner) -> bool:
    return owner.host != socket.gethostname() or is_running(owner.pid)
