"""A soak: rounds of runs to which everything happens at once that can, for as long as you like.

    python -m tests.runs.soak --minutes 30 --kills 1000 --seed 0

Each round has a store of its own. Up to six processes want overlapping trials of it, in stacks of
different sizes and orders, with and without workers. They are killed, paused, stopped, and left
without a reader; some die at a chosen operation on files. They are begun again, until all trials
are there. Every trial must then be stored once, with the bits of an undisturbed run, none computed
twice, nothing left beside the store.

The processes are forked from this one, so that an import of torch is not the price of every kill.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tests.runs.soak_round import KILLS, Round

_FAULTS = ("lost", "doubled", "changed", "left behind", "unexplained")


@dataclass
class Soak:
    """What has happened so far."""

    seed: int
    workers: float
    rounds: int = 0
    trials: int = 0
    tally: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return sum(self.tally[kind] for kind in KILLS)

    def round(self, number: int, deadline: float) -> None:
        """One round, in a folder that goes afterwards; nothing is disturbed after the deadline."""
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            round_ = Round(
                number,
                seed=self.seed,
                folder=Path(folder),
                tally=self.tally,
                deadline=deadline,
                workers=self.workers,
            )
            round_.run()
        self.rounds += 1
        self.trials += len(round_.expected.wanted)
        self.faults += [f"seed {self.seed}, round {number}: {fault}" for fault in round_.faults]
        for fault in round_.faults:
            print(f"seed {self.seed}, round {number}: {fault}", flush=True)

    def summary(self) -> str:
        """Everything in one line."""
        others = ", ".join(
            f"{kind} {number}" for kind, number in sorted(self.tally.items()) if kind not in KILLS
        )
        kills = ", ".join(f"{kind} {self.tally[kind]}" for kind in KILLS)
        found = ", ".join(
            f"{kind} {sum(f': {kind}' in fault for fault in self.faults)}" for kind in _FAULTS
        )
        return (
            f"seed {self.seed}: rounds {self.rounds}, trials {self.trials}, kills {self.kills} "
            f"({kills}); {others}; {found}"
        )


def soak(
    *,
    seed: int,
    minutes: float,
    kills: int | None = None,
    rounds: int | None = None,
    first: int = 0,
    workers: float = 0.25,
) -> Soak:
    """Rounds until that time has passed, or there were so many kills or rounds; at least one."""
    torch.set_num_threads(1)
    done = Soak(seed, workers)
    began = time.monotonic()
    while True:
        done.round(first + done.rounds, began + minutes * 60)
        passed = time.monotonic() - began
        print(f"{passed:6.0f} s  {done.summary()}", flush=True)
        enough = kills is not None and done.kills >= kills
        if enough or done.rounds == rounds or passed >= minutes * 60:
            return done


def main() -> int:
    """Soak; exits with 1 if anything was lost, doubled, changed or left, or ended unexplained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kills", type=int, help="end after so many")
    parser.add_argument("--rounds", type=int, help="end after so many")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--workers", type=float, default=0.25, help="share of runs that have some")
    parser.add_argument("--first-round", type=int, default=0, help="where to begin, to repeat one")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    done = soak(
        seed=chosen.seed,
        minutes=chosen.minutes,
        kills=chosen.kills,
        rounds=chosen.rounds,
        first=chosen.first_round,
        workers=chosen.workers,
    )
    print(done.summary())
    return int(bool(done.faults))


if __name__ == "__main__":
    sys.exit(main())
