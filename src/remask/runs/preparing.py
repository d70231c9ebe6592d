"""Before trials are run: their data is fetched, and what could not be run is refused."""

import heapq
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from remask.benchmarks import BENCHMARKS, Benchmark
from remask.config import TrialConfig
from remask.console import PlainConsole
from remask.datasets import fetch
from remask.engine import check_config, preferred_stack
from remask.errors import SettingsError
from remask.machine import TooLargeError, free_in_process, free_memory, write_bytes
from remask.methods import Method, find_method
from remask.nets import NetBuilder, net_builder
from remask.own_code import names_own_code
from remask.own_sources import Source, find_source
from remask.results import Store
from remask.runs.data import benchmark_of
from remask.runs.display import download_bar
from remask.runs.jobs import Job, plan_jobs
from remask.runs.options import RunOptions

_COPIES_IN_A_CHECKPOINT = 3
"""A checkpoint is put together in memory: copies of the tensors, their bytes, and the file."""
_LABEL, _NUMBER = 8, 4  # bytes


def fetch_data(configs: Sequence[TrialConfig], options: RunOptions) -> None:
    """Fetch what is missing here, with a progress bar, not in every worker."""
    names = list(dict.fromkeys(config.benchmark for config in configs))
    if options.data is not None and (len(names) > 1 or names[0] not in BENCHMARKS):
        raise SettingsError(
            f"--data is for one of remask's own datasets at a time, not for {', '.join(names)}"
        )
    for info in (BENCHMARKS[name] for name in names if name in BENCHMARKS):
        with download_bar(options.console) as bar:
            fetch(info.dataset, progress=bar, data=options.data)


def largest_stacks(configs: Sequence[TrialConfig], options: RunOptions) -> dict[str, int]:
    """How many trials of each net to stack.

    On the way, what no worker could run is refused: a wrong split, net or setting.
    """
    methods = {name: find_method(name) for name in dict.fromkeys(c.method for c in configs)}
    largest = {}
    built = set()
    for config in sorted(configs, key=_split):  # a benchmark is loaded once
        benchmark, method = benchmark_of(config), methods[config.method]
        check_config(config, method, benchmark)
        if (key := (*_split(config), config.net, config.method)) not in built:
            built.add(key)
            build = net_builder(config.net)
            net = _outline(config, build, benchmark)
            largest[config.net] = options.stack or preferred_stack(net, options.device)
            _outline(config, method.adapt_net(build, benchmark.num_tasks), benchmark)
    return largest


def _outline(config: TrialConfig, build: NetBuilder, benchmark: Benchmark) -> nn.Module:
    """A net to look at, without its numbers: there may be no memory for them.

    The user's own code is tried as it will be run.
    """
    with nullcontext() if names_own_code(config.net) else torch.device("meta"):
        return build(benchmark.input_shape, benchmark.num_classes)


def check_memory(
    configs: Sequence[TrialConfig], largest: Mapping[str, int], options: RunOptions
) -> None:
    """Refuse stacks that would not fit into memory."""
    if torch.device(options.device).type != "cpu":
        return  # what a device holds, its own driver tells
    footprints: dict[tuple[str, ...], Footprint] = {}
    jobs = []
    for job in plan_jobs(sorted(configs, key=_split), options.processes, lambda c: largest[c.net]):
        config = job.configs[0]
        key = (*_split(config), config.net, config.method)
        if key not in footprints:
            benchmark, method = benchmark_of(config), find_method(config.method)
            build = method.adapt_net(net_builder(config.net), benchmark.num_tasks)
            footprints[key] = Footprint.of(benchmark, method, _outline(config, build, benchmark))
        jobs.append((job, footprints[key]))
    check_footprints(jobs, options.processes)


def _split(config: TrialConfig) -> tuple[str, ...]:
    """What decides which benchmark is loaded, in an order to sort by."""
    return tuple(map(str, (config.benchmark, config.tasks, config.class_order, config.limit)))


@dataclass(frozen=True)
class Footprint:
    """What trials take of memory, in bytes, at the least: a method may keep more."""

    net: int
    """Of one trial: its parameters and what it keeps beside them."""
    sample: int
    """Of one sample in memory."""
    data: int
    """Of the dataset, which all trials of a process share."""

    @classmethod
    def of(cls, benchmark: Benchmark, method: type[Method], net: nn.Module) -> "Footprint":
        """Measure a net, which may be on the meta device, and a dataset."""
        state = [*net.parameters(), *net.buffers()]
        parts = (
            benchmark.train_inputs,
            benchmark.train_labels,
            benchmark.test_inputs,
            benchmark.test_labels,
        )
        logits = benchmark.num_classes * _NUMBER if method.stores_logits else 0
        keeps = method.uses_buffer()
        return cls(
            net=sum(tensor.numel() * tensor.element_size() for tensor in state),
            sample=math.prod(benchmark.input_shape) + _LABEL + logits if keeps else 0,
            data=sum(part.numel() * part.element_size() for part in parts),
        )

    def of_stack(self, config: TrialConfig, trials: int) -> int:
        """What a process needs for this many trials, their gradients and a checkpoint of them."""
        saved = trials * (self.net + config.buffer * self.sample)
        return saved * (1 + _COPIES_IN_A_CHECKPOINT) + trials * self.net + self.data


def check_footprints(jobs: Sequence[tuple[Job, Footprint]], processes: int) -> None:
    """Refuse jobs that would not fit if `processes` run at once; raises TooLargeError."""
    needs = [footprint.of_stack(job.configs[0], len(job.configs)) for job, footprint in jobs]
    if not needs:
        return
    largest = max(needs)
    job, footprint = jobs[needs.index(largest)]
    trials, buffer = len(job.configs), job.configs[0].buffer
    _check(
        largest,
        free_in_process(),
        f"training {trials} trial{'s' * (trials > 1)} at once",
        f"nets of {write_bytes(footprint.net)}, "
        f"a memory of {write_bytes(buffer * footprint.sample)} each",
    )
    together = heapq.nlargest(processes, needs)
    _check(
        sum(together),
        free_memory(),
        f"training in {len(together)} process{'es' * (len(together) > 1)}",
        f"up to {write_bytes(largest)} each, for {trials} trial{'s' * (trials > 1)} with nets of "
        f"{write_bytes(footprint.net)} and a memory of {write_bytes(buffer * footprint.sample)}",
    )


def _check(needed: int, free: int | None, purpose: str, why: str) -> None:
    if free is not None and needed > free:
        raise TooLargeError(
            f"{purpose} takes at least {write_bytes(needed)} of memory ({why}, their gradients and "
            f"their checkpoint), and {write_bytes(max(free, 0))} are free. Nothing was run. Take a "
            f"smaller --buffer or --net, a smaller --stack, or fewer --workers."
        )


def note_changed_code(
    store: Store, configs: Sequence[TrialConfig], remedy: str, console: PlainConsole
) -> None:
    """Say how many of these trials the store has of another version of the user's own code.

    `remedy` is what the user can do to run them again.
    """
    sources: dict[str, Source | None] = {}
    stale: list[set[str]] = []
    for config in dict.fromkeys(configs):
        if not any(map(names_own_code, (config.benchmark, config.method, config.net))):
            continue
        record = store.get(config.hash)
        if record is None or record.status == "failed":  # which is run again anyway
            continue
        for module in record.own_code.keys() - sources.keys():
            sources[module] = find_source(module)
        changed = {
            _shown(source.file)
            for module, fingerprint in record.own_code.items()
            if (source := sources[module]) is not None and source.fingerprint != fingerprint
        }
        if changed:
            stale.append(changed)
    if stale:
        files = " and ".join(sorted(set().union(*stale)))
        trials, them = ("trials are", "them") if len(stale) > 1 else ("trial is", "it")
        console.print(
            f"{len(stale)} {trials} of an older version of {files}; {remedy} {them} anew",
            style="yellow",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


def _shown(file: Path) -> str:
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
