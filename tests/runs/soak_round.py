"""One round of the soak: a store, processes that want trials of it, and what happens to them."""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from remask.methods import METHODS
from remask.store import StoreError
from tests.runs.disturbances import RunEnded
from tests.runs.soak_trials import Expected, Request
from tests.runs.soaked import Soaked

_PATIENCE = 240.0
_PROCESSES = 6
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
KILLS = (
    "run killed",
    "run killed at a file operation",
    "run killed without its workers",
    "busy worker killed",
    "idle worker killed",
)
_FIRST_OPERATIONS = 60
"""Among which a run that dies at an operation on files chooses."""


class Round:
    """Ask for trials, disturb, begin again, and see whether everything is there in the end."""

    def __init__(
        self,
        number: int,
        *,
        seed: int,
        folder: Path,
        tally: Counter[str],
        deadline: float,
        workers: float,
    ) -> None:
        self.chance = random.Random(f"{seed} {number}")
        self.tally = tally
        self._deadline = deadline
        self._share_with_workers = workers
        self.faults: list[str] = []
        self._log = folder / "doubled.txt"
        self._place = folder / "place"
        self._store = self._place / "results.db"
        names = list(METHODS)
        self._methods = sorted({names[number % len(names)], self.chance.choice(names)})
        self._requests: list[Request] = []
        self.expected = Expected({})

    def run(self) -> None:
        """The whole round."""
        self._place.mkdir(parents=True)
        try:
            for session in range(self.chance.randint(3, 6)):
                if session and self._is_late():
                    break
                self._sit()
                self.faults += self.expected.faults(self._store)
            self._finish()
            self.faults += self.expected.faults_at_the_end(self._store)
        except StoreError as error:
            self.faults.append(f"changed: {error}")
        if self._log.exists():
            self.faults += self._log.read_text().splitlines()

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def _start(
        self,
        args: Sequence[str],
        *,
        workers: int = 1,
        dies_at: int | None = None,
    ) -> Soaked:
        how = ("--workers", str(workers), "--checkpoint-seconds", "0.1")
        args = [*args, *how]
        return Soaked(args, self._store, self._log, dies_at=dies_at)

    def _some_requests(self, number: int) -> list[Request]:
        """Some that have not been answered, new ones if need be."""
        requests = [request for request in self._requests if not self._is_answered(request)]
        while len(requests) < number:
            request = Request.some(self._methods, self.chance)
            requests.append(request)
            self._requests.append(request)
            self.expected.wanted |= {config.hash: config for config in request.configs()}
        return self.chance.sample(requests, number)

    def _is_answered(self, request: Request) -> bool:
        return {config.hash for config in request.configs()} <= self.expected.known

    def _start_request(self, request: Request) -> Soaked:
        args = [*request.command(), "--stack", str(self.chance.randint(1, 3))]
        dies = self.chance.random() < 0.2
        if self.chance.random() < 0.1:
            args = ["resume"]
        return self._start(
            args,
            workers=2 if self.chance.random() < self._share_with_workers else 1,
            dies_at=self.chance.randrange(_FIRST_OPERATIONS) if dies else None,
        )

    def _sit(self) -> None:
        """Start what is asked for, disturb it, begin again what has ended, and see all end."""
        processes = self.chance.choice([1, 2, 2, 3, 4, 6])
        runs = [self._start_request(request) for request in self._some_requests(processes)]
        for _ in range(self.chance.randint(2, 4 * processes)):
            if self._is_late():
                break
            time.sleep(self.chance.uniform(0.02, 0.4))
            for ended in [run for run in runs if not run.lives()]:
                runs.remove(ended)
                self._see_them_end([ended])
                runs += [self._start_request(request) for request in self._some_requests(1)]
            self._disturb(self.chance.choice(runs))
        for run in runs:
            if self.chance.random() < 0.85:
                self._kill(run)
        self._see_them_end(runs)

    def _disturb(self, run: Soaked) -> None:
        """Do something to a run; if it is too late for that, nothing."""
        kinds = [self._kill, self._signal, self._pause, self._leave]
        weights = [14, 3, 1, 1]
        if run.workers():
            kinds += [self._kill_parent, self._kill_worker, self._kill_idle_worker]
            weights += [6, 20, 6]
        (kind,) = self.chance.choices(kinds, weights)
        with suppress(RunEnded, ProcessLookupError):
            kind(run)

    def _kill(self, run: Soaked) -> None:
        if run.lives():
            run.codes.add(-signal.SIGKILL)
            run.kill_everything()
            self.tally["run killed"] += 1

    def _kill_parent(self, run: Soaked) -> None:
        run.wake_workers()  # or they would hold their locks for ever
        if run.lives():
            run.codes.add(-signal.SIGKILL)
            run.process.kill()
            self.tally["run killed without its workers"] += 1

    def _kill_worker(self, run: Soaked) -> None:
        os.kill(run.busy_worker(), signal.SIGKILL)
        self.tally["busy worker killed"] += 1

    def _kill_idle_worker(self, run: Soaked) -> None:
        """Kill one that has done its job while its parent, which is paused, has no other for it."""
        worker = run.busy_worker()
        run.send(signal.SIGSTOP)
        try:
            os.kill(run.idle_worker(worker), signal.SIGKILL)
            self.tally["idle worker killed"] += 1
        finally:
            run.send(signal.SIGCONT)

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

    def _leave(self, run: Soaked) -> None:
        """Read no more of what it says."""
        run.has_reader = False
        run.codes |= {128 + signal.SIGPIPE}
        run.forked.leave()
        self.tally["output without a reader"] += 1

    def _see_them_end(self, runs: Sequence[Soaked]) -> None:
        for run in runs:
            run.wake_workers()
        for run in runs:
            try:
                run.said = " ".join(run.output(_PATIENCE).split())
            except subprocess.TimeoutExpired:
                run.kill_everything()
                self.faults.append(f"unexplained: a run did not end within {_PATIENCE:g} s")
            died = run.process.returncode == -signal.SIGKILL and -signal.SIGKILL not in run.codes
            if died and run.dies_at is not None:
                run.codes.add(-signal.SIGKILL)
                self.tally["run killed at a file operation"] += 1
            if fault := run.fault():
                self.faults.append(fault)

    def _finish(self) -> None:
        """Ask for everything once more, and disturb nobody."""
        requests = list(dict.fromkeys(self._requests))
        for first in range(0, len(requests), _PROCESSES):
            some = requests[first : first + _PROCESSES]
            runs = [self._start([*a.command(), "--stack", "2"]) for a in some]
            self._see_them_end(runs)
            for request, run in zip(some, runs, strict=True):
                if run.process.returncode:  # another process had the same trials
                    self._request_once([*request.command(), "--stack", "2", "--workers", "1"])

    def _request_once(self, args: Sequence[str]) -> None:
        run = Soaked(args, self._store, self._log)
        self._see_them_end([run])
        if run.process.returncode:
            self.faults.append(f"unexplained: {args}: {run.said[-600:]}")
