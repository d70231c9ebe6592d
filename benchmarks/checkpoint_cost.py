"""What checkpoints cost: the share of a run's time, at the default interval.

Ten DER++ trials on Split-MNIST with buffer 5120, whose state (46 MB) is the largest of the
MNIST runs, and ten on split-digits, whose tasks are the shortest.
"""

import tempfile
import time
from pathlib import Path

import torch

from remask.engine.checkpoints import CheckpointFolder
from remask.experiments import RunOptions
from remask.experiments.configs import trial_configs
from remask.experiments.jobs import Finished, Job
from remask.experiments.train import run_job
from remask.machine import StopRequest


def measure(benchmark: str, buffer: int, epochs: int) -> tuple[float, float, int]:
    """Seconds of the whole run, seconds spent saving, and number of checkpoints."""
    configs = trial_configs(
        benchmark=benchmark,
        method="derpp",
        masks=[None],
        buffer=buffer,
        seeds=range(10),
        overrides={"epochs": epochs},
    )
    spent: list[float] = []
    plain_save = CheckpointFolder.save

    def timed_save(*args: object, **kwargs: object) -> int:
        began = time.perf_counter()
        number = plain_save(*args, **kwargs)  # type: ignore[arg-type]
        spent.append(time.perf_counter() - began)
        return number

    CheckpointFolder.save = timed_save  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as folder:
            job = Job(tuple(configs))
            began = time.perf_counter()
            events = list(run_job(job, Path(folder) / "job", RunOptions(), StopRequest()))
            total = time.perf_counter() - began
    finally:
        CheckpointFolder.save = plain_save  # type: ignore[method-assign]
    assert isinstance(events[-1], Finished)
    return total, sum(spent), len(spent)


def main() -> dict[str, float]:
    torch.set_num_threads(1)
    shares = {}
    for benchmark, buffer, epochs in (("split-digits", 20, 5), ("split-mnist", 5120, 1)):
        total, spent, count = measure(benchmark, buffer, epochs)
        shares[benchmark] = spent / total
        print(
            f"{benchmark}, buffer {buffer}: {count} checkpoints, {spent:.2f} s of {total:.1f} s, "
            f"{spent / total:.2%}"
        )
    return shares


if __name__ == "__main__":
    main()
