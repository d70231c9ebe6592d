"""What a trial costs, worked out and not run: passes through the net, FLOPs, bytes.

A method's step is described by how many samples go forward and back through the net, how many only
forward, how often all parameters are read and written beside the descent, and in how many separate
passes. `docs/scaling.md` has the model, and how it compares with what was measured.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from remask.benchmarks import BENCHMARKS
from remask.config import TrialConfig
from remask.engine import TrialStack, preferred_stack
from remask.engine.choosing import candidates_of
from remask.memory import SPARSE, WINDOW
from remask.methods import METHODS, find_method
from remask.nets import net_builder
from remask.runs.data import benchmark_of

_FLOAT = 4  # bytes
TRAINING_FACTOR = 3
"""Training on a sample takes three times the FLOPs of a forward: the backward has two products for
each of its one."""
_SIZES: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "digits": (1442, 355, (1, 8, 8)),
    "mnist": (60_000, 10_000, (1, 28, 28)),
    "fashion-mnist": (60_000, 10_000, (1, 28, 28)),
    "cifar10": (50_000, 10_000, (3, 32, 32)),
    "cifar100": (50_000, 10_000, (3, 32, 32)),
    "tiny-imagenet": (100_000, 10_000, (3, 64, 64)),
}
"""Train and test samples, and the shape of one: known before the data is there."""
_STEPS_ON_ANCHORS = 100  # of HAL, after each task
_TESTED_AT_ONCE = 512  # samples


class Passes(NamedTuple):
    """What a trial does, in samples and parameters."""

    trained: float = 0.0
    """Samples that go forward and back."""
    evaluated: float = 0.0
    """Samples that go forward only."""
    sweeps: float = 0.0
    """How often all parameters are read or written beside the descent."""
    calls: float = 0.0
    """Separate passes, each of which costs something however few samples it has."""

    def times(self, number: float) -> "Passes":
        """The same so many times."""
        return Passes(*(value * number for value in self))

    def plus(self, other: "Passes") -> "Passes":
        """Both, one after the other."""
        return Passes(*(one + more for one, more in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Sizes:
    """How large a benchmark is, as a trial sees it."""

    train: int
    test: int
    tasks: int
    classes: int
    shape: tuple[int, ...]

    @classmethod
    def of(cls, config: TrialConfig) -> "Sizes":
        """Of one of remask's own benchmarks, whether its data is there or not; or of the user's."""
        if config.benchmark not in BENCHMARKS:
            own = benchmark_of(config)
            learnt = int(len(own.train_labels) * (1 - config.validation))
            sizes = (learnt, len(own.test_labels), own.num_tasks, own.num_classes)
            return cls(*sizes, own.input_shape)
        info = BENCHMARKS[config.benchmark]
        classes = len(info.dataset.class_names)
        train, test, shape = _SIZES[info.dataset.name]
        most = math.inf if config.limit is None else config.limit * classes
        learnt = int(min(train, most) * (1 - config.validation))
        return cls(learnt, int(min(test, most)), config.tasks or info.num_tasks, classes, shape)


@dataclass(frozen=True)
class Cost:
    """What a trial takes, wherever it runs."""

    steps: int
    passes: Passes
    flops: float
    bytes: float
    """Parameters that are read and written: by every descent, and by sweeps."""


def training_flops(stack: TrialStack) -> float | None:
    """Work out what training takes per trial of a stack, without tests; None: nobody knows.

    What a custom method does in a step is not known, nor how a trial that chooses its mask goes on.
    """
    config, data = stack.configs[0], stack.data
    if config.method not in METHODS or config.mask == "auto":
        return None
    samples = sum(len(task.rows) for task in stack.tasks)
    sizes = Sizes(samples, 0, len(stack.tasks), data.num_classes, tuple(data.input_shape))
    with torch.random.fork_rng(devices=[]):  # a net is built, and draws its weights
        return cost_of(config, sizes).flops


def cost_of(config: TrialConfig, sizes: Sizes | None = None) -> Cost:
    """Work out what a trial costs, on data of a custom benchmark if its sizes are given."""
    sizes = sizes or Sizes.of(config)
    parameters, forward = net_cost(config.net, sizes.shape, sizes.classes)
    per_task = sizes.train / sizes.tasks
    tasks = range(1 if config.method == "joint" else sizes.tasks)
    done, steps = Passes(), 0
    for task in tasks:
        samples = sizes.train if config.method == "joint" else per_task
        learnt = samples + _exemplars(config, per_task * task)
        of_task = math.ceil(learnt / config.batch) * config.epochs
        steps += of_task
        done = done.plus(step_passes(config, task, sizes).times(of_task))
        done = done.plus(_between_tasks(config, task, samples, sizes))
        seen = sizes.test if config.method == "joint" else sizes.test * (task + 1) / sizes.tasks
        done = done.plus(_test_passes(seen))
    done = done.plus(_test_passes(sizes.test))  # the confidence
    if config.mask == "auto":  # candidates are trained side by side, in the same calls
        candidates = len(candidates_of(config.buffer))
        done = done.times(candidates)._replace(calls=done.calls)
    return Cost(
        steps=steps,
        passes=done,
        flops=forward * (TRAINING_FACTOR * done.trained + done.evaluated),
        bytes=parameters * _FLOAT * (2 * steps + done.sweeps),
    )


def _test_passes(samples: float) -> Passes:
    return Passes(evaluated=samples, calls=samples / _TESTED_AT_ONCE)


def step_passes(config: TrialConfig, task: int, sizes: Sizes) -> Passes:
    """What a step of a task does; task 0 is the first."""
    batch, buffer = config.batch, config.buffer
    replay = min(config.replay_batch, buffer)  # a draw is without repetition
    old = sizes.classes * task / sizes.tasks
    later = task > 0
    method = find_method(config.method)
    # What is drawn from the reservoir is trained on beside the batch, in one pass; filling it and
    # drawing from it takes about as long as a quarter of a pass without samples.
    drawn = method.draws * replay
    plain = Passes(trained=batch + drawn, calls=1.25 if drawn else 1)
    if config.memory == "merging" and sizes.train > SPARSE * buffer:
        # A sample is compared with every place in the window, as if by a layer of so many units.
        compared = 2 * batch * min(buffer, WINDOW) * math.prod(sizes.shape)
        per_sample = net_cost(config.net, sizes.shape, sizes.classes)[1]
        plain = plain.plus(Passes(evaluated=compared / per_sample, calls=0.5))
    match config.method:
        case "ncm" | "slda" | "ridge":  # the product of the inputs with themselves, in float64
            size = math.prod(sizes.shape)
            products = 0 if config.method == "ncm" else 2 * 2 * batch * size**2
            per_sample = net_cost(config.net, sizes.shape, sizes.classes)[1]
            return Passes(evaluated=products / per_sample, calls=1)
        case "oewc":
            return plain.plus(Passes(sweeps=6))
        case "si":
            return plain.plus(Passes(sweeps=10))
        case "lwf":
            return plain.plus(Passes(sweeps=3))
        case "agem" if later:
            return plain.plus(Passes(trained=replay, sweeps=8, calls=1))
        case "fdr" if later:
            return plain.plus(Passes(trained=replay, calls=1))
        case "gem" if later:
            kept = buffer // sizes.tasks
            return plain.plus(Passes(trained=kept * task, sweeps=4 + 14 * task, calls=task))
        case "gss":
            probes = config.weight("probes")
            return Passes(trained=batch + replay + batch + probes, calls=6)
        case "hal":
            anchors = Passes(trained=old, evaluated=old, sweeps=6, calls=2)
            return plain.plus(Passes(evaluated=batch, calls=1)).plus(anchors if later else Passes())
        case "icarl" | "icarl-dark":
            return plain.plus(Passes(evaluated=batch if later else 0, sweeps=3, calls=int(later)))
        case "pnn":  # a column per task; those of earlier tasks go forward only
            return plain.plus(Passes(evaluated=batch * task, calls=2.8 * task))
        case "cls_er":
            return plain.plus(Passes(evaluated=2 * replay, sweeps=4, calls=2))
        case "er_ema":
            return plain.plus(Passes(evaluated=replay, sweeps=2, calls=1))
    return plain


def _exemplars(config: TrialConfig, seen: float) -> float:
    """Samples of earlier tasks that are learnt beside those of a task."""
    return min(config.buffer, seen) if config.method in ("icarl", "icarl-dark") else 0


def _between_tasks(config: TrialConfig, task: int, samples: float, sizes: Sizes) -> Passes:
    """What a method does before and after a task."""
    batches = samples / config.batch
    match config.method:
        case "oewc":
            return Passes(trained=samples, evaluated=samples, calls=2 * samples / 128)
        case "lwf" if task:
            warm_up = Passes(evaluated=samples, calls=batches).times(config.epochs)
            return warm_up.plus(Passes(evaluated=samples))
        case "icarl" | "icarl-dark":
            # Exemplars are chosen one by one, each among all samples of its class.
            herded = config.buffer / (task + 1)
            of_class = samples * sizes.tasks / sizes.classes * _features(config.net, sizes)
            sweeps = 2 * herded * of_class / net_cost(config.net, sizes.shape, sizes.classes)[0]
            return Passes(evaluated=samples + config.buffer, sweeps=sweeps)
        case "hal":
            classes = sizes.classes / sizes.tasks
            return Passes(trained=2 * classes, calls=2).times(_STEPS_ON_ANCHORS)
        case "fdr":
            return Passes(evaluated=config.buffer / (task + 1))
    return Passes()


@lru_cache(maxsize=64)
def _features(net: str, sizes: Sizes) -> int:
    """What the last layer of a net takes in."""
    with torch.device("meta"):
        layers = net_builder(net)(sizes.shape, sizes.classes).modules()
    return [layer.in_features for layer in layers if isinstance(layer, nn.Linear)][-1]


@lru_cache(maxsize=64)
def net_cost(name: str, shape: tuple[int, ...], classes: int) -> tuple[int, float]:
    """The parameters of a net, and the FLOPs of one sample that goes forward."""
    net: nn.Module = net_builder(name)(shape, classes)
    sample = torch.zeros(2, *shape)  # two: a batch of one has no statistics
    # Torch's own counter takes seconds to load; linear layers and convolutions are all that counts.
    flops = []

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        weight = layer.weight
        assert isinstance(weight, Tensor)
        flops.append(2 * output.numel() * weight[0].numel())

    for layer in net.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.register_forward_hook(count)
    with torch.no_grad():
        net(sample)
    parameters = sum(parameter.numel() for parameter in net.parameters())
    # A custom net may have neither; then each weight is taken to be used once.
    return parameters, sum(flops) / len(sample) or 2.0 * parameters


def usual_stack(config: TrialConfig, device: str) -> int:
    """How many trials are stacked unless the user says otherwise."""
    sizes = Sizes.of(config)
    with torch.device("meta"):
        return preferred_stack(net_builder(config.net)(sizes.shape, sizes.classes), device)


def shortest_time(stacks: Iterable[float], workers: int) -> float:
    """How long stacks of these lengths take on so many workers, the longest first.

    No number of workers is faster than the longest stack.
    """
    free_at = [0.0] * workers
    for seconds in sorted(stacks, reverse=True):
        first = min(range(workers), key=free_at.__getitem__)
        free_at[first] += seconds
    return max(free_at)
