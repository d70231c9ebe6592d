"""Calling the command line from tests, in this process or in one of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from remask.cli.app import main
from remask.store import Store, TrialRecord

QUICK = ("--benchmark", "split-digits", "--epochs", "1", "--trials", "2")
"""A run of two small trials: about half a second."""


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return " ".join((self.out + self.err).split())


class CommandLine:
    """`remask ARGS` in this process, with a store of the test's own."""

    def __init__(
        self, store: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        self.store = store
        self._monkeypatch = monkeypatch
        self._capfd = capfd
        monkeypatch.setenv("REMASK_STORE", str(store))

    def __call__(self, *args: str) -> Answer:
        self._capfd.readouterr()
        self._monkeypatch.setattr(sys, "argv", ["remask", *args])
        code = 0
        try:
            main(alone=False)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        out, err = self._capfd.readouterr()
        return Answer(code, out, err)

    def succeed(self, *args: str) -> Answer:
        """Run a command that must exit with 0."""
        answer = self(*args)
        assert answer.code == 0, answer
        return answer

    def refusal(self, *args: str) -> str:
        """Run a command that must exit with 1 and a message; return the message."""
        answer = self(*args)
        assert answer.code == 1, answer
        assert "Traceback" not in answer.text
        assert "bug in remask" not in answer.text
        return answer.text

    def add(self, *records: TrialRecord) -> None:
        """Add trials to the store, which is created."""
        with Store(self.store) as store:
            store.add_all(records)

    def records(self) -> list[TrialRecord]:
        with Store(self.store, create=False) as store:
            return list(store.records())


def start(*args: str, store: Path) -> subprocess.Popen[str]:
    """`remask ARGS` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "remask", *args],
        env={**os.environ, "REMASK_STORE": str(store), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_process(
    *command: str | Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run a process that must exit with 0."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done


@contextmanager
def held_by_another(script: str, *args: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a process that prints `held`, and kill it at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *args], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()
