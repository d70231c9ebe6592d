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

import torch

import remask.experiments  # noqa: F401 - what the commands import when they are called
from remask.cli.app import main


class ForkedRemask:
    """A command in a child process; a `subprocess.Popen` as far as the tests need it.

    What it prints goes to `log`. `prepare` is called in the child before the command begins.
    """

    def __init__(
        self, args: Sequence[str], store: Path, log: Path, prepare: Callable[[], None]
    ) -> None:
        self.returncode: int | None = None
        log.touch()
        self._log = log
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            try:
                _make_own_process(log)
                os.environ["REMASK_STORE"] = str(store)
                prepare()
                code = _call(args)
            except KeyboardInterrupt:  # before the command had begun
                code = 128 + signal.SIGINT
            finally:
                os._exit(code)

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, str]:
        """What it has printed, once it has ended."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("remask", timeout)
            time.sleep(0.01)
        return "", self._log.read_text(errors="replace")

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def _make_own_process(log: Path) -> None:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    for handled in (signal.SIGTERM, signal.SIGHUP):  # the tests' own process may ignore them
        signal.signal(handled, signal.SIG_DFL)
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
