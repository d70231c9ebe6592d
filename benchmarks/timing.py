"""How the benchmarks measure: CPU time of one thread; contestants take turns in one run."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch

Name = TypeVar("Name")


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
    """Return the CPU time of some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def in_turns(contestants: Mapping[Name, Callable[[], float]], rounds: int) -> dict[Name, float]:
    """Run all contestants `rounds` times, in turns; return the median of each one's results."""
    found: dict[Name, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            found[name].append(run())
    return {name: statistics.median(values) for name, values in found.items()}
