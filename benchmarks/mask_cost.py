"""Measure how much longer a step takes with a mask than without: MSDER++ against DER++.

Run with ``python benchmarks/mask_cost.py``. Ten stacked trials, one thread, CPU time; the two take
turns in blocks of steps, and which goes first alternates; medians of the ratios. Random images of
MNIST's shape, with 10 classes of which 2 are active and with 1,000 of which 10 are.
"""

import argparse
from collections.abc import Sequence

import torch
from contest import trial_configs
from timing import one_thread, ratio_in_turns, take

from remask.data.benchmark import Benchmark
from remask.data.classes import split_classes
from remask.engine import TrialStack

TRIALS, BLOCK, WARM_UP = 10, 10, 30
SIZES = ((10, 5), (1000, 100))
"""(classes, tasks)."""


def random_images(classes: int, tasks: int, steps: int, batch: int = 10) -> Benchmark:
    """Images of MNIST's shape whose first task has so many steps; later ones are short."""
    generator = torch.Generator().manual_seed(0)
    in_first = steps * batch
    labels = torch.cat([torch.arange(in_first) % (classes // tasks), torch.arange(classes)])
    shape = (len(labels), 1, 28, 28)
    images = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
    dealt = split_classes(classes, tasks)
    test = images[-classes:], labels[-classes:]
    return Benchmark("random", images, labels, *test, dealt, scale=1 / 255)


def mask_ratio(classes: int, tasks: int, rounds: int) -> float:
    """How many times as long a step of MSDER++ takes as one of DER++, in the first task."""
    benchmark = random_images(classes, tasks, WARM_UP + BLOCK * rounds)
    runs = [
        TrialStack(trial_configs(TRIALS, benchmark="random", mask=mask), benchmark).run()
        for mask in (None, -1.0)
    ]
    for steps in runs:
        take(steps, WARM_UP)
    return ratio_in_turns(*runs, rounds=rounds, block=BLOCK)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60, help=f"of {BLOCK} steps each")
    options = parser.parse_args(arguments)
    with one_thread():
        for classes, tasks in SIZES:
            ratio = mask_ratio(classes, tasks, options.rounds)
            print(
                f"MSDER++ / DER++, {classes:5,} classes, {classes // tasks:2d} active: {ratio:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
