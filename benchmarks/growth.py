"""Measure how the cost of a DER++ step grows with trials, buffer, classes and tasks.

Run with ``python benchmarks/growth.py``; ``--only buffer,classes`` measures some. One process and
one thread; CPU time; the sizes of an axis take turns in blocks of steps, medians. Random inputs, an
MLP with two hidden layers of 100, batches and draws of 10, a memory that is full. What a step costs
over the number of tasks has the planning of each task in it.

The exponent is the slope of a least-squares line through log(cost) over log(size): 0 does not grow
at all, 1 is in proportion. What a step costs whatever its size hides growth at small sizes, so the
exponent of the two largest sizes is there as well.
"""

import argparse
import functools
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from bare_matmuls import matmul_steps
from contest import trial_configs
from timing import cpu_seconds, one_thread, take

import remask
from remask.data.benchmark import Benchmark
from remask.data.classes import split_classes
from remask.engine import Position, TrialStack
from remask.machine import keep_freed_memory

TRIALS = (1, 2, 5, 10, 20, 40)
BUFFERS = (200, 1_000, 5_000, 20_000, 50_000)
CLASSES = (10, 100, 1_000, 10_000, 100_000)
TASKS = (2, 5, 10, 20, 60, 200, 600)
TRIALS_PER_WORKER = (10, 20, 40, 80)
WARM_UP = 10
IMAGE, SMALL = (1, 28, 28), (1, 8, 8)


@dataclass(frozen=True)
class Growth:
    """What was measured along one axis."""

    of: str
    """What costs."""
    over: str
    """What grows."""
    sizes: Sequence[int]
    costs: Sequence[float]
    """In milliseconds of CPU time."""

    def line(self) -> str:
        """A row of the table."""
        sizes = ", ".join(f"{size:,}" for size in self.sizes)
        costs = ", ".join(f"{cost:.3g}" for cost in self.costs)
        every = exponent(self.sizes, self.costs)
        last = exponent(self.sizes[-2:], self.costs[-2:])
        return f"| {self.of} | {self.over} | {sizes} | {costs} | {every:.2f} | {last:.2f} |"


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log(cost) over log(size), by least squares."""
    return statistics.linear_regression(
        [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    ).slope


def steps_of(rounds: int, block: int) -> int:
    """How many steps `in_turns` takes of each run."""
    return WARM_UP + rounds * (1 + block)


def in_turns(runs: Mapping[int, Iterator[object]], rounds: int, block: int) -> list[float]:
    """Milliseconds per step of each run."""
    for steps in runs.values():
        take(steps, WARM_UP)
    seconds: dict[int, list[float]] = {size: [] for size in runs}
    for _ in range(rounds):
        for size, steps in runs.items():
            take(steps, 1)  # off the clock: the run before it has emptied the caches
            seconds[size].append(cpu_seconds(functools.partial(take, steps, block)))
    return [1e3 * statistics.median(values) / block for values in seconds.values()]


# ---- A step -------------------------------------------------------------------------------------


def random_stream(
    tasks: Sequence[Sequence[int]],
    samples: Sequence[int],
    shape: tuple[int, ...],
    tests_per_class: int = 1,
) -> Benchmark:
    """Tasks of so many train samples each."""
    generator = torch.Generator().manual_seed(0)
    classes_of = [torch.tensor(classes) for classes in tasks]
    of_tasks = zip(classes_of, samples, strict=True)
    labels = torch.cat([classes[torch.arange(n) % len(classes)] for classes, n in of_tasks])
    inputs = torch.randint(256, (len(labels), *shape), dtype=torch.uint8, generator=generator)
    test_labels = torch.cat(classes_of).repeat(tests_per_class)
    test_inputs = torch.zeros(len(test_labels), *shape, dtype=torch.uint8)
    dealt = tuple(map(tuple, tasks))
    return Benchmark("random", inputs, labels, test_inputs, test_labels, dealt, scale=1 / 255)


def stack_with_full_memory(
    steps: int,
    *,
    trials: int = 1,
    buffer: int = 200,
    classes: int = 10,
    rest: int = 0,
    shape: tuple[int, ...] = IMAGE,
) -> TrialStack:
    """A stack before a stream's second task; the first was as large as the memory, and filled it.

    A third task has all other classes, and `rest` samples.
    """
    tasks = ((0, 1), (2, 3), tuple(range(4, classes)))
    benchmark = random_stream(tasks, (buffer, 10 * steps, rest or classes), shape)
    configs = trial_configs(trials, benchmark="random", buffer=buffer)
    stack = TrialStack(configs, benchmark)
    state = stack.state()
    state["memory/inputs"].random_(256)
    state["memory/labels"].random_(2)
    state["memory/logits"].normal_()
    stack.restore(state, Position(1))
    return stack


def over_trials(rounds: int) -> list[Growth]:
    """Stacks of more and more trials."""
    steps = steps_of(rounds, 20)
    runs = {n: stack_with_full_memory(steps, trials=n).run() for n in TRIALS}
    return [Growth("step of all trials", "S", TRIALS, in_turns(runs, rounds, 20))]


def over_buffer(rounds: int) -> list[Growth]:
    """Larger and larger memories, of four trials."""
    steps = steps_of(rounds, 20)
    most = max(BUFFERS)
    runs = {
        buffer: stack_with_full_memory(steps, trials=4, buffer=buffer, rest=most - buffer).run()
        for buffer in BUFFERS
    }
    return [Growth("step", "buffer", BUFFERS, in_turns(runs, rounds, 20))]


def over_classes(rounds: int) -> list[Growth]:
    """Wider and wider heads, of one trial, and the matmuls of the same step."""
    block = 4
    steps = steps_of(rounds, block)
    runs = {k: stack_with_full_memory(steps, classes=k, shape=SMALL).run() for k in CLASSES}
    bare = {k: matmul_steps(1, 30, (math.prod(SMALL), 100, 100, k)) for k in CLASSES}
    return [
        Growth("step", "classes", CLASSES, in_turns(runs, rounds, block)),
        Growth("its matmuls", "classes", CLASSES, in_turns(bare, rounds, block)),
    ]


# ---- A run --------------------------------------------------------------------------------------


def over_tasks(rounds: int) -> list[Growth]:
    """The same 12,000 samples of 600 classes in more and more tasks, ends of tasks included.

    3,000 test samples: after each task those of all tasks so far are evaluated, so that the number
    of evaluated samples is in proportion to the number of tasks.
    """
    classes, samples = 600, 12_000
    training: dict[int, list[float]] = {tasks: [] for tasks in TASKS}
    testing: dict[int, list[float]] = {tasks: [] for tasks in TASKS}
    for _ in range(max(1, rounds // 5)):
        for tasks in TASKS:
            dealt, sizes = split_classes(classes, tasks), [samples // tasks] * tasks
            benchmark = random_stream(dealt, sizes, SMALL, tests_per_class=5)
            stack = TrialStack(trial_configs(4, benchmark="random"), benchmark)
            learnt = tested = 0.0
            for task in stack.tasks:
                learnt += cpu_seconds(functools.partial(stack.learn, task))
                tested += cpu_seconds(stack.evaluate)
            training[tasks].append(1e3 * learnt / stack.total_steps)
            testing[tasks].append(1e3 * tested)

    def medians(values: Mapping[int, list[float]]) -> list[float]:
        return [statistics.median(own) for own in values.values()]

    return [
        Growth("step", "tasks", TASKS, medians(training)),
        Growth("all evaluations of a run", "tasks", TASKS, medians(testing)),
    ]


def over_trials_per_worker(rounds: int) -> list[Growth]:
    """More and more trials that one worker runs, stack after stack, from the call to the store."""
    costs: dict[int, list[float]] = {trials: [] for trials in TRIALS_PER_WORKER}
    for _ in range(max(1, rounds // 10)):
        for trials, seconds in costs.items():
            with tempfile.TemporaryDirectory() as folder:
                work = functools.partial(
                    remask.run, "split-digits", "derpp", buffer=20, trials=trials, workers=1,
                    store=Path(folder) / "results.db",
                )  # fmt: skip
                seconds.append(1e3 * cpu_seconds(work))
    medians = [statistics.median(seconds) for seconds in costs.values()]
    return [Growth("run", "trials per worker", TRIALS_PER_WORKER, medians)]


AXES: dict[str, Callable[[int], list[Growth]]] = {
    "trials": over_trials,
    "buffer": over_buffer,
    "classes": over_classes,
    "tasks": over_tasks,
    "worker": over_trials_per_worker,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default=",".join(AXES), help="of these axes, comma-separated")
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    if unknown := [name for name in chosen if name not in AXES]:
        parser.error(f"there is no axis {unknown[0]!r}; there are {', '.join(AXES)}")
    keep_freed_memory()  # as worker processes do
    print("| cost of | over | sizes | ms of CPU time | exponent | of the last two |")
    print("| --- | --- | --- | --- | ---: | ---: |", flush=True)
    with one_thread():
        for name in chosen:
            for found in AXES[name](options.rounds):
                print(found.line(), flush=True)


if __name__ == "__main__":
    main()
