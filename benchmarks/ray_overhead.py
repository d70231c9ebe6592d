"""Measure what a Ray cluster on this machine costs over worker processes.

Run with ``python benchmarks/ray_overhead.py [EXPERIMENT] [TRIALS]`` on a quiet machine; it needs
Split-MNIST and Ray. The cluster is up before the clock starts. Both train the same trials of an
experiment of the paper, `main` by default, two stacks at once, in turns.
"""

import statistics
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import remask

ROUNDS = 3


def seconds(experiment: str, trials: int | None, **how: Any) -> float:
    """Wall time of a run with a store of its own."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        remask.reproduce(
            experiment, trials=trials, store=Path(folder) / "results.db", progress=False, **how
        )
        return time.perf_counter() - began


def main(experiment: str, trials: int | None) -> None:
    ray: Any = import_module("ray")
    ray.init(address="local", num_cpus=2, log_to_driver=False, logging_level="ERROR")
    workers, cluster = [], []
    for _ in range(ROUNDS):
        workers.append(seconds(experiment, trials, workers=2))
        cluster.append(seconds(experiment, trials, on="ray"))
        print(f"workers {workers[-1]:.1f} s, Ray {cluster[-1]:.1f} s", flush=True)
    ratio = statistics.median(cluster) / statistics.median(workers)
    print(f"Ray takes {100 * (ratio - 1):+.1f} %")
    ray.shutdown()


if __name__ == "__main__":
    experiment = sys.argv[1] if len(sys.argv) > 1 else "main"
    main(experiment, int(sys.argv[2]) if len(sys.argv) > 2 else None)
