"""The cost of a trial, computed without running it: passes through the net and FLOPs.

A method's step is described by how many samples go forward and back through the net, how many only
forward, how often all parameters are read and written beside the descent, and in how many separate
passes. `docs/scaling.md` has the model, and compares it with measurements.
"""

import math
import operator
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.data.registry import BENCHMARKS
from remask.engine import TrialStack
from remask.engine.choosing import candidates_of
from remask.experiments.jobs import benchmark_of
from remask.memory import SPARSE, WINDOW
from remask.methods import METHODS, find_method
from remask.nets.builders import net_builder

TRAINING_FACTOR = 3
"""Training on a sample takes three times the FLOPs of a forward pass."""
_SIZES: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "digits": (1442, 355, (1, 8, 8)),
    "mnist": (60_000, 10_000, (1, 28, 28)),
    "fashion-mnist": (60_000, 10_000, (1, 28, 28)),
    "cifar10": (50_000, 10_000, (3, 32, 32)),
    "cifar100": (50_000, 10_000, (3, 32, 32)),
    "tiny-imagenet": (100_000, 10_000, (3, 64, 64)),
}
"""Train and test samples and their shape, known before the data is there."""
_HERDING = ("icarl", "icarl-dark")
_STEPS_ON_ANCHORS = 100  # of HAL, after each task
_TESTED_AT_ONCE = 512  # samples


@dataclass(frozen=True)
class Passes:
    """The work of a trial, in samples and parameters."""

    trained: float = 0.0
    """Samples that go forward and back."""
    evaluated: float = 0.0
    """Samples that go forward only."""
    sweeps: float = 0.0
    """How often all parameters are read or written beside the descent."""
    calls: float = 0.0
    """Separate passes, each of which has a fixed cost."""

    def __mul__(self, number: float) -> "Passes":
        return Passes(*(value * number for value in astuple(self)))

    def __add__(self, other: "Passes") -> "Passes":
        return Passes(*map(operator.add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class Sizes:
    """The size of a benchmark, as a trial sees it."""

    train: int
    test: int
    tasks: int
    classes: int
    shape: tuple[int, ...]

    @classmethod
    def of(cls, config: TrialConfig) -> "Sizes":
        """The sizes of a benchmark; the data of remask's own need not be there."""
        used = (1 - config.validation) * config.share
        if config.benchmark not in BENCHMARKS:
            own = benchmark_of(config)
            learnt = int(len(own.train_labels) * used)
            sizes = (learnt, len(own.test_labels), own.num_tasks, own.num_classes)
            return cls(*sizes, own.input_shape)
        info = BENCHMARKS[config.benchmark]
        classes = len(info.dataset.class_names)
        train, test, shape = _SIZES[info.dataset.name]
        most = math.inf if config.limit is None else config.limit * classes
        learnt = int(min(train, most) * used)
        return cls(learnt, int(min(test, most)), config.tasks or info.num_tasks, classes, shape)


@dataclass(frozen=True)
class Cost:
    """The work of a trial, wherever it runs."""

    steps: int
    passes: Passes
    flops: float


def training_flops(stack: TrialStack) -> float | None:
    """FLOPs of training per trial of a stack, without tests.

    None for a custom method, and for a trial that chooses its mask.
    """
    config, data = stack.configs[0], stack.data
    if config.method not in METHODS or config.mask == "auto":
        return None
    samples = sum(len(task.rows) for task in stack.tasks)
    sizes = Sizes(samples, 0, len(stack.tasks), data.num_classes, tuple(data.input_shape))
    with torch.random.fork_rng(devices=[]):  # a net is built, and draws its weights
        return cost_of(config, sizes).flops


@lru_cache(maxsize=4096)
def cost_of(config: TrialConfig, sizes: Sizes | None = None) -> Cost:
    """The cost of a trial on data of these sizes, by default those of its benchmark."""
    sizes = sizes or Sizes.of(config)
    joint = config.method == "joint"
    per_task = sizes.train / sizes.tasks
    done, steps = Passes(), 0
    for task in range(1 if joint else sizes.tasks):
        samples = sizes.train if joint else per_task
        exemplars = min(config.buffer, per_task * task) if config.method in _HERDING else 0
        own_steps = math.ceil((samples + exemplars) / config.batch) * config.epochs
        steps += own_steps
        done += step_passes(config, task, sizes) * own_steps
        done += _between_tasks(config, task, samples, sizes)
        done += _test_passes(sizes.test if joint else sizes.test * (task + 1) / sizes.tasks)
    done += _test_passes(sizes.test)  # the confidence
    if config.mask == "auto":  # candidates are trained side by side, in the same calls
        candidates = len(candidates_of(config.buffer))
        done = replace(done * candidates, calls=done.calls)
    forward = net_cost(config.net, sizes.shape, sizes.classes)[1]
    return Cost(steps, done, forward * (TRAINING_FACTOR * done.trained + done.evaluated))


def _test_passes(samples: float) -> Passes:
    return Passes(evaluated=samples, calls=samples / _TESTED_AT_ONCE)


def step_passes(config: TrialConfig, task: int, sizes: Sizes) -> Passes:
    """The work of one step of a task, counted from 0."""
    batch, buffer = config.batch, config.buffer
    replay = min(config.replay_batch, buffer)  # a draw is without repetition
    old = sizes.classes * task / sizes.tasks
    per_sample = net_cost(config.net, sizes.shape, sizes.classes)[1]
    # What is drawn from the reservoir is trained on beside the batch, in one pass; filling it and
    # drawing from it takes about as long as a quarter of a pass without samples.
    drawn = find_method(config.method).draws * replay
    plain = Passes(trained=batch + drawn, calls=1.25 if drawn else 1)
    if config.memory == "merging" and sizes.train > SPARSE * buffer:
        # A sample is compared with every slot in the window, like a layer of that many units.
        compared = 2 * batch * min(buffer, WINDOW) * math.prod(sizes.shape)
        plain += Passes(evaluated=compared / per_sample, calls=0.5)
    match config.method:
        case "ncm" | "slda" | "ridge":  # the product of the inputs with themselves, in float64
            products = 0 if config.method == "ncm" else 4 * batch * math.prod(sizes.shape) ** 2
            return Passes(evaluated=products / per_sample, calls=1)
        case "gss":
            return Passes(trained=2 * batch + replay + config.weight("probes"), calls=6)
        case "oewc":
            return plain + Passes(sweeps=6)
        case "si":
            return plain + Passes(sweeps=10)
        case "lwf":
            return plain + Passes(sweeps=3)
        case "pnn":  # a column per task; those of earlier tasks go forward only
            return plain + Passes(evaluated=batch * task, calls=2.8 * task)
        case "cls_er":
            return plain + Passes(evaluated=2 * replay, sweeps=4, calls=2)
        case "er_ema":
            return plain + Passes(evaluated=replay, sweeps=2, calls=1)
        case "mir":  # five candidates per replayed sample go forward, before and after a step
            return plain + Passes(evaluated=10 * replay, sweeps=2, calls=2)
        case "ss_il" if task:
            return plain + Passes(trained=replay, evaluated=batch + replay, calls=2)
        case method if method in _HERDING:
            return plain + Passes(evaluated=batch * (task > 0), sweeps=3, calls=int(task > 0))
        case "hal":
            anchors = Passes(trained=old, evaluated=old, sweeps=6, calls=2) * (task > 0)
            return plain + anchors + Passes(evaluated=batch, calls=1)
        case "agem" if task:
            return plain + Passes(trained=replay, sweeps=8, calls=1)
        case "fdr" if task:
            return plain + Passes(trained=replay, calls=1)
        case "gem" if task:
            kept = buffer // sizes.tasks
            return plain + Passes(trained=kept * task, sweeps=4 + 14 * task, calls=task)
    return plain


def _between_tasks(config: TrialConfig, task: int, samples: float, sizes: Sizes) -> Passes:
    """The work of a method before and after a task."""
    match config.method:
        case "oewc":
            return Passes(trained=samples, evaluated=samples, calls=2 * samples / 128)
        case "lwf" if task:
            warm_up = Passes(evaluated=samples, calls=samples / config.batch) * config.epochs
            return warm_up + Passes(evaluated=samples)
        case method if method in _HERDING:
            # Exemplars are chosen one by one, each among all samples of its class.
            herded = config.buffer / (task + 1)
            of_class = samples * sizes.tasks / sizes.classes * _features(config.net, sizes)
            sweeps = 2 * herded * of_class / net_cost(config.net, sizes.shape, sizes.classes)[0]
            return Passes(evaluated=samples + config.buffer, sweeps=sweeps)
        case "hal":
            return Passes(trained=2 * sizes.classes / sizes.tasks, calls=2) * _STEPS_ON_ANCHORS
        case "fdr":
            return Passes(evaluated=config.buffer / (task + 1))
    return Passes()


@lru_cache(maxsize=64)
def _features(net: str, sizes: Sizes) -> int:
    """The inputs of a net's last layer."""
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


def shortest_time(stacks: Iterable[float], workers: int) -> float:
    """The time that stacks of these durations take on `workers` workers, the longest first."""
    free_at = [0.0] * workers
    for seconds in sorted(stacks, reverse=True):
        first = min(range(workers), key=free_at.__getitem__)
        free_at[first] += seconds
    return max(free_at)
