"""Measure the products of stacked matrices by MKL and by oneDNN, in GFLOP/s.

Run with ``python benchmarks/products.py``. Ten stacked trials of the first layer of the MNIST
network, 784 to 100; one thread, CPU time, the two libraries take turns, medians. What the engine
does here is marked with a star.
"""

import argparse
import functools
import statistics
from collections.abc import Callable, Sequence
from unittest import mock

import torch
from timing import cpu_seconds, one_thread
from torch import Tensor

from remask.engine import products
from remask.machine import keep_freed_memory

TRIALS, INPUTS, OUTPUTS = 10, 784, 100
ROWS = (10, 30, 60, 128, 1024)
WORK = 4e8
"""FLOPs of a turn, about."""


def kinds(rows: int) -> dict[str, Callable[[], object]]:
    """The three products of a step with so many samples."""

    def random(*shape: int) -> Tensor:
        return torch.randn(TRIALS, *shape)

    inputs, slope = random(rows, INPUTS), random(rows, OUTPUTS) * 1e-3
    weight, bias = random(OUTPUTS, INPUTS), random(OUTPUTS)
    return {
        "forward": lambda: products.linear(inputs, weight, bias),
        "gradient": lambda: products.product(slope.mT, inputs),
        "update": lambda: products.add_product_(weight, slope.mT, inputs),
    }


def gflops(work: Callable[[], object], rows: int, rounds: int) -> dict[bool, float]:
    """By MKL, False, and by oneDNN, True."""
    flops = 2 * TRIALS * rows * INPUTS * OUTPUTS
    count = max(1, round(WORK / flops))
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for onednn in seconds:
            with (
                mock.patch.object(products, "_mkl_leaves_avx512_unused", return_value=onednn),
                mock.patch.object(products, "_LEAST_WORK", 0),
            ):
                work()
                seconds[onednn].append(cpu_seconds(functools.partial(_repeat, work, count)))
    return {kind: count * flops / statistics.median(own) / 1e9 for kind, own in seconds.items()}


def _repeat(work: Callable[[], object], count: int) -> None:
    for _ in range(count):
        work()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(arguments)
    if products._OPERATOR is None:
        parser.error("this torch has no oneDNN to compare with")
    keep_freed_memory()  # as worker processes do
    here = products._mkl_leaves_avx512_unused()
    print(f"{'rows':>5s}  {'':10s} {'MKL':>6s} {'oneDNN':>7s}")
    with one_thread(), torch.no_grad():
        for rows in ROWS:
            taken = here and rows * INPUTS * OUTPUTS >= products._LEAST_WORK
            for kind, work in kinds(rows).items():
                found = gflops(work, rows, options.rounds)
                mkl, onednn = found[False], found[True]
                stars = (" ", "*") if taken else ("*", " ")
                print(f"{rows:5d}  {kind:10s} {mkl:5.0f}{stars[0]} {onednn:6.0f}{stars[1]}")


if __name__ == "__main__":
    main()
