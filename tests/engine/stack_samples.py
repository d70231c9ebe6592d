"""Small nets, stacks that are trained to their end, and their states side by side."""

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.data.tasks import Task
from remask.engine import TrialStack
from remask.nets.builders import mlp
from remask.nets.resnet import resnet18

MakeConfig = Callable[..., TrialConfig]
"""The fixture `config`."""


def small_mlp(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return mlp(shape, num_classes, hidden=(8, 7))


def small_resnet(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return resnet18(shape, num_classes, width=4)


def batch_normed(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(shape[0], 4, 2, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, num_classes),
    )


def channels_last_net(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A net without the small shortcuts that keep ResNets of width 4 in the default layout."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 8, 3, 2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, num_classes),
    )


def of_trial(name: str, tensor: Tensor, trial: int, trials: int) -> Tensor:
    """One trial's part of a state tensor; memories lie [S * M, ...], all else [S, ...]."""
    if name.startswith("memory/"):
        return tensor.view(trials, -1, *tensor.shape[1:])[trial]
    return tensor[trial]


def finish(stack: TrialStack) -> TrialStack:
    for _ in stack.run():
        pass
    return stack


def measured(stack: TrialStack) -> list[dict[str, Any]]:
    """What the trials of a stack showed, without the time it took."""
    timing = {"started", "seconds", "created"}
    records = stack.results()  # as JSON, in which one NaN equals another
    return [json.loads(record.model_dump_json(exclude=timing)) for record in records]


def snapshot(stack: TrialStack) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in stack.state().items()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, rtol=0, atol=0, equal_nan=True, msg=name)


def task_of(stack: TrialStack, benchmark: Benchmark, number: int) -> Task:
    """A benchmark's task, as if its samples came only now; copies, so that nothing is shared."""
    train, test = benchmark.train_indices(number), benchmark.test_indices(number)
    return stack.new_task(
        benchmark.train_inputs[train].clone(),
        benchmark.train_labels[train].clone(),
        test_inputs=benchmark.test_inputs[test].clone(),
        test_labels=benchmark.test_labels[test].clone(),
    )


def learn_all(stack: TrialStack, benchmark: Benchmark) -> TrialStack:
    for number in range(stack.position.task, benchmark.num_tasks):
        stack.learn(task_of(stack, benchmark, number))
        stack.evaluate()
    return stack
