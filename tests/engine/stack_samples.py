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
from remask.methods import METHODS
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


MASKS = (None, -1.0, -float("inf"))
WEIGHTS: dict[str, dict[str, float]] = {
    "oewc": {"penalty": 5.0, "gamma": 0.5},
    "si": {"c": 3.0, "xi": 0.1},
    "lwf": {"decay": 0.01},
    "gem": {"gamma": 0.3},
    "icarl": {"decay": 0.01},
    "icarl-dark": {"decay": 0.01},
    "gss": {"probes": 3.0},
    "hal": {"anchoring": 0.5, "gamma": 0.2},
    "ss_il": {"distillation": 0.6},
    "er_ema": {"slowness": 0.7, "ramp": 0.5},
    "cls_er": {
        **{"plastic_slowness": 0.5, "plastic_rate": 0.7},
        **{"stable_slowness": 0.7, "stable_rate": 0.5},
    },
    "er_las": {"tau": 0.7, "window": 3.0},
    "lode": {"rho": 0.5},
}
"""With these every term of a loss matters."""
_COUNTS = ("probes", "window")


def three_trials(config: MakeConfig, method: str, **changes: Any) -> list[TrialConfig]:
    """Three trials that differ in everything that trials of one stack may differ in."""
    masks: tuple[float | None, ...] = MASKS
    if METHODS[method].unmaskable:
        masks = (None,) * 3
    elif method in ("fdr", "mir"):
        # At -inf a task of one class teaches nothing, and FDR's distance, which is then 0, has no
        # slope there, or that of a rounding error; and for MIR all candidates are equally harmed.
        masks = (None, -1.0, -5.0)
    varied = zip((4, 0, 7), masks, (0.1, 0.2, 0.15), (1, 0.7, 1.4), strict=True)
    trials = []
    for seed, mask, lr, factor in varied:
        own: dict[str, Any] = {"seed": seed, "mask": mask, "lr": lr}
        own |= {"alpha": 0.7 * factor, "beta": 0.6 / factor}
        if method in WEIGHTS:
            own["weights"] = {
                name: value * (1 if name in _COUNTS else factor)
                for name, value in WEIGHTS[method].items()
            }
        trials.append(config(method=method, **(own | changes)))
    return trials


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


def net_of(stack: TrialStack) -> dict[str, Tensor]:
    """The parameters and running statistics of all trials, [S, ...]."""
    return {name: t for name, t in snapshot(stack).items() if name.startswith("net/")}


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
