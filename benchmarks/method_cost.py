"""Measure what a step of every method costs, in steps of SGD.

Run with ``python benchmarks/method_cost.py``. One process and one thread; CPU time; the methods
take turns, medians. Ten stacked trials of the MNIST network on random images, batches of 10, replay
of 10, a buffer of 200 that is full; the third task, with what a method does before and after it (a
warm-up, a Fisher matrix, herding, ...). All run in torch, also those that the kernel can run.

``--only derpp,er_ema --published 500`` compares some of the methods with the settings that they
have by default on Split-MNIST at that buffer.
"""

import argparse
import os
from functools import partial

import torch
from speed import random_benchmark, trial_configs
from timing import cpu_seconds, in_turns

from remask import Benchmark, TrialConfig, TrialStack, settings
from remask.config import COMMON_WEIGHTS
from remask.machine import keep_freed_memory
from remask.methods import METHODS

TRIALS = 10


def configs_of(name: str, buffer: int | None) -> list[TrialConfig]:
    """Trials with the same batches and buffer for all methods, or with published settings."""
    kind = METHODS[name]
    if buffer is not None:
        own = [
            settings("split-mnist", name, buffer if kind.uses_buffer() else None, seed=seed)
            for seed in range(TRIALS)
        ]
        return [config.model_copy(update={"benchmark": "random"}) for config in own]
    weights = {n: v for n, v in kind.weights.items() if n not in COMMON_WEIGHTS}
    return trial_configs(
        TRIALS,
        method=name,
        buffer=200 if kind.uses_buffer() else 0,
        replay_batch=10 if kind.uses_replay_batch() else 0,
        weights=weights,
    )


def cost(name: str, benchmark: Benchmark, buffer: int | None = None) -> float:
    """Milliseconds of CPU time per step of all trials."""
    os.environ["REMASK_ENGINE"] = "torch"
    stack = TrialStack(configs_of(name, buffer), benchmark)
    *earlier, measured = stack.tasks[:3]
    for task in earlier:
        stack.learn(task)
    before = stack.steps_done
    seconds = cpu_seconds(partial(stack.learn, measured))
    return 1000 * seconds / (stack.steps_done - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(METHODS), help="methods, comma-separated")
    parser.add_argument("--published", type=int, metavar="BUFFER")
    arguments = parser.parse_args()
    names = list(dict.fromkeys(["sgd", *arguments.only.split(",")]))
    if unknown := [name for name in names if name not in METHODS]:
        parser.error(f"there is no method {unknown[0]!r}; there are {', '.join(METHODS)}")
    torch.set_num_threads(1)
    keep_freed_memory()  # as worker processes do
    benchmark = random_benchmark(1, 28, 28, per_class=300)
    runs = {name: partial(cost, name, benchmark, arguments.published) for name in names}
    steps = in_turns(runs, arguments.rounds)
    print(f"{'method':16} {'ms per step':>11} {'of SGD':>8}")
    for name in sorted(names, key=steps.__getitem__):
        print(f"{name:16} {steps[name]:11.2f} {steps[name] / steps['sgd']:8.2f}")


if __name__ == "__main__":
    main()
