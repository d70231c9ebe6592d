"""Stacked DER++ trials on Split-MNIST against a textbook loop and bare matmuls.

The contestants go through the same stretch of the stream and take turns in small blocks of steps,
so that a busy machine slows them alike. All that belongs to a training step counts: planning or
shuffling, loading, replay, insertion. Evaluation does not, except in `complete`.
"""

import functools
import statistics
from collections.abc import Iterator

import torch
from bare_matmuls import matmul_steps
from textbook_loop import TextbookTrial, float_tasks
from timing import cpu_seconds, median_ratio, take
from torch import Tensor

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark, load_benchmark
from remask.data.classes import split_classes
from remask.engine import TrialStack
from remask.errors import DataError

BLOCK = 50
"""Steps of each contestant in a round."""


def split_mnist() -> tuple[Benchmark, str]:
    """Split-MNIST, or random images of its shape where it cannot be had."""
    try:
        return load_benchmark("split-mnist"), "Split-MNIST"
    except DataError as problem:
        print(f"no MNIST here ({problem})")
    generator = torch.Generator().manual_seed(0)

    def part(count: int) -> tuple[Tensor, Tensor]:
        images = torch.randint(256, (count, 1, 28, 28), dtype=torch.uint8, generator=generator)
        return images, torch.arange(count) % 10

    benchmark = Benchmark(
        "random", *part(60_000), *part(10_000), split_classes(10, 5), scale=1 / 255
    )
    return benchmark, "random images of MNIST's shape, because MNIST is not available"


def stretch(benchmark: Benchmark, samples: int) -> Benchmark:
    """The same benchmark with the first `samples` train samples of each task."""
    by_task = [benchmark.train_indices(task) for task in range(benchmark.num_tasks)]
    if min(map(len, by_task)) < samples:
        raise SystemExit(f"the smallest task has {min(map(len, by_task))} samples, not {samples}")
    rows = torch.cat([task_rows[:samples] for task_rows in by_task])
    return Benchmark(
        benchmark.name,
        benchmark.train_inputs[rows],
        benchmark.train_labels[rows],
        benchmark.test_inputs,
        benchmark.test_labels,
        benchmark.tasks,
        scale=benchmark.scale,
    )


def trial_configs(count: int, **changes: object) -> list[TrialConfig]:
    """DER++ trials with batches and draws of 10, and whatever is to be different."""
    settings: dict[str, object] = {
        "benchmark": "split-mnist",
        "method": "derpp",
        "buffer": 200,
        "lr": 0.03,
        "batch": 10,
        "replay_batch": 10,
        "epochs": 1,
        "alpha": 0.2,
        "beta": 1.0,
    }
    return [TrialConfig.model_validate(settings | changes | {"seed": n}) for n in range(count)]


def contest(
    benchmark: Benchmark, blocks_per_task: int, trials: int, textbook_trials: int
) -> dict[str, float]:
    """Milliseconds per step of all trials, and the ratios.

    Only `textbook_trials` of the textbook trials are run, and count for all: their time is that of
    one times their number.
    """
    configs = trial_configs(trials)
    size = configs[0].batch + 2 * configs[0].replay_batch
    short = stretch(benchmark, blocks_per_task * BLOCK * configs[0].batch)
    widths = (784, 100, 100, 10)

    def contestants() -> dict[str, list[Iterator[object]]]:
        return {
            "stacked": [TrialStack(configs, short).run()],
            "textbook": [
                TextbookTrial(config, short).steps() for config in configs[:textbook_trials]
            ],
            "matmuls": [matmul_steps(trials, size, widths)],
        }

    for warming in contestants().values():
        for steps in warming:
            take(steps, 10)

    running = contestants()
    seconds: dict[str, list[float]] = {name: [] for name in running}
    for _task in range(short.num_tasks):
        for _block in range(blocks_per_task):
            for name, members in running.items():
                # The textbook trials share the global random streams; their speed doesn't care.
                work = [functools.partial(take, steps, BLOCK) for steps in members]
                scale = trials / len(work) if name == "textbook" else 1.0
                seconds[name].append(scale * sum(map(cpu_seconds, work)))
        # A task is a whole number of blocks, so this is the evaluation, and off the clock.
        next(running["stacked"][0])

    measured = {f"{name}_ms": 1e3 * statistics.median(v) / BLOCK for name, v in seconds.items()}
    return measured | {
        "steps": float(BLOCK * len(seconds["stacked"])),
        "textbook_over_stacked": median_ratio(seconds["textbook"], seconds["stacked"]),
        "stacked_over_matmuls": median_ratio(seconds["stacked"], seconds["matmuls"]),
    }


def complete(benchmark: Benchmark, trials: int, textbook_trials: int) -> dict[str, float]:
    """CPU seconds per trial of complete runs, evaluation after every task included."""
    stack = TrialStack(trial_configs(trials), benchmark)
    stacked = cpu_seconds(lambda: list(stack.run()))
    float_tasks(benchmark)
    accuracies: list[float] = []
    textbook = cpu_seconds(
        lambda: accuracies.extend(
            TextbookTrial(config, benchmark).finish() for config in trial_configs(textbook_trials)
        )
    )
    return {
        "full_steps": float(stack.total_steps),
        "full_stacked_seconds_per_trial": stacked / trials,
        "full_textbook_seconds_per_trial": textbook / textbook_trials,
        "full_textbook_over_stacked": textbook / textbook_trials / (stacked / trials),
        "full_stacked_accuracy": stack.measured.running_accuracy(),
        "full_textbook_accuracy": statistics.mean(accuracies),
    }
