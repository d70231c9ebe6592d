"""What a second worker process is worth, start-up included: 10 and 40 trials with one and with two.

DER++ on Split-MNIST, as a user runs it, from the command to its table; wall time. Run it on a quiet
machine with two cores: `python benchmarks/workers.py`; the medians of three rounds take about seven
minutes.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

_COMMAND = (
    sys.executable, "-m", "remask", "run", "--benchmark", "split-mnist", "--method", "derpp",
    "--buffer", "200", "--replay-batch", "10",
)  # fmt: skip


def seconds(trials: int, workers: int) -> float:
    """How long the command takes with an empty store."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        run = subprocess.run(
            [*_COMMAND, "--trials", str(trials), "--workers", str(workers)],
            env={**os.environ, "REMASK_STORE": str(Path(folder) / "results.db")},
            capture_output=True,
            text=True,
        )
        taken = time.perf_counter() - began
    if run.returncode:
        raise SystemExit(f"{' '.join(run.args)} failed:\n{run.stderr}")
    return taken


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args(arguments).rounds
    for trials in (10, 40):
        times: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(rounds):
            for workers, measured in times.items():
                measured.append(seconds(trials, workers))
        one, two = (statistics.median(measured) for measured in times.values())
        print(
            f"{trials} trials: {one:.1f} s with one worker, {two:.1f} s with two, "
            f"{one / two:.2f} times faster",
            flush=True,
        )


if __name__ == "__main__":
    main()
