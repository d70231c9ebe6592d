"""How many trials of a kind fit into a device's memory, found by training one and two of them.

Memory grows evenly with the trials of a stack: each has its net, gradients, activations and replay
memory, and all share the data. So two measurements tell what any number takes.
"""

from collections.abc import Callable

import torch

from remask.benchmarks import Benchmark
from remask.config import TrialConfig
from remask.engine import TrialStack
from remask.machine import TooLargeError, write_bytes
from remask.runs.options import RunOptions

_USABLE = 0.9
"""The share of the free memory that is counted on: allocators leave gaps."""
_STEPS = 3
MOST_TRIALS = 64
"""More in a stack than this gain nothing."""


def trials_that_fit(needed: Callable[[int], int], free: int, most: int = MOST_TRIALS) -> int:
    """The largest stack that fits into so many free bytes; `needed` measures one of a given size.

    Raises TooLargeError if not even one trial does.
    """
    one, two = needed(1), needed(2)
    per_trial = max(two - one, 1)
    shared = max(one - per_trial, 0)
    usable = int(free * _USABLE)
    if one > usable:
        raise TooLargeError(
            f"one trial takes {write_bytes(one)} of the device's memory, and {write_bytes(usable)} "
            f"can be used; take a smaller buffer, batch or net"
        )
    return min((usable - shared) // per_trial, most)


def largest_stack_on(config: TrialConfig, benchmark: Benchmark, options: RunOptions) -> int:
    """How many trials like this one fit on the device, which is not the CPU."""
    device = torch.device(options.device)
    of_device = torch.get_device_module(device)

    def peak(trials: int) -> int:
        of_device.empty_cache()
        of_device.reset_peak_memory_stats(device)
        before = of_device.memory_allocated(device)
        configs = [config.model_copy(update={"seed": seed}) for seed in range(trials)]
        stack = TrialStack(configs, benchmark, device=device)
        for step, _ in enumerate(stack.run(), start=1):
            if step == _STEPS:
                break
        return int(of_device.max_memory_allocated(device) - before)

    free, _ = of_device.mem_get_info(device)
    return trials_that_fit(peak, free)
