"""The data of a trial, loaded once per process."""

from functools import lru_cache

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark, load_benchmark


def benchmark_of(config: TrialConfig) -> Benchmark:
    """The benchmark of a trial, with its classes dealt as the trial wants them."""
    return _load(config.benchmark, config.tasks, config.class_order, config.limit)


@lru_cache(maxsize=1)  # the jobs of a process mostly have one benchmark, and loading checks it all
def _load(
    name: str, tasks: int | None, class_order: int | tuple[int, ...] | None, limit: int | None
) -> Benchmark:
    return load_benchmark(name, tasks=tasks, class_order=class_order, limit=limit)
