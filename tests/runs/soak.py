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
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tests.runs.soak_round import KILLS, Round


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
