"""Before a run: fetch its data, and refuse what cannot be run."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch

from remask.config import TrialConfig
from remask.console import PlainConsole
from remask.data.dataset import fetch
from remask.data.registry import BENCHMARKS
from remask.engine import check_config, preferred_stack
from remask.errors import SettingsError
from remask.experiments.data import benchmark_of
from remask.experiments.display import download_bar
from remask.experiments.options import RunOptions
from remask.machine import require_room
from remask.methods import find_method
from remask.nets.builders import net_builder
from remask.own_code import Source, find_source, names_own_code
from remask.store.store import Store


def fetch_data(configs: Sequence[TrialConfig], options: RunOptions) -> None:
    """Fetch missing datasets once, before any worker needs them."""
    names = list(dict.fromkeys(config.benchmark for config in configs))
    if options.data is not None and (len(names) > 1 or names[0] not in BENCHMARKS):
        raise SettingsError(f"`data` is for one of remask's datasets, not for {', '.join(names)}")
    for info in (BENCHMARKS[name] for name in names if name in BENCHMARKS):
        with download_bar(options.console) as bar:
            fetch(info.dataset, progress=bar, data=options.data)


def largest_stacks(
    configs: Sequence[TrialConfig], options: RunOptions, *, check_memory: bool = False
) -> dict[str, int]:
    """The number of trials to stack, by net. Refuses splits, nets and settings that cannot run.

    With `check_memory`, also refuses a trial that needs more than the free memory: the system would
    kill the process without a message.
    """
    largest: dict[str, int] = {}
    built = set()
    for config in sorted(configs, key=_split):  # loads each benchmark once
        benchmark, method = benchmark_of(config), find_method(config.method)
        check_config(config, method, benchmark)
        if (key := (*_split(config), config.net, config.method)) in built:
            continue
        built.add(key)
        # The user's own code is run as in training; others need no memory for the weights.
        with nullcontext() if names_own_code(config.net) else torch.device("meta"):
            build, shape = net_builder(config.net), benchmark.input_shape
            net = build(shape, benchmark.num_classes)
            method.adapt_net(build, benchmark.num_tasks)(shape, benchmark.num_classes)
        if check_memory:
            size = sum(weight.numel() * weight.element_size() for weight in net.parameters())
            size += config.buffer * math.prod(shape)
            require_room(size, f"{config.net} with a buffer of {config.buffer:,}")
        largest[config.net] = options.stack or preferred_stack(net, options.device)
    return largest


def _split(config: TrialConfig) -> tuple[str, ...]:
    """The settings that identify a loaded benchmark, sortable."""
    return tuple(map(str, (config.benchmark, config.tasks, config.class_order, config.limit)))


def note_changed_code(store: Store, configs: Sequence[TrialConfig], console: PlainConsole) -> None:
    """Print how many stored trials were run with another version of the user's own code."""
    here = Path.cwd()
    files: set[str] = set()
    changed = 0
    sources: dict[str, Source | None] = {}
    for config in dict.fromkeys(configs):
        if not any(map(names_own_code, (config.benchmark, config.method, config.net))):
            continue
        record = store.get(config.hash)
        if record is None or record.status == "failed":  # it is run again anyway
            continue
        for module in record.own_code.keys() - sources.keys():
            sources[module] = find_source(module)
        stale = {
            source.file
            for module, fingerprint in record.own_code.items()
            if (source := sources[module]) is not None and source.fingerprint != fingerprint
        }
        changed += bool(stale)
        files |= {str(f.relative_to(here) if f.is_relative_to(here) else f) for f in stale}
    if changed:
        console.print(
            f"{changed} stored trial{'s were' if changed > 1 else ' was'} run with an older "
            f"version of {' and '.join(sorted(files))}; `again` (--again) runs them again",
            style="yellow",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
