"""Measure what a step of every method costs, in steps of SGD.

Run with ``python benchmarks/method_cost.py``. One process and one thread; CPU time; the methods
take turns, medians. Ten stacked trials of the MNIST network on random images, batches of 10, replay
of 10, a buffer of 200 that is full; steps of the third task, and, apart, what a method does before
and after that task (a warm-up, a Fisher matrix, herding, ...), spread over as many steps.

``--only derpp,er_ema --published 500`` compares some of the methods with the settings that they
have by default on Split-MNIST at that buffer.
"""

import argparse
import statistics
import time

import torch

from remask import Benchmark, TrialConfig, TrialStack, settings
from remask.config import COMMON_WEIGHTS
from remask.machine import keep_freed_memory
from remask.methods import METHODS

TRIALS, PER_CLASS, BATCH = 10, 300, 10


def random_digits() -> Benchmark:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(10).repeat(PER_CLASS)
    inputs = torch.randint(256, (len(labels), 1, 28, 28), dtype=torch.uint8, generator=generator)
    tasks = tuple((2 * task, 2 * task + 1) for task in range(5))
    return Benchmark("random", inputs, labels, inputs[:50], labels[:50], tasks, scale=1 / 255)


def alike(name: str, benchmark: Benchmark) -> list[TrialConfig]:
    """Trials with the batches and the buffer that all methods have here."""
    kind = METHODS[name]
    weights = {n: v for n, v in kind.weights.items() if n not in COMMON_WEIGHTS}
    return [
        TrialConfig(
            benchmark=benchmark.name,
            method=name,
            buffer=200 if kind.uses_buffer() else 0,
            seed=seed,
            lr=0.03,
            batch=BATCH,
            replay_batch=BATCH if kind.uses_replay_batch() else 0,
            epochs=1,
            alpha=0.2,
            beta=0.5,
            weights=weights,
        )
        for seed in range(TRIALS)
    ]


def published(name: str, benchmark: Benchmark, buffer: int) -> list[TrialConfig]:
    """Trials with the settings of Split-MNIST."""
    kept = buffer if METHODS[name].uses_buffer() else None
    return [
        settings("split-mnist", name, kept, seed=seed).model_copy(
            update={"benchmark": benchmark.name}
        )
        for seed in range(TRIALS)
    ]


def cost(name: str, benchmark: Benchmark, buffer: int | None) -> tuple[float, float]:
    """Milliseconds of CPU time: of a step of all trials, and of a task's ends, per step."""
    kind = METHODS[name]
    configs = alike(name, benchmark) if buffer is None else published(name, benchmark, buffer)
    stack = TrialStack(configs, benchmark)
    steps = 0
    measured = 0 if kind.learns == "union" else 2
    began = last = first = 0.0
    for position in stack.run():
        now = time.process_time()
        if position.task == measured and position.step == 1:
            began, first = now, now - last
        if position.task == measured and position.step > 1:
            steps, in_steps = position.step - 1, now - began
        if position.task > measured:
            a_step = in_steps / steps
            around = max(first - a_step, 0) + now - last
            return 1000 * a_step, 1000 * around / steps
        last = now
    raise AssertionError("a run ends after its last task")


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
    benchmark = random_digits()
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(arguments.rounds):
        for name in names:
            measured[name].append(cost(name, benchmark, arguments.published))
    steps = {name: statistics.median(step for step, _ in costs) for name, costs in measured.items()}
    ends = {name: statistics.median(end for _, end in costs) for name, costs in measured.items()}
    print(f"{'method':16} {'ms per step':>11} {'of SGD':>8} {'ms per step for ends':>21}")
    for name in sorted(names, key=steps.__getitem__):
        print(f"{name:16} {steps[name]:11.2f} {steps[name] / steps['sgd']:8.2f} {ends[name]:21.2f}")


if __name__ == "__main__":
    main()
