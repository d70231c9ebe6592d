"""Measure how the cost of a DER++ step grows with trials, buffer, classes and tasks.

Run with ``python benchmarks/growth.py``; ``--only buffer,classes`` measures some. One process and
one thread; CPU time; the sizes of an axis take turns, medians. Random inputs, an MLP with two
hidden layers of 100, batches and draws of 10, a memory that is full.

The exponent is the slope of a least-squares line through log(cost) over log(size): 0 does not grow,
1 is in proportion. What a step costs whatever its size hides growth at small sizes, so the exponent
of the two largest sizes is printed as well.
"""

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial

import torch
from speed import trial_configs
from timing import cpu_seconds, in_turns, one_thread

from remask.data.benchmark import Benchmark
from remask.data.classes import split_classes
from remask.engine import Position, TrialStack
from remask.machine import keep_freed_memory

STEPS = 100
IMAGE, SMALL = (1, 28, 28), (1, 8, 8)


def random_stream(
    tasks: Sequence[Sequence[int]], samples: Sequence[int], shape: tuple[int, ...], tests: int = 1
) -> Benchmark:
    """Tasks with these numbers of train samples, and `tests` test samples of each class."""
    generator = torch.Generator().manual_seed(0)
    classes_of = [torch.tensor(classes) for classes in tasks]
    of_tasks = zip(classes_of, samples, strict=True)
    labels = torch.cat([classes[torch.arange(n) % len(classes)] for classes, n in of_tasks])
    inputs = torch.randint(256, (len(labels), *shape), dtype=torch.uint8, generator=generator)
    test_labels = torch.cat(classes_of).repeat(tests)
    test_inputs = torch.zeros(len(test_labels), *shape, dtype=torch.uint8)
    dealt = tuple(map(tuple, tasks))
    return Benchmark("random", inputs, labels, test_inputs, test_labels, dealt, scale=1 / 255)


def step(trials: int = 1, buffer: int = 200, classes: int = 10) -> float:
    """Milliseconds per step of a second task, with a full memory."""
    tasks = ((0, 1), (2, 3), tuple(range(4, classes)))
    shape = IMAGE if classes == 10 else SMALL
    benchmark = random_stream(tasks, (buffer, 10 * STEPS, classes), shape)
    stack = TrialStack(trial_configs(trials, buffer=buffer), benchmark)
    state = stack.state()
    state["memory/inputs"].random_(256)
    state["memory/labels"].random_(2)
    state["memory/logits"].normal_()
    stack.restore(state, Position(1))
    return 1000 * cpu_seconds(partial(stack.learn, stack.tasks[1])) / STEPS


def over_tasks(tasks: int, *, test: bool) -> float:
    """Milliseconds per step of 12,000 samples of 600 classes, or of all evaluations of the run."""
    benchmark = random_stream(split_classes(600, tasks), [12_000 // tasks] * tasks, SMALL, 5)
    stack = TrialStack(trial_configs(4), benchmark)
    learnt = tested = 0.0
    for task in stack.tasks:
        learnt += cpu_seconds(partial(stack.learn, task))
        tested += cpu_seconds(stack.evaluate)
    return 1000 * (tested if test else learnt / stack.total_steps)


AXES: dict[str, tuple[str, tuple[int, ...], Callable[[int], float]]] = {
    "trials": ("step of all trials", (1, 2, 5, 10, 20, 40), lambda n: step(trials=n)),
    "buffer": ("step", (200, 1_000, 5_000, 20_000, 50_000), lambda n: step(buffer=n)),
    "classes": ("step", (100, 1_000, 10_000, 100_000), lambda n: step(classes=n)),
    "tasks": ("step", (2, 5, 20, 60, 200, 600), partial(over_tasks, test=False)),
    "tests": ("all evaluations", (2, 5, 20, 60, 200, 600), partial(over_tasks, test=True)),
}
"""What costs, the sizes, and a measurement in milliseconds of CPU time."""


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log(cost) over log(size), by least squares."""
    return statistics.linear_regression([*map(math.log, sizes)], [*map(math.log, costs)]).slope


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(AXES), help="of these axes, comma-separated")
    options = parser.parse_args()
    keep_freed_memory()  # as worker processes do
    print("| cost of | over | sizes | ms of CPU time | exponent | of the last two |")
    print("| --- | --- | --- | --- | ---: | ---: |", flush=True)
    with one_thread():
        step()  # loads or compiles the kernel
        for name in options.only.split(","):
            what, sizes, measure = AXES[name]
            costs = [*in_turns({n: partial(measure, n) for n in sizes}, options.rounds).values()]
            shown = ", ".join(f"{size:,}" for size in sizes), ", ".join(f"{c:.3g}" for c in costs)
            every, last = exponent(sizes, costs), exponent(sizes[-2:], costs[-2:])
            print(
                f"| {what} | {name} | {shown[0]} | {shown[1]} | {every:.2f} | {last:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
