"""Killing a run at random moments, and seeing it end as if nothing had happened.

A child process (forked: the imports are paid once) runs a job from its latest checkpoint; the
parent kills it with SIGKILL after a random time. Checkpoints are taken every few steps, so that
many of the kills hit the writing of one.
"""

import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from remask.config import TrialConfig
from remask.data.benchmark import load_benchmark
from remask.engine import TrialStack
from remask.engine.checkpoints import CheckpointFolder
from remask.experiments import RunOptions, train
from remask.experiments.jobs import Finished, Job
from remask.machine import StopRequest

Bits = dict[str, bytes]


def final_bits(configs: Sequence[TrialConfig], folder: Path) -> Bits:
    """Every tensor of the state that a finished run left in its last checkpoint, as bytes."""
    stack = TrialStack(configs, load_benchmark(configs[0].benchmark))
    saved = CheckpointFolder(folder, identity=Job(tuple(configs)).name).load(
        stack.state(), growing=stack.growing
    )
    assert saved is not None
    assert saved.warnings == ()
    assert saved.position == {"task": len(stack.tasks), "epoch": 0, "step": 0}
    return {name: tensor.contiguous().numpy().tobytes() for name, tensor in saved.tensors.items()}


def run_uninterrupted(configs: Sequence[TrialConfig], folder: Path) -> tuple[Bits, float]:
    """The bits of a run that nobody disturbs, and how many seconds it takes."""
    began = time.monotonic()
    _child(configs, folder, seconds_to_live=None)
    return final_bits(configs, folder), time.monotonic() - began


def run_with_kills(
    configs: Sequence[TrialConfig],
    folder: Path,
    *,
    kills: int,
    seconds: float,
    random_source: random.Random,
) -> tuple[Bits, int]:
    """The bits of a run that is killed until it has died `kills` times; and how often it was.

    It lives a fifth of the seconds that it takes undisturbed at most, however fast the machine. A
    run that ends before it can be killed often enough is not run again.
    """
    longest = min(seconds / 5, 0.35)
    began = time.monotonic()
    killed = 0
    while killed < kills:
        if _child(
            configs, folder, seconds_to_live=random_source.uniform(min(0.02, longest / 2), longest)
        ):
            break
        killed += 1
        assert time.monotonic() - began < 300, "the run makes no progress"
    else:
        assert _child(configs, folder, seconds_to_live=None)
    return final_bits(configs, folder), killed


def _child(configs: Sequence[TrialConfig], folder: Path, *, seconds_to_live: float | None) -> bool:
    """Run the job in a child process; whether it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            train._LARGEST_SHARE = float("inf")  # a checkpoint at every task's end
            # Far more often than a user may ask for.
            options = RunOptions().model_copy(update={"checkpoint_seconds": 0.01})
            events = list(train.run_job(Job(tuple(configs)), folder, options, StopRequest()))
            os._exit(0 if isinstance(events[-1], Finished) else 1)
        except BaseException:
            os._exit(2)
    if seconds_to_live is not None:
        time.sleep(seconds_to_live)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.WEXITSTATUS(status) == 0, "the run failed"
    return True
