"""The plan of a run: its cells, which of their trials are stored, and the time for the rest.

The time follows from the work of each trial and the speed of this machine, which is measured once
per net and size of the stack, and cached.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.data.classes import split_classes
from remask.data.dataset import cache_folder, is_complete
from remask.data.registry import BENCHMARKS
from remask.engine import TrialStack
from remask.engine.compiled import can_compile
from remask.errors import RemaskError, counted
from remask.experiments.cost import (
    TRAINING_FACTOR,
    Sizes,
    cost_of,
    net_cost,
    shortest_time,
)
from remask.experiments.executors import Executor
from remask.experiments.jobs import Job, plan_jobs
from remask.experiments.options import RunOptions
from remask.experiments.running import executor_for, largest_stacks
from remask.files import make_folder, read_limited, write_atomically
from remask.machine import check_device, provenance, write_duration
from remask.methods import find_method
from remask.methods.sgd import SGD
from remask.methods.step import Step
from remask.own_code import own_title
from remask.reports.tables import PlainTable
from remask.store.cells import cell_labels, grouped
from remask.store.store import Store

_SECONDS, _FEWEST = 0.4, 2
"""The shortest time and the fewest calls that each rate is measured for."""
_LARGEST_FILE = 1 << 20
_TENSORS = 6
_STEPS = 40
_OF_SEVERAL = 10, 74  # samples in a batch
_OF_ONE_TRIAL = 6, 18  # which is of a net so large that a step may take a second


@dataclass(frozen=True)
class PlannedCell:
    """Trials that differ only in their seed."""

    config: TrialConfig
    """With seed 0."""
    label: str
    """The method's name in tables, with the settings that distinguish it."""
    trials: int
    stored: int
    """Number of trials that are not run."""
    flops: float
    """FLOPs of the trials to run."""
    seconds: float
    """Time of the trials to run, one stack after the other."""

    @property
    def to_run(self) -> int:
        """Number of trials that the store does not have."""
        return self.trials - self.stored

    def row(self) -> list[str]:
        """Its row in the table of a plan."""
        work = (
            [_write_flops(self.flops), write_duration(self.seconds)] if self.to_run else ["-"] * 2
        )
        counts = (self.config.buffer or "-", self.trials, self.stored, self.to_run)
        return [self.config.benchmark, self.label, *map(str, counts), *work]


@dataclass(frozen=True, repr=False)
class Plan:
    """The cells of a run, and the time it would take."""

    cells: Sequence[PlannedCell]
    stacks: Sequence[float]
    """Seconds per stack of trials."""
    at_once: int
    """Number of stacks trained at once."""
    lacking: Sequence[str]
    """Benchmarks whose data would be fetched first."""

    @property
    def trials(self) -> int:
        """Number of trials."""
        return sum(cell.trials for cell in self.cells)

    @property
    def to_run(self) -> int:
        """Number of trials that would be run."""
        return sum(cell.to_run for cell in self.cells)

    @property
    def flops(self) -> float:
        """FLOPs of the trials to run."""
        return sum(cell.flops for cell in self.cells)

    @property
    def seconds(self) -> float:
        """Time of the run."""
        return shortest_time(self.stacks, self.at_once)

    def table(self) -> PlainTable:
        """A row per cell."""
        columns = ("benchmark", "method", "buffer", "trials", "stored", "to run", "work", "time")
        return PlainTable(columns, [cell.row() for cell in self.cells], left=columns[:2])

    def summary(self) -> str:
        """The number of trials to run, and about how long they take."""
        counts = (
            f"{counted(len(self.cells), 'cell')}, {counted(self.trials, 'trial')}, "
            f"{self.to_run} to run"
        )
        if not self.to_run:
            return f"{counts}."
        names = ", ".join(self.lacking)
        data = f" The data of {names} will be downloaded first." if names else ""
        return (
            f"{counts}: about {write_duration(self.seconds)} with {self.at_once} at a time, in "
            f"{counted(len(self.stacks), 'stack')}, the longest of "
            f"{write_duration(max(self.stacks))}; {_write_flops(self.flops)} in all. "
            "Estimated from the work of each method and the measured speed of this hardware "
            f"(docs/scaling.md).{data}"
        )

    def as_json(self) -> dict[str, Any]:
        """What commands print with --json."""
        counted = ("trials", "stored", "to_run", "flops", "seconds")
        return {
            **{name: getattr(self, name) for name in ("trials", "to_run", "seconds", "flops")},
            "stacks": len(self.stacks),
            "at_once": self.at_once,
            "data_to_fetch": self.lacking,
            "cells": [
                {
                    "label": cell.label,
                    "config": cell.config.model_dump(mode="json", exclude={"seed"}),
                    **{name: getattr(cell, name) for name in counted},
                }
                for cell in self.cells
            ],
        }

    def __repr__(self) -> str:
        return f"{self.table()}\n{self.summary()}"


def plan_trials(store: Store | None, configs: Sequence[TrialConfig], options: RunOptions) -> Plan:
    """Plan a run of these trials without running anything; `store=None` is an empty store.

    Refuses what a run would refuse, as far as that does not need missing data.
    """
    wanted = list(dict.fromkeys(configs))
    left = [c for c in wanted if options.again or store is None or not store.is_done(c.hash)]
    lacking = sorted(name for name in {c.benchmark for c in left} if not _has_data(name))
    largest = largest_stacks(left, options, lacking=lacking)
    executor = executor_for(options)
    try:
        at_once = executor.at_once(options) if left else options.processes
        jobs = plan_jobs(left, at_once, lambda config: largest[config.net])
        times = _times(jobs, options, executor)
    finally:
        executor.disconnect()
    seconds = {c: own / len(job.configs) for job, own in times.items() for c in job.configs}
    by_cell = grouped(wanted, lambda config: config.cell)
    labels = cell_labels(list(by_cell), {cell: own_title(cell.method) for cell in by_cell})
    cells = []
    for (cell, trials), label in zip(by_cell.items(), labels, strict=True):
        to_run = [seconds[config] for config in trials if config in seconds]
        flops = cost_of(cell).flops * len(to_run) if to_run else 0.0
        stored = len(trials) - len(to_run)
        cells.append(PlannedCell(cell, label, len(trials), stored, flops, sum(to_run)))
    return Plan(cells, list(times.values()), at_once, lacking)


def _times(jobs: Sequence[Job], options: RunOptions, executor: Executor) -> dict[Job, float]:
    """The seconds that each job takes."""
    if jobs and executor.on_this_machine:
        check_device(options.device)
    times: dict[Job, float] = {}
    rates: dict[tuple[str, int, bool], Rates] = {}
    # Rates are measured on the smallest inputs; larger ones take proportionally longer.
    for job in sorted(jobs, key=lambda job: cost_of(job.configs[0].cell).flops):
        config, trials = job.configs[0], len(job.configs)
        speed = _speed(config, trials)
        if speed not in rates:
            rates[speed] = executor.call(rates_of, config, trials, options, options=options)
        times[job] = seconds_of(config.cell, rates[speed])
    return times


def _speed(config: TrialConfig, trials: int) -> tuple[str, int, bool]:
    """What rates depend on: the net, the size of the stack, and whether the kernel can be used."""
    compiled = can_compile(find_method(config.method)) and config.memory != "merging"
    return config.net, trials, compiled


class _InTorch(SGD):
    """SGD with a hook, so that its steps are taken in torch."""

    def begin_step(self, step: Step) -> None:
        """Nothing."""


def _has_data(benchmark: str) -> bool:
    return benchmark not in BENCHMARKS or is_complete(BENCHMARKS[benchmark].dataset)


def _write_flops(flops: float) -> str:
    for unit, size in (("EFLOP", 1e18), ("PFLOP", 1e15)):
        if flops >= size:
            return f"{flops / size:,.3g} {unit}"
    return f"{flops / 1e12:,.3g} TFLOP"


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


def seconds_of(config: TrialConfig, rates: Rates) -> float:
    """How long a stack of such trials takes, of as many as the rates are of."""
    sizes, passes = Sizes.of(config), cost_of(config).passes
    parameters, forward = net_cost(config.net, sizes.shape, sizes.classes)
    return (
        rates.call * passes.calls
        + rates.trained * TRAINING_FACTOR * forward * passes.trained
        + rates.evaluated * forward * passes.evaluated
        + rates.swept * parameters * passes.sweeps
    )


def rates_of(config: TrialConfig, trials: int, options: RunOptions) -> Rates:
    """The rates of a net in stacks of `trials` trials, measured unless that was done before."""
    known = provenance()
    what = [*_speed(config, trials), options.device, options.threads]
    what += [known["machine"], known["versions"]]
    name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
    path = cache_folder() / "rates" / f"{name}.json"
    with suppress(OSError, ValueError, TypeError):
        return Rates(**json.loads(read_limited(path, _LARGEST_FILE)))
    rates = measured_rates(config, trials, options)
    with suppress(RemaskError):  # then it is measured again next time
        make_folder(path.parent)
        write_atomically(path, json.dumps(asdict(rates)).encode())
    return rates


def measured_rates(
    config: TrialConfig,
    trials: int,
    options: RunOptions,
    typical: Callable[[Sequence[float]], float] = min,
) -> Rates:
    """Measure the rates of a net in stacks of `trials` trials.

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
    benchmark = Benchmark("rates", *parts, split_classes(sizes.classes, 1), scale=1 / 255)
    chosen: dict[str, Any] = {"benchmark": "rates", "method": "sgd", "net": config.net, "lr": 1e-6}
    configs = [
        TrialConfig(**chosen, batch=batch, buffer=0, replay_batch=0, epochs=1, seed=seed)
        for seed in range(trials)
    ]
    _, _, compiled = _speed(config, trials)
    method = SGD if compiled else _InTorch
    return TrialStack(configs, benchmark, method=method, device=options.device)
