"""How the benchmarks measure: CPU time, one thread, contestants that take turns."""

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, and afterwards as many as before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def cpu_seconds(work: Callable[[], object]) -> float:
    """The CPU time that some work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def take(steps: Iterator[object], count: int) -> None:
    """Run so many steps."""
    for _ in range(count):
        next(steps)


def median_ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """The median of the ratios turn by turn: what slows a turn slows both sides of it."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def ratio_in_turns(
    plain: Iterator[object], other: Iterator[object], *, rounds: int, block: int
) -> float:
    """How many times as long the other takes; they take turns, and who begins alternates."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 else (1, 0):
            steps = (plain, other)[which]
            seconds[which].append(cpu_seconds(functools.partial(take, steps, block)))
    return median_ratio(seconds[1], seconds[0])
