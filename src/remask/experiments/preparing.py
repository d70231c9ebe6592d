"""Before trials are run: their data is fetched, and what could not be run is refused."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import torch
from torch import nn

from remask.benchmarks import BENCHMARKS, Benchmark
from remask.config import TrialConfig
from remask.datasets import fetch
from remask.engine import check_config, preferred_stack
from remask.errors import SettingsError
from remask.experiments.progress import download_bar
from remask.methods import find_method
from remask.nets import NetBuilder, net_builder
from remask.own_code import names_own_code
from remask.runs import Room, RunOptions, benchmark_of, check_room, plan_jobs


def fetch_data(configs: Sequence[TrialConfig], how: RunOptions) -> None:
    """Fetch what is missing here, with a progress bar, not in every worker."""
    names = list(dict.fromkeys(config.benchmark for config in configs))
    if how.data is not None and (len(names) > 1 or names[0] not in BENCHMARKS):
        raise SettingsError(
            f"--data is for one of remask's own datasets at a time, not for {', '.join(names)}"
        )
    for info in (BENCHMARKS[name] for name in names if name in BENCHMARKS):
        with download_bar(how.console) as bar:
            fetch(info.dataset, progress=bar, data=how.data)


def largest_stacks(configs: Sequence[TrialConfig], how: RunOptions) -> dict[str, int]:
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
            largest[config.net] = how.stack or preferred_stack(net, how.device)
            _outline(config, method.adapt_net(build, benchmark.num_tasks), benchmark)
    return largest


def _outline(config: TrialConfig, build: NetBuilder, benchmark: Benchmark) -> nn.Module:
    """A net to look at: without its numbers, for which there may be no room, unless it is own code.

    Code of the user's own is tried as it will be run.
    """
    with nullcontext() if names_own_code(config.net) else torch.device("meta"):
        return build(benchmark.input_shape, benchmark.num_classes)


def check_memory(
    configs: Sequence[TrialConfig], largest: Mapping[str, int], how: RunOptions
) -> None:
    """Refuse stacks that would not fit into memory."""
    if torch.device(how.device).type != "cpu":
        return  # what a device holds, its own driver tells
    rooms: dict[tuple[str, ...], Room] = {}
    jobs = []
    for job in plan_jobs(sorted(configs, key=_split), how.processes, lambda c: largest[c.net]):
        config = job.configs[0]
        key = (*_split(config), config.net, config.method)
        if key not in rooms:
            benchmark, method = benchmark_of(config), find_method(config.method)
            build = method.adapt_net(net_builder(config.net), benchmark.num_tasks)
            rooms[key] = Room.of(benchmark, method, _outline(config, build, benchmark))
        jobs.append((job, rooms[key]))
    check_room(jobs, how.processes)


def _split(config: TrialConfig) -> tuple[str, ...]:
    """What decides which benchmark is loaded, in an order to sort by."""
    return tuple(map(str, (config.benchmark, config.tasks, config.class_order, config.limit)))
