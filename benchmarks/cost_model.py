"""Compare what trials cost by the model with what they take, method by method.

Run with ``python benchmarks/cost_model.py [METHOD,...]``; it needs Split-MNIST. Ten stacked trials,
published settings, one thread, CPU time. Rates and method take turns, twice, and the shorter
time of each counts: other work on the machine only makes them longer.
"""

import statistics
import sys
import time

from remask import TrialStack, load_benchmark
from remask.experiments import RunOptions
from remask.experiments.plans import measured_rates, seconds_of
from remask.experiments.reproduction import configs_of, wanted_cells

TRIALS, ROUNDS = 10, 2


def main(only: list[str]) -> None:
    options = RunOptions()
    ratios = []
    seen = set()
    print(f"{'method':10} {'batch':>5} {'replay':>6} {'buffer':>6}  measured   model  ratio")
    for cell in wanted_cells("all", "split-mnist", {}):
        configs = configs_of(cell, TRIALS)
        first = configs[0]
        key = (first.method, first.batch, first.replay_batch)
        if key in seen or (only and first.method not in only):
            continue
        seen.add(key)
        models, times = [], []
        for _ in range(ROUNDS):
            rates = measured_rates(first, TRIALS, options, statistics.median)
            models.append(seconds_of(first, rates))
            began = time.process_time()
            TrialStack(configs, load_benchmark(first.benchmark)).finish()
            times.append(time.process_time() - began)
        model, measured = min(models), min(times)
        ratios.append(model / measured)
        print(
            f"{first.method:10} {first.batch:5} {first.replay_batch:6} {first.buffer:6} "
            f"{measured:7.1f} s {model:5.1f} s  {ratios[-1]:5.2f}",
            flush=True,
        )
    within = sum(0.8 <= ratio <= 1.2 for ratio in ratios)
    print(f"within 20 %: {within} of {len(ratios)}; median {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main(sys.argv[1].split(",") if len(sys.argv) > 1 else [])
