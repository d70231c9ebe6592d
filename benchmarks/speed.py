"""Whole DER++ trials on Split-MNIST, in remask and in a jitted JAX loop.

Both take turns in one run on one core, by CPU time: planning, training and the evaluation after
each task, without compilation. Run with ``python benchmarks/speed.py``, or ``make bench``. JAX runs
in an environment of its own, made by `make bench`; without it, it is left out.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import one_thread

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark, load_benchmark, resplit
from remask.engine import TrialStack

JAX = Path(os.environ.get("REMASK_JAX", ".venv-jax/bin/python"))
PER_CLASS = 3000


def remask(benchmark: Benchmark, trials: int, replay: int, mask: float | None = None) -> float:
    """Milliseconds per step and trial."""
    options: dict[str, Any] = {"method": "derpp", "mask": mask, "buffer": 200, "lr": 0.03}
    options |= {"batch": 10, "replay_batch": replay, "epochs": 1, "alpha": 0.2, "beta": 1.0}
    options |= {"benchmark": benchmark.name, **dict(benchmark.asked)}
    configs = [TrialConfig(**options, seed=seed) for seed in range(trials)]
    began = time.process_time()
    stack = TrialStack(configs, benchmark)
    stack.finish()
    return (time.process_time() - began) / stack.steps_done / trials * 1000


def in_torch(benchmark: Benchmark, trials: int, replay: int) -> float:
    """The same without numba."""
    os.environ["REMASK_ENGINE"] = "torch"
    try:
        return remask(benchmark, trials, replay)
    finally:
        del os.environ["REMASK_ENGINE"]


def jax_loop(data: Path, trials: int, replay: int) -> float:
    """The same in JAX."""
    command = [JAX, Path(__file__).with_name("jax_loop.py"), data]
    settings = {
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "JAX_PLATFORMS": "cpu",
    }
    found = subprocess.run(
        ["taskset", "-c", "0", *command, str(trials), str(replay), "1000000"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | settings,
    )
    return float(found.stdout.split()[0])


def save(benchmark: Benchmark, path: Path) -> None:
    """Write the samples of each task for the JAX loop."""
    rows = [benchmark.train_indices(task).numpy() for task in range(benchmark.num_tasks)]
    tests = [benchmark.test_indices(task) for task in range(benchmark.num_tasks)]
    arrays: dict[str, Any] = {
        "inputs": benchmark.train_inputs.flatten(1).numpy(),
        "labels": benchmark.train_labels.numpy().astype(np.int32),
        "rows": np.concatenate(rows),
        "task": np.repeat(np.arange(len(rows)), [len(own) for own in rows]),
    }
    for task, own in enumerate(tests):
        arrays[f"test{task}"] = benchmark.test_inputs[own].flatten(1).numpy()
        arrays[f"answers{task}"] = benchmark.test_labels[own].numpy()
    np.savez(path, **arrays)


def contest(rounds: int, replays: tuple[int, ...] = (10, 128)) -> dict[str, float]:
    """Medians over rounds, by contestant: milliseconds per step and trial."""
    benchmark = resplit(load_benchmark("split-mnist"), limit=PER_CLASS)
    found: dict[str, list[float]] = {}
    with one_thread(), tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        save(benchmark, data)
        remask(benchmark, 1, 10)  # loads or compiles the kernel
        for replay in replays:
            contestants: dict[str, Callable[[], float]] = {
                "remask, one trial": partial(remask, benchmark, 1, replay),
                "remask, ten": partial(remask, benchmark, 10, replay),
                "remask, ten with a mask": partial(remask, benchmark, 10, replay, -1.0),
                "remask without numba, ten": partial(in_torch, benchmark, 10, replay),
            }
            if JAX.exists():
                contestants["JAX, one trial"] = partial(jax_loop, data, 1, replay)
                contestants["JAX, ten"] = partial(jax_loop, data, 10, replay)
            for _ in range(rounds):
                for name, run in contestants.items():
                    found.setdefault(f"{name}, replay {replay}", []).append(run())
    return {name: statistics.median(times) for name, times in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    for name, milliseconds in contest(parser.parse_args().rounds).items():
        print(f"{name:<40} {milliseconds:.4f} ms", flush=True)
    print(f"on {torch.get_num_threads()} thread")
