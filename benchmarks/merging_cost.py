"""Measure how much longer a step takes with a memory that merges than with a plain reservoir.

Run with ``python benchmarks/merging_cost.py``. One and ten stacked trials on Split-MNIST, in its
third task, where all of these memories merge; CPU time, one thread. The two take turns in blocks of
steps; medians of the ratios.
"""

import argparse
from collections.abc import Iterator, Sequence

from contest import split_mnist, stretch
from timing import one_thread, ratio_in_turns

from remask import Benchmark, TrialStack, settings

BLOCK = 40
CASES = (("er", 200), ("derpp", 500), ("er_ema", 50), ("er_ema", 200), ("er_ema", 500))


def in_third_task(
    method: str, buffer: int, memory: str, trials: int, benchmark: Benchmark
) -> Iterator[object]:
    """The steps of a stack from its third task on."""
    configs = [
        settings("split-mnist", method, buffer, seed=seed, memory=memory) for seed in range(trials)
    ]
    stack = TrialStack(configs, benchmark)
    steps = stack.run()
    while stack.position.task < 2:
        next(steps)
    return steps


def merging_ratio(
    method: str, buffer: int, trials: int, benchmark: Benchmark, rounds: int
) -> float:
    """How many times as long a step takes with a merging memory."""
    runs = [
        in_third_task(method, buffer, memory, trials, benchmark)
        for memory in ("reservoir", "merging")
    ]
    return ratio_in_turns(*runs, rounds=rounds, block=BLOCK)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help=f"of {BLOCK} steps each")
    options = parser.parse_args(arguments)
    with one_thread():
        benchmark = stretch(split_mnist()[0], max(5000, 10 * BLOCK * (options.rounds + 1)))
        for method, buffer in CASES:
            for trials in (1, 10):
                ratio = merging_ratio(method, buffer, trials, benchmark, options.rounds)
                print(f"{method:7s} {buffer:4d}, S = {trials:2d}: {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
