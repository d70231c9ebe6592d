"""What `mask="auto"` costs a learner against the best fixed mask known afterwards.

Run with `python benchmarks/learner_auto.py [--benchmark split-digits] [--memory 200,500,2000]
[--seeds 10]`. Each learner learns the tasks of the benchmark as visits, with default settings, and
is measured on the test set: the mean over classes. Fixed masks fade as `er_ema`'s usually does.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from remask import Benchmark, Learner, load_benchmark

FIXED = ("none", "0", "-1", "-inf")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--benchmark", default="split-digits")
    parser.add_argument("--memory", default="200,500,2000")
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    benchmark = load_benchmark(arguments.benchmark)
    print(f"{arguments.benchmark}, seeds: {arguments.seeds}, accuracy over all classes")
    for memory in map(int, arguments.memory.split(",")):
        found = {
            mask: [accuracy(benchmark, memory, mask, seed) for seed in range(arguments.seeds)]
            for mask in ("auto", *FIXED)
        }
        best = max(FIXED, key=lambda mask: statistics.mean(found[mask]))
        behind = statistics.mean(found["auto"]) - statistics.mean(found[best])
        shown = ", ".join(f"{mask} {_spread(values)}" for mask, values in found.items())
        print(f"memory {memory}: {shown}; auto minus {best}: {behind:+.2f}", flush=True)


def accuracy(benchmark: Benchmark, memory: int, mask: str, seed: int) -> float:
    """What a learner gets right in the end, after a visit per task."""
    given = None if mask == "none" else "auto" if mask == "auto" else float(mask)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner"
        learner = Learner.create(path, memory=memory, mask=given, seed=seed)
        for task in range(benchmark.num_tasks):
            rows = benchmark.train_indices(task)
            samples = benchmark.train_inputs[rows], benchmark.train_labels[rows]
            learner.learn(*samples, name=str(task))
        seen = learner.evaluate(benchmark.test_inputs, benchmark.test_labels)
    return statistics.mean(seen.per_class.values())


def _spread(values: Sequence[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):.2f} ±{deviation:.2f}"


if __name__ == "__main__":
    main()
