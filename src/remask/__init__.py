"""Replay-based continual learning with the general masked softmax.

The loss, for anyone's training loop:

    from remask import masked_cross_entropy

    loss = masked_cross_entropy(logits, labels, active=classes_of_this_task, mask_value=-1.0)

and `ReplayMemory`, which keeps and draws the samples to replay.

Trials, stored and never run twice, with the published settings unless others are given:

    results = remask.run("split-digits", "derpp", mask=[None, -1.0], buffer=20)

One model for years, which learns new classes and survives restarts:

    learner = remask.Learner.create("animals", net="resnet18", memory=2000)
    learner.learn("photos/week-12", name="week-12")

`sweep`, `reproduce`, `resume` and `report` do what the commands of these names do; `settings`
returns the published ones. `TrialStack` is the engine underneath, step by step.
"""

from typing import TYPE_CHECKING

from remask.lazy_names import lazy_names

if TYPE_CHECKING:
    from remask.checking import check_method
    from remask.config import TrialConfig
    from remask.data.benchmark import Benchmark, load_benchmark
    from remask.data.tasks import DataDescription
    from remask.engine import TrialStack, load_net
    from remask.experiments import Results, report, reproduce, resume, run, settings, sweep
    from remask.learner import Learner, LearnerError
    from remask.loggers import Logger
    from remask.losses import (
        MaskedCrossEntropy,
        masked_binary_cross_entropy,
        masked_cross_entropy,
        masked_linear_cross_entropy,
        masked_log_softmax,
        masked_softmax,
    )
    from remask.memory import ReplayMemory
    from remask.methods import Batch, Method, Step, Task
    from remask.store.store import Store

__version__ = "1.0.0"

_MODULES = {
    "data.benchmark": "Benchmark load_benchmark",
    "checking": "check_method",
    "config": "TrialConfig",
    "data.tasks": "DataDescription",
    "engine": "TrialStack load_net",
    "experiments": "Results report reproduce resume run settings sweep",
    "learner": "Learner LearnerError",
    "loggers": "Logger",
    "losses": "MaskedCrossEntropy masked_binary_cross_entropy masked_cross_entropy "
    "masked_linear_cross_entropy masked_log_softmax masked_softmax",
    "memory": "ReplayMemory",
    "methods": "Batch Method Step Task",
    "store": "Store",
}
"""The module of each name, imported on first use: `remask results list` needs no torch."""

__all__ = [
    "Batch",
    "Benchmark",
    "DataDescription",
    "Learner",
    "LearnerError",
    "Logger",
    "MaskedCrossEntropy",
    "Method",
    "ReplayMemory",
    "Results",
    "Step",
    "Store",
    "Task",
    "TrialConfig",
    "TrialStack",
    "check_method",
    "load_benchmark",
    "load_net",
    "masked_binary_cross_entropy",
    "masked_cross_entropy",
    "masked_linear_cross_entropy",
    "masked_log_softmax",
    "masked_softmax",
    "report",
    "reproduce",
    "resume",
    "run",
    "settings",
    "sweep",
]


if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
