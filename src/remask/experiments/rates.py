"""The speed of this machine at the parts of a cost, measured once and cached.

The rates of a net depend on the size of the stack: seconds are those of a stack, not of a trial.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.data.classes import split_classes
from remask.data.dataset import cache_folder
from remask.engine import TrialStack
from remask.errors import RemaskError
from remask.experiments.cost import TRAINING_FACTOR, Cost, Sizes, cost_of, net_cost
from remask.experiments.options import RunOptions
from remask.files import make_folder, read_limited, write_atomically
from remask.machine import provenance

_SECONDS = 0.4
"""The shortest time that each rate is measured for."""
_FEWEST = 2
_LARGEST_FILE = 1 << 20
_TENSORS = 6
_STEPS = 40
_OF_SEVERAL = 10, 74  # samples in a batch
_OF_ONE_TRIAL = 6, 18  # which is of a net so large that a step may take a second


@dataclass(frozen=True)
class Rates:
    """Seconds of a stack."""

    call: float
    """Of a pass without samples: the fixed cost of a step."""
    trained: float
    """Per FLOP of training."""
    evaluated: float
    """Per FLOP of a forward."""
    swept: float
    """Per parameter that is read or written."""

    def seconds(self, cost: Cost, parameters: int, forward: float) -> float:
        """How long a stack of such trials takes."""
        passes = cost.passes
        return (
            self.call * passes.calls
            + self.trained * TRAINING_FACTOR * forward * passes.trained
            + self.evaluated * forward * passes.evaluated
            + self.swept * parameters * passes.sweeps
        )


def seconds_of(config: TrialConfig, rates: Rates) -> float:
    """How long a stack of trials like this one takes, of as many as the rates are of."""
    sizes = Sizes.of(config)
    return rates.seconds(cost_of(config), *net_cost(config.net, sizes.shape, sizes.classes))


def rates_of(config: TrialConfig, trials: int, options: RunOptions) -> Rates:
    """The rates of a net in stacks of so many trials, measured unless that was done before."""
    path = _place(config.net, trials, options)
    with suppress(OSError, ValueError, TypeError):
        return Rates(**json.loads(read_limited(path, _LARGEST_FILE)))
    rates = measured_rates(config, trials, options)
    with suppress(RemaskError):  # then it is measured again next time
        make_folder(path.parent)
        write_atomically(path, json.dumps(asdict(rates)).encode())
    return rates


def _place(net: str, trials: int, options: RunOptions) -> Path:
    known = provenance()
    what = [net, trials, options.device, options.threads, known["machine"], known["versions"]]
    name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder() / "rates" / f"{name}.json"


def measured_rates(
    config: TrialConfig,
    trials: int,
    options: RunOptions,
    typical: Callable[[Sequence[float]], float] = min,
) -> Rates:
    """Measure the rates of a net in stacks of so many trials.

    The shortest of several times is typical: other work on the machine only makes them longer.
    """
    torch.set_num_threads(options.threads)
    # Rates are kept, so they must not be those of a moment when the machine was busy.
    alone = torch.device(options.device).type == "cpu" and options.threads == 1
    clock = time.process_time if alone else time.perf_counter
    sizes = Sizes.of(config)
    parameters, forward = net_cost(config.net, sizes.shape, sizes.classes)

    def timed(do: Callable[[], object], most: int = 1000) -> float:
        times: list[float] = []
        while len(times) < most and (len(times) < _FEWEST or sum(times) < _SECONDS):
            began = clock()
            do()
            if torch.device(options.device).type != "cpu":
                torch.accelerator.synchronize()
            times.append(clock() - began)
        return typical(times)

    def step(batch: int) -> float:
        steps = _stack(config, sizes, trials, batch, options).run()
        next(steps)  # what is slow the first time
        return timed(lambda: next(steps), most=_STEPS - 4)

    batches = _OF_ONE_TRIAL if trials == 1 else _OF_SEVERAL
    few, many = map(step, batches)
    per_sample = max(many - few, 0.0) / (batches[1] - batches[0])
    stack = _stack(config, sizes, trials, batches[0], options)
    inputs = torch.zeros(2 * batches[1], *sizes.shape, device=options.device)
    evaluated = timed(lambda: stack.scores(inputs, 0)) / len(inputs)
    # Several, in turn: in a step, other tensors have pushed them out of the cache meanwhile.
    kept = [torch.zeros(trials * parameters, device=options.device) for _ in range(_TENSORS)]
    sweep = timed(lambda: [one.add_(other) for one, other in pairwise(kept)])
    return Rates(
        call=max(few - per_sample * batches[0], 0.0),
        trained=per_sample / (TRAINING_FACTOR * forward),
        evaluated=evaluated / forward,
        swept=sweep / (parameters * (_TENSORS - 1)),
    )


def _stack(
    config: TrialConfig, sizes: Sizes, trials: int, batch: int, options: RunOptions
) -> TrialStack:
    """Trials of plain SGD with a net, on nothing but zeros."""
    labels = torch.arange(sizes.classes).repeat(-(-_STEPS * batch // sizes.classes))
    inputs = torch.zeros((), dtype=torch.uint8).expand(len(labels), *sizes.shape)
    parts = (inputs, labels, inputs[: sizes.classes], labels[: sizes.classes])
    benchmark = Benchmark("rates", *parts, split_classes(sizes.classes, 1), 1 / 255)
    chosen: dict[str, Any] = {"benchmark": "rates", "method": "sgd", "net": config.net, "lr": 1e-6}
    configs = [
        TrialConfig(**chosen, batch=batch, buffer=0, replay_batch=0, epochs=1, seed=seed)
        for seed in range(trials)
    ]
    return TrialStack(configs, benchmark, device=options.device)
