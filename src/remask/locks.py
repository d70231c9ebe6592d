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
_HOST = socket.gethostname()


class LockHeldError(RemaskError):
    """Another process or call holds the lock; the message has which, since when, what to do."""


@dataclass(frozen=True)
class LockOwner:
    """The process that holds a lock."""

    pid: int
    host: str
    command: str
    since: float
    """Seconds since 1970."""


class Lock:
    """Holds a lock between processes while in its `with` block.

    The operating system frees the lock of a process that dies. NAME.owner.json beside it is for
    messages only.
    """

    def __init__(self, path: Path, *, timeout: float = 0.0) -> None:
        """Lock the file `path` on entry, waiting for at most `timeout` seconds."""
        self._path = path
        self._timeout = max(timeout, 0.0)
        self._lock = filelock.FileLock(path, timeout=self._timeout, thread_local=False)

    def __enter__(self) -> Self:
        """Take the lock."""
        make_folder(self._path.parent)
        # filelock lets the same object take it twice, and the inner block would free it.
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
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Free the lock."""
        remove_quietly(_owner_path(self._path))
        self._lock.release()

    def _sign(self) -> None:
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])[:_LONGEST_COMMAND]
        owner = LockOwner(os.getpid(), _HOST, command, time.time())
        try:
            write_atomically(_owner_path(self._path), json.dumps(asdict(owner)).encode())
        except OSError:  # an earlier owner must not be named
            remove_quietly(_owner_path(self._path))

    def _held(self) -> LockHeldError:
        owner = holder_of(self._path)
        by, end = "another process", ""
        if owner is not None and owner.pid == os.getpid() and owner.host == _HOST:
            by = f"another call in this process ({owner.command})"
        elif owner is not None:
            by = f"process {owner.pid} on {owner.host} ({owner.command})"
            here = owner.host == _HOST
            end = f", or end it ({f'kill {owner.pid}' if here else f'on {owner.host}'})"
        if owner is not None:
            by += f", for {_duration(time.time() - owner.since)} now"
        if self._timeout:
            by += f" (waited {self._timeout:g} s)"
        return LockHeldError(
            f"{self._path} is held by {by}. Wait for it to end{end}, then try again."
        )


def holder_of(path: Path) -> LockOwner | None:
    """Return the process that holds the lock at `path`, if it is known, without taking the lock."""
    try:
        match json.loads(read_limited(_owner_path(path), _MAX_OWNER_BYTES)):
            case {"pid": int(pid), "host": str(host), "command": str(command), "since": since}:
                # A dead owner did not remove its file. The message may advise to kill the process,
                # and kill treats numbers below 2 differently.
                if pid > 1 and (host != _HOST or is_running(pid)):
                    return LockOwner(pid, _shown(host), _shown(command), float(since))
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        pass
    return None


def _owner_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.owner.json")


def _shown(text: str) -> str:
    return printable(text[:_LONGEST_COMMAND]).replace("\n", "?").replace("\t", "?")


def _duration(seconds: float) -> str:
    for size, unit in ((_DAY, "days"), (60 * 60, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
