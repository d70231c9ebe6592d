"""How long a job will take, from the rate of a few steps of every task."""

import time
from collections.abc import Iterator

import numpy as np
import torch

from remask.engine import Position, TrialStack
from remask.runs.data import benchmark_of
from remask.runs.options import RunOptions
from remask.runs.plans import Job

_STEPS, _FEWEST_STEPS = 20, 3  # the most are enough to fill what a step draws from memory
_PATIENCE = 10.0
"""Seconds after which the tasks that are left are taken to be like those that were timed."""


def estimate_seconds(job: Job, options: RunOptions) -> float:
    """Time a few steps of every task, and what comes between tasks, and keep nothing of it.

    Of a net so large that these steps take seconds, what comes after a task is not in it.
    """
    torch.set_num_threads(options.threads)
    stack = TrialStack(job.configs, benchmark_of(job.configs[0]), device=options.device)
    of_tasks = list(_tasks(stack, job.configs[0].epochs))
    return float(np.mean(of_tasks)) * len(stack.tasks)


def _tasks(stack: TrialStack, epochs: int) -> Iterator[float]:
    """About how long each task takes, for as many tasks as patience lasts."""
    deadline = time.perf_counter() + _PATIENCE
    for number in range(len(stack.tasks)):
        before = stack.steps_done
        marks = [time.perf_counter()]
        for position in stack.run():
            marks.append(time.perf_counter())
            if position.task > number or len(marks) > _enough(marks[-1] > deadline):
                break
        steps = np.diff(marks)
        step = float(np.median(steps[len(steps) // 2 :]))
        beginning = max(float(steps[0]) - step, 0.0)  # a method may do more before the first step
        if marks[-1] > deadline:
            yield beginning + step * stack.total_steps / len(stack.tasks)
            return
        if stack.position.task == number:
            stack.position = Position(number, epochs)  # as if all its steps were taken
            next(stack.run())
        ending = time.perf_counter() - marks[-1]
        yield beginning + step * (stack.steps_done - before) + ending


def _enough(late: bool) -> int:
    return _FEWEST_STEPS if late else _STEPS
