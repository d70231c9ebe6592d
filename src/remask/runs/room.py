"""How much memory a run will take, so that one that cannot fit is refused before it begins."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from remask.benchmarks import Benchmark
from remask.config import TrialConfig
from remask.machine import TooLargeError, free_in_process, free_memory, write_bytes
from remask.methods import Method
from remask.runs.jobs import Job

_COPIES_IN_A_CHECKPOINT = 3
"""A checkpoint is put together in memory: copies of the tensors, their bytes, and the file."""
_LABEL, _NUMBER = 8, 4  # bytes


@dataclass(frozen=True)
class Room:
    """What trials take, in bytes, at the least: a method may keep more."""

    net: int
    """Of one trial: its parameters and what it keeps beside them."""
    sample: int
    """Of one sample in memory."""
    data: int
    """Of the dataset, which all trials of a process share."""

    @classmethod
    def of(cls, benchmark: Benchmark, method: type[Method], net: nn.Module) -> "Room":
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
        """What a process needs for so many trials: they, their gradients, a checkpoint of them."""
        saved = trials * (self.net + config.buffer * self.sample)
        return saved * (1 + _COPIES_IN_A_CHECKPOINT) + trials * self.net + self.data


def check_room(jobs: Sequence[tuple[Job, Room]], processes: int) -> None:
    """Refuse jobs that would not fit, run so many at a time; raises TooLargeError."""
    needs = [room.of_stack(job.configs[0], len(job.configs)) for job, room in jobs]
    if not needs:
        return
    largest = max(needs)
    job, room = jobs[needs.index(largest)]
    trials, buffer = len(job.configs), job.configs[0].buffer
    _check(
        largest,
        free_in_process(),
        f"training {trials} trial{'s' * (trials > 1)} at once",
        f"nets of {write_bytes(room.net)}, a memory of {write_bytes(buffer * room.sample)} each",
    )
    together = heapq.nlargest(processes, needs)
    _check(
        sum(together),
        free_memory(),
        f"training in {len(together)} process{'es' * (len(together) > 1)}",
        f"up to {write_bytes(largest)} each, for {trials} trial{'s' * (trials > 1)} with nets of "
        f"{write_bytes(room.net)} and a memory of {write_bytes(buffer * room.sample)}",
    )


def _check(needed: int, free: int | None, purpose: str, why: str) -> None:
    if free is not None and needed > free:
        raise TooLargeError(
            f"{purpose} takes at least {write_bytes(needed)} of memory ({why}, their gradients and "
            f"their checkpoint), and {write_bytes(max(free, 0))} are free. Nothing was run. Take a "
            f"smaller --buffer or --net, a smaller --stack, or fewer --workers."
        )
