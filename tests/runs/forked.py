"""`remask ARGS` in a fork of this process, which has paid for the imports once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import ClassVar

import torch

import remask.experiments  # noqa: F401 - what the commands import when they are called
from remask.cli.app import main


class ForkedRemask:
    """A command in a child process, with its output in a pipe.

    It can be used as a `subprocess.Popen` as far as the tests need it. Whatever its last argument,
    `prepare`, does is done in the child before the command begins.
    """

    _readers: ClassVar[set[int]] = set()
    """Our ends of all pipes: a sibling that inherited one would be a reader that never leaves."""

    def __init__(
        self,
        args: Sequence[str],
        store: Path,
        *,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self.returncode: int | None = None
        self._said = b""
        reader, theirs = os.pipe()
        os.set_blocking(reader, False)
        self._reader: int | None = reader
        self._readers.add(reader)
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            try:
                self._make_a_process_of_its_own(theirs)
                os.environ["REMASK_STORE"] = str(store)
                prepare()
                code = _call(args)
            except KeyboardInterrupt:  # before the command had begun
                code = 128 + signal.SIGINT
            finally:
                os._exit(code)
        os.close(theirs)

    def poll(self) -> int | None:
        """Its exit code, once it has ended; hears what it has said meanwhile."""
        self._listen()
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
                self._listen()
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Its exit code, when it ends."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("remask", timeout)
            time.sleep(0.01)
        return code

    def communicate(self, timeout: float) -> tuple[str, str]:
        """What it has said, on both streams, once it has ended."""
        self.wait(timeout)
        said = self._said.decode(errors="replace")
        self.leave()
        return "", said

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def leave(self) -> None:
        """Read no more of its output: the pipe has no reader any more."""
        if self._reader is not None:
            self._readers.remove(self._reader)
            os.close(self._reader)
            self._reader = None  # its number may soon be another one's

    def _listen(self) -> None:
        with suppress(BlockingIOError, OSError):  # nothing more for now
            while self._reader is not None and (piece := os.read(self._reader, 1 << 16)):
                self._said += piece

    def _make_a_process_of_its_own(self, theirs: int) -> None:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored
        for reader in self._readers:
            os.close(reader)
        source = os.open(os.devnull, os.O_RDONLY)
        for number, stream in enumerate((source, theirs, theirs)):
            os.dup2(stream, number)
        sys.stdin = os.fdopen(0, "r", closefd=False)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        torch.set_num_threads(1)
        forkserver._forkserver.__init__()  # type: ignore[misc] # not the parent's


def _call(args: Sequence[str]) -> int:
    sys.argv = ["remask", *args]
    code = 0
    try:
        main(alone=False)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    return code
