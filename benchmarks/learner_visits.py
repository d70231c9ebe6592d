"""A learner that learns Split-MNIST as five visits in five processes, beside `remask run`.

Run with `python benchmarks/learner_visits.py [--memory 500] [--seeds 10] [--method er_ema]`. All
have the same settings and as large a memory. The learner holds out a tenth of its memory, and up to
a hundred samples of each class per visit, to measure on.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import remask
from remask import Learner, load_benchmark


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--benchmark", default="split-mnist")
    parser.add_argument("--memory", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--method", default="er_ema")
    parser.add_argument("--mask", default="auto")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        visits, runs = [], {}
        for seed in range(arguments.seeds):
            path = Path(folder) / str(seed)
            for task in range(5):
                settings = (arguments.benchmark, arguments.memory, arguments.method, arguments.mask)
                command = [sys.executable, __file__, "visit", path, task, seed, *settings]
                subprocess.run(list(map(str, command)), check=True)
            benchmark = load_benchmark(arguments.benchmark)
            found = Learner.open(path).evaluate(benchmark.test_inputs, benchmark.test_labels)
            visits.append(statistics.mean(found.per_class.values()))
        for memory in ("reservoir", "balanced"):
            results = remask.run(
                arguments.benchmark,
                arguments.method,
                mask=arguments.mask,
                buffer=arguments.memory,
                memory=memory,
                trials=arguments.seeds,
                workers=1,
                store=Path(folder) / "results.db",
            )
            runs[memory] = results.cells()[0].spreads["class_il_A_T"]
    print(f"{arguments.benchmark}, {arguments.method}, m = {arguments.mask}")
    print(f"memory {arguments.memory}, seeds: {arguments.seeds}, Class-IL A_T")
    print(f"five visits, five processes: {_spread(visits)}")
    for memory, spread in runs.items():
        print(f"remask run --memory {memory}: {spread}")


def visit(path: str, task: str, seed: str, name: str, memory: str, method: str, mask: str) -> None:
    benchmark = load_benchmark(name)
    rows = benchmark.train_indices(int(task))
    if task == "0":
        learner = Learner.create(path, memory=int(memory), method=method, mask=mask, seed=int(seed))
    else:
        learner = Learner.open(path)
    learner.learn(benchmark.train_inputs[rows], benchmark.train_labels[rows], name=task)


def _spread(values: list[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):.2f} ±{deviation:.2f}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["visit"]:
        visit(*sys.argv[2:])
    else:
        main()
