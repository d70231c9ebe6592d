"""Whole DER++ trials on Split-MNIST, in remask, in a plain PyTorch loop, and in a jitted JAX loop.

All take turns in one run on one core, by CPU time: planning, training and the evaluation after
each task, without compilation. Run with ``python benchmarks/speed.py``, or ``make bench``. JAX runs
in an environment of its own, made by `make bench`; without it, it is left out. ``--dense`` compares
with JAX on inputs without zeros.
"""

import argparse
import os
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import plain_loop
import torch
from timing import cpu_seconds, in_turns, one_thread

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark, load_benchmark, resplit
from remask.data.classes import split_classes
from remask.engine import TrialStack
from remask.machine import keep_freed_memory
from remask.nets.builders import mlp

JAX = Path(os.environ.get("REMASK_JAX", ".venv-jax/bin/python"))


def trial_configs(trials: int, **changes: Any) -> list[TrialConfig]:
    """DER++ trials with batches and draws of 10."""
    options: dict[str, Any] = {"method": "derpp", "buffer": 200, "lr": 0.03, "batch": 10}
    options |= {"replay_batch": 10, "epochs": 1, "alpha": 0.2, "beta": 1.0, "benchmark": "random"}
    return [TrialConfig(**options | changes, seed=seed) for seed in range(trials)]


def random_benchmark(*shape: int, kind: torch.dtype = torch.uint8, per_class: int) -> Benchmark:
    """Ten classes in five tasks, of inputs without structure."""
    labels = torch.arange(10).repeat(per_class)
    inputs = torch.rand(len(labels), *shape, generator=torch.Generator().manual_seed(0))
    inputs, scale = ((inputs * 256).to(kind), 1 / 255) if kind == torch.uint8 else (inputs, 1.0)
    parts = inputs, labels, inputs[: 2 * per_class], labels[: 2 * per_class]
    return Benchmark("random", *parts, split_classes(10, 5), scale=scale)


def remask(
    benchmark: Benchmark,
    trials: int,
    replay: int,
    mask: float | None = None,
    engine: str = "",
    width: int = 100,
) -> float:
    """Milliseconds per step and trial."""
    own = {"benchmark": benchmark.name, **dict(benchmark.asked)}
    configs = trial_configs(trials, replay_batch=replay, mask=mask, net="two-layers", **own)
    os.environ["REMASK_ENGINE"] = engine
    build = partial(mlp, hidden=(width, width))
    seconds = cpu_seconds(lambda: TrialStack(configs, benchmark, build_net=build).finish())
    return seconds / steps_of(benchmark) / trials * 1000


def plain(benchmark: Benchmark, replay: int) -> float:
    """The same in a plain PyTorch loop."""
    (config,) = trial_configs(1, replay_batch=replay)
    seconds = cpu_seconds(lambda: plain_loop.finish(config, benchmark))
    return seconds / steps_of(benchmark) * 1000


def steps_of(benchmark: Benchmark) -> int:
    tasks = range(benchmark.num_tasks)
    return sum(-(-len(benchmark.train_indices(task)) // 10) for task in tasks)


def jax_loop(data: Path, trials: int, replay: int, width: int = 100) -> float:
    """The same in JAX."""
    command = [JAX, Path(__file__).with_name("jax_loop.py"), data]
    settings = {
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "JAX_PLATFORMS": "cpu",
    }
    found = subprocess.run(
        ["taskset", "-c", "0", *command, str(trials), str(replay), str(width)],
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


def contest(
    benchmark: Benchmark, rounds: int, replay: int, folder: str | None = None
) -> dict[str, float]:
    """Milliseconds per step and trial; with JAX, if it is installed and there is a folder."""
    contestants: dict[str, Callable[[], float]] = {
        "remask, one trial": partial(remask, benchmark, 1, replay),
        "remask, ten": partial(remask, benchmark, 10, replay),
        "remask, ten with a mask": partial(remask, benchmark, 10, replay, -1.0),
        "remask without numba, ten": partial(remask, benchmark, 10, replay, engine="torch"),
        "plain PyTorch loop": partial(plain, benchmark, replay),
    }
    if folder is not None and JAX.exists():
        data = Path(folder) / "data.npz"
        save(benchmark, data)
        contestants["JAX, one trial"] = partial(jax_loop, data, 1, replay)
        contestants["JAX, ten"] = partial(jax_loop, data, 10, replay)
    remask(benchmark, 1, 10)  # loads or compiles the kernel
    return in_turns(contestants, rounds)


def dense_contest(rounds: int, replay: int, folder: str) -> dict[str, float]:
    """Milliseconds per step of one trial beside JAX, on bytes and on features without zeros."""
    contestants: dict[str, Callable[[], float]] = {}
    for kind, size in ((torch.uint8, 784), (torch.float32, 1280)):
        benchmark = random_benchmark(size, kind=kind, per_class=2000)
        data = Path(folder) / f"{size}.npz"
        save(benchmark, data)
        for width in (100, 400):
            name = f"{size} inputs, width {width}:"
            contestants[f"{name} remask"] = partial(remask, benchmark, 1, replay, width=width)
            contestants[f"{name} JAX"] = partial(jax_loop, data, 1, replay, width)
        remask(benchmark, 1, 10)  # loads or compiles the kernel
    return in_turns(contestants, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--per-class", type=int, default=3000, help="samples to learn")
    parser.add_argument("--replay", type=int, nargs="+", default=[10, 128])
    parser.add_argument("--dense", action="store_true", help="inputs without zeros instead")
    options = parser.parse_args()
    benchmark = resplit(load_benchmark("split-mnist"), limit=options.per_class)
    keep_freed_memory()  # as worker processes do
    with one_thread(), tempfile.TemporaryDirectory() as folder:
        for replay in options.replay:
            found = (
                dense_contest(options.rounds, replay, folder)
                if options.dense
                else contest(benchmark, options.rounds, replay, folder)
            )
            for name, milliseconds in found.items():
                print(f"{name:<32} replay {replay:>3} {milliseconds:9.4f} ms", flush=True)


if __name__ == "__main__":
    main()
