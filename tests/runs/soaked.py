"""A run of the soak: what it has open, which workers it has, and whether it ended as it may."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.runs.disturbances import AnyRun, RunEnded
from tests.runs.faults import FaultyDisk, die_at_once
from tests.runs.forked import ForkedRemask
from tests.runs.soak_trials import watching

_SECONDS_FOR_A_WORKER = 8.0
_REASONS = (
    "is held by",
    "another process has just worked on the run",
    "there is no unfinished run",
    "tries; run the same command",
)
"""What a run that ends with an error may say, after what is done to it here."""


class Soaked(AnyRun):
    """A run of the soak, and what was done to it."""

    def __init__(
        self,
        args: Sequence[str],
        store: Path,
        log: Path,
        *,
        dies_at: int | None = None,
    ) -> None:
        """With `dies_at`, it is killed at that operation on files, and so are its workers."""

        def prepare() -> None:
            watching(log)()
            if dies_at is not None:
                disk = FaultyDisk(dies_at, die_at_once, late=bool(dies_at % 2))
                disk.install(pytest.MonkeyPatch())

        self.forked = ForkedRemask(args, store, prepare=prepare)
        super().__init__(self.forked, store)
        self.dies_at = dies_at
        self.codes = {0}
        """How it may end."""
        self.has_reader = True
        self.said = ""

    def lives(self) -> bool:
        return self.process.poll() is None

    def busy_worker(self) -> int:
        """A worker that is at work: it holds the lock of its job."""
        return self._worker(lambda files: any(".runs/" in file for file in files), self.workers())

    def idle_worker(self, worker: int) -> int:
        """That worker, when it has done its job."""
        return self._worker(lambda files: not any(".runs/" in file for file in files), [worker])

    def _worker(self, is_so: Callable[[list[str]], bool], workers: Sequence[int]) -> int:
        deadline = time.monotonic() + _SECONDS_FOR_A_WORKER
        while time.monotonic() < deadline:
            for worker in workers:
                if (files := _open_files(worker)) and is_so(files):
                    return worker
            time.sleep(0.01)
        raise RunEnded("no worker is like that")

    def fault(self) -> str | None:
        """What is wrong with how it has ended."""
        code = self.process.returncode
        broken = "Traceback" in self.said or "bug in remask" in self.said
        said_why = not self.has_reader or any(reason in self.said for reason in _REASONS)
        if not broken and (code in self.codes or (code == 1 and said_why)):
            return None
        return f"unexplained: exit code {code}: {self.said[-600:]}"


def _open_files(pid: int) -> list[str]:
    """What a process has open; nothing if it has ended."""
    with suppress(OSError):
        return [os.path.realpath(file) for file in Path(f"/proc/{pid}/fd").iterdir()]
    return []
