"""A soak: rounds of runs to which everything happens at once that can, for as long as you like.

    python -m tests.runs.soak --minutes 30 --kills 1000 --seed 0

Each round has a store of its own. Up to six processes want overlapping trials of it, in stacks of
different sizes and orders, with and without workers. They are killed, paused and stopped; some die
at a chosen operation on files. They are started again until all trials are there. Every trial must
then be stored once, with the bits of an undisturbed run, none computed twice, nothing left beside
the store.

The processes are forked from this one, so that an import of torch is not the price of every kill.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from remask.methods import METHODS
from remask.store import StoreError
from tests.runs.disturbances import AnyRun
from tests.runs.faults import FaultyDisk, die_at_once
from tests.runs.forked import ForkedRemask
from tests.runs.soak_trials import Expected, Request, watching

_PATIENCE = 240.0
_PROCESSES = 6
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_WITH_WORKERS = 0.25
"""The share of runs that have worker processes."""
_FIRST_OPERATIONS = 60
"""Among which a run that dies at an operation on files chooses."""
_REASONS = (
    "is held by",
    "another process has just worked on the run",
    "there is no unfinished run",
    "tries; run the same command",
)
"""What a run that ends with an error may say, after what is done to it here."""
KILLS = (
    "run killed",
    "run killed at a file operation",
    "run killed without its workers",
    "worker killed",
)


class Soaked(AnyRun):
    """A run of the soak, and how it may end."""

    def __init__(
        self, args: Sequence[str], store: Path, folder: Path, *, dies_at: int | None = None
    ) -> None:
        """With `dies_at`, it is killed at that operation on files, and so are its workers."""

        def prepare() -> None:
            watching(folder / "doubled.txt")
            if dies_at is not None:
                disk = FaultyDisk(dies_at, die_at_once, late=bool(dies_at % 2))
                disk.install(pytest.MonkeyPatch())

        log = folder / f"{time.monotonic_ns()}.log"
        super().__init__(ForkedRemask(args, store, log, prepare), store)
        self.dies_at = dies_at
        self.codes = {0}
        """The exit codes that what was done to it explains."""

    def lives(self) -> bool:
        return self.process.poll() is None


class Round:
    """Ask for trials, disturb, start again, and check that everything is there in the end."""

    def __init__(
        self, number: int, seed: int, folder: Path, tally: Counter[str], deadline: float
    ) -> None:
        self.chance = random.Random(f"{seed} {number}")
        self.tally = tally
        self.faults: list[str] = []
        self.expected = Expected({})
        self._deadline = deadline
        self._folder = folder
        self._store = folder / "place" / "results.db"
        names = [name for name, method in METHODS.items() if method.trains_net]
        self._methods = sorted({names[number % len(names)], self.chance.choice(names)})
        self._requests: list[Request] = []

    def run(self) -> None:
        """The whole round."""
        self._store.parent.mkdir(parents=True)
        try:
            for session in range(self.chance.randint(3, 6)):
                if session and self._is_late():
                    break
                self._disturb_some()
                self.faults += self.expected.faults(self._store)
            self._finish()
            self.faults += self.expected.faults_at_the_end(self._store)
        except StoreError as error:
            self.faults.append(f"changed: {error}")
        if (doubled := self._folder / "doubled.txt").exists():
            self.faults += doubled.read_text().splitlines()

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def _start(self, args: Sequence[str], workers: int = 1, dies_at: int | None = None) -> Soaked:
        args = [*args, "--workers", str(workers), "--checkpoint-seconds", "0.1"]
        return Soaked(args, self._store, self._folder, dies_at=dies_at)

    def _start_some(self, number: int) -> list[Soaked]:
        """Start runs of requests that have not been answered, of new ones if need be."""
        known = self.expected.known
        requests = [r for r in self._requests if not {c.hash for c in r.configs()} <= known]
        while len(requests) < number:
            request = Request.some(self._methods, self.chance)
            requests.append(request)
            self._requests.append(request)
            self.expected.wanted |= {config.hash: config for config in request.configs()}
        runs = []
        for request in self.chance.sample(requests, number):
            resumed = self.chance.random() < 0.1
            command = [*request.command(), "--stack", str(self.chance.randint(1, 3))]
            workers = 2 if self.chance.random() < _WITH_WORKERS else 1
            dies = self.chance.random() < 0.2
            dies_at = self.chance.randrange(_FIRST_OPERATIONS) if dies else None
            runs.append(self._start(["resume"] if resumed else command, workers, dies_at))
        return runs

    def _disturb_some(self) -> None:
        """Start some runs, disturb them, replace those that have ended, and see all end."""
        processes = self.chance.choice([1, 2, 2, 3, 4, _PROCESSES])
        runs = self._start_some(processes)
        for _ in range(self.chance.randint(2, 4 * processes)):
            if self._is_late():
                break
            time.sleep(self.chance.uniform(0.02, 0.4))
            for ended in [run for run in runs if not run.lives()]:
                runs.remove(ended)
                self._see_them_end([ended])
                runs += self._start_some(1)
            self._disturb(self.chance.choice(runs))
        for run in runs:
            if self.chance.random() < 0.85:
                self._kill(run)
        self._see_them_end(runs)

    def _disturb(self, run: Soaked) -> None:
        """Do something to a run; if it is too late for that, nothing."""
        kinds = [self._kill, self._signal, self._pause]
        weights = [14, 3, 1]
        if run.workers():
            kinds += [self._kill_parent, self._kill_worker]
            weights += [6, 26]
        (kind,) = self.chance.choices(kinds, weights)
        with suppress(ProcessLookupError):
            kind(run)

    def _kill(self, run: Soaked) -> None:
        if run.lives():
            run.codes.add(-signal.SIGKILL)
            run.kill_everything()
            self.tally["run killed"] += 1

    def _kill_parent(self, run: Soaked) -> None:
        run.wake_workers()  # otherwise they would keep their locks
        if run.lives():
            run.codes.add(-signal.SIGKILL)
            run.process.kill()
            self.tally["run killed without its workers"] += 1

    def _kill_worker(self, run: Soaked) -> None:
        if workers := run.workers():
            os.kill(self.chance.choice(workers), signal.SIGKILL)
            self.tally["worker killed"] += 1

    def _signal(self, run: Soaked) -> None:
        number = self.chance.choice(_SIGNALS)
        run.codes |= {128 + number, -number}
        run.send(number)
        self.tally[number.name] += 1

    def _pause(self, run: Soaked) -> None:
        """Stop it or its workers for a moment, and sometimes until the others have ended."""
        if run.workers() and self.chance.random() < 0.5:
            run.pause_workers()
            self.tally["workers paused"] += 1
            time.sleep(self.chance.uniform(0.0, 0.5))
            if self.chance.random() < 0.5:
                run.wake_workers()
        else:
            run.send(signal.SIGSTOP)
            self.tally["run paused"] += 1
            time.sleep(self.chance.uniform(0.0, 1.0))
            run.send(signal.SIGCONT)

    def _see_them_end(self, runs: Sequence[Soaked]) -> None:
        for run in runs:
            run.wake_workers()
        for run in runs:
            said = ""
            try:
                said = " ".join(run.output(_PATIENCE).split())
            except subprocess.TimeoutExpired:
                run.kill_everything()
                self.faults.append(f"unexplained: a run did not end within {_PATIENCE:g} s")
            code = run.process.returncode
            if code == -signal.SIGKILL and code not in run.codes and run.dies_at is not None:
                run.codes.add(code)
                self.tally["run killed at a file operation"] += 1
            broken = "Traceback" in said or "bug in remask" in said
            refused = code == 1 and any(reason in said for reason in _REASONS)
            if broken or not (code in run.codes or refused):
                self.faults.append(f"unexplained: exit code {code}: {said[-600:]}")

    def _finish(self) -> None:
        """Ask for everything once more, without a disturbance."""
        requests = list(dict.fromkeys(self._requests))
        for first in range(0, len(requests), _PROCESSES):
            some = requests[first : first + _PROCESSES]
            runs = [self._start([*request.command(), "--stack", "2"]) for request in some]
            self._see_them_end(runs)
            for request, run in zip(some, runs, strict=True):
                if run.process.returncode:  # another process had the same trials
                    again = self._start([*request.command(), "--stack", "2"])
                    self._see_them_end([again])
                    if again.process.returncode:
                        self.faults.append(f"unexplained: {request.command()} was refused again")


@dataclass
class Soak:
    """What has happened so far."""

    seed: int
    rounds: int = 0
    trials: int = 0
    tally: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return sum(self.tally[kind] for kind in KILLS)

    def summary(self) -> str:
        """Everything in one line."""
        counts = ", ".join(f"{kind} {number}" for kind, number in sorted(self.tally.items()))
        return (
            f"seed {self.seed}: rounds {self.rounds}, trials {self.trials}, kills {self.kills} "
            f"({counts}), faults {len(self.faults)}"
        )


def soak(*, seed: int, minutes: float, kills: int | None = None) -> Soak:
    """Rounds until that time has passed, or there were that many kills; at least one."""
    torch.set_num_threads(1)
    done = Soak(seed)
    began = time.monotonic()
    deadline = began + minutes * 60
    while True:
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            ran = Round(done.rounds, seed, Path(folder), done.tally, deadline)
            ran.run()
        for fault in ran.faults:
            done.faults.append(f"seed {seed}, round {done.rounds}: {fault}")
            print(done.faults[-1], flush=True)
        done.rounds += 1
        done.trials += len(ran.expected.wanted)
        print(f"{time.monotonic() - began:6.0f} s  {done.summary()}", flush=True)
        if time.monotonic() >= deadline or (kills is not None and done.kills >= kills):
            return done


def main() -> int:
    """Soak; exits with 1 if anything was lost, doubled, changed or left, or ended unexplained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kills", type=int, help="end after so many")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    done = soak(seed=chosen.seed, minutes=chosen.minutes, kills=chosen.kills)
    return int(bool(done.faults))


if __name__ == "__main__":
    sys.exit(main())
