"""Reservoir memory: at any time a uniform sample of everything presented so far.

Which slot a sample takes and which slots a step replays depend on counters and random numbers
only, never on the network. So both are planned ahead for a whole epoch (`plan_reservoir`), and
the inner step does nothing but gather and copy rows (`Reservoir`).

Trials of a stack are laid out one after the other: slot j of trial s is row s * M + j.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from remask.randomness import generator

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ReservoirPlan:
    """What the memory does in each step of an epoch."""

    draws: list[torch.Tensor | None]
    """Per step, the rows to replay: int64 [S, D * R] (D independent draws); None while empty."""
    kept: list[tuple[torch.Tensor, torch.Tensor] | None]
    """Per step, (rows of the stacked batch [n], the slots they go to [n]); None if none is kept."""
    presented: list[int]
    """Before each step, and after the last, how many samples each trial has been offered."""


def plan_reservoir(
    *,
    capacity: int,
    seen: int,
    sizes: Sequence[int],
    draws: int,
    draw_size: int,
    seeds: Sequence[int],
    key: tuple[int, ...],
    device: torch.device | str = "cpu",
) -> ReservoirPlan:
    """Plan the steps of an epoch whose batches have `sizes`, after `seen` presentations.

    A step first draws from what was there before it, then offers its own batch.
    """
    seen_before = seen + np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    filled = np.minimum(seen_before, capacity)
    offsets = np.arange(len(seeds), dtype=np.int64) * capacity

    chosen = np.stack(
        [
            draw_distinct(generator(seed, "replay", *key), np.repeat(filled, draws), draw_size)
            for seed in seeds
        ]
    )  # [S, steps * D, R]
    chosen = chosen.reshape(len(seeds), len(sizes), draws, draw_size) + offsets[:, None, None, None]
    by_step = torch.from_numpy(chosen).transpose(0, 1).contiguous().to(device)
    planned_draws = [
        rows[..., : min(draw_size, int(n))].flatten(1) if n and draws else None
        for rows, n in zip(by_step, filled, strict=True)
    ]

    slots = np.stack(
        [
            offer_slots(generator(seed, "reservoir", *key), seen, sum(sizes), capacity)
            for seed in seeds
        ]
    )  # [S, N]
    kept: list[tuple[torch.Tensor, torch.Tensor] | None] = []
    start = 0
    for size in sizes:
        batch = _drop_overwritten(slots[:, start : start + size])
        trials, positions = np.nonzero(batch >= 0)
        start += size
        if len(trials) == 0:
            kept.append(None)
            continue
        source = torch.from_numpy(trials * size + positions).to(device)
        target = torch.from_numpy(batch[trials, positions] + offsets[trials]).to(device)
        kept.append((source, target))
    return ReservoirPlan(planned_draws, kept, [seen, *(seen + np.cumsum(sizes)).tolist()])


def offer_slots(random: np.random.Generator, seen: int, count: int, capacity: int) -> Integers:
    """The slot of each of the next `count` samples, or -1 where it is not kept: [count].

    Sample number n (from 0) takes slot n while there is room, then a slot drawn from 0..n if that
    is one of the memory's.
    """
    numbers = np.arange(seen, seen + count, dtype=np.int64)
    drawn = random.integers(0, numbers + 1)
    return np.where(numbers < capacity, numbers, np.where(drawn < capacity, drawn, -1))


def draw_distinct(random: np.random.Generator, filled: Integers, size: int) -> Integers:
    """For each of n draws, min(size, filled) distinct slots of 0..filled-1: [n, size].

    Floyd's algorithm, on all draws at once: every subset is equally likely. Where fewer slots are
    filled than asked for, the entries beyond min(size, filled) mean nothing.
    """
    taken = np.minimum(filled, size)
    chosen = np.empty((len(filled), size), dtype=np.int64)
    # Entry j may come from 0..last; one that was taken before is replaced by `last`, which cannot
    # have been.
    last = np.maximum((filled - taken)[:, None] + np.arange(size), 0)
    candidates = random.integers(0, last + 1)
    for j in range(size):
        repeated = (chosen[:, :j] == candidates[:, j, None]).any(axis=1)
        chosen[:, j] = np.where(repeated, last[:, j], candidates[:, j])
    return chosen


def _drop_overwritten(slots: Integers) -> Integers:
    """Mark as not kept what a later sample of the same batch overwrites: [S, B] -> [S, B].

    A copy to repeated indices has no defined order in torch.
    """
    same = (slots[:, :, None] == slots[:, None, :]) & (slots[:, :, None] >= 0)
    overwritten = np.triu(same, k=1).any(axis=2)
    return np.where(overwritten, -1, slots)


class Reservoir:
    """The stored samples of a stack of trials: rows [S * M] of inputs, labels and logits."""

    def __init__(
        self,
        *,
        trials: int,
        capacity: int,
        input_shape: tuple[int, ...],
        input_type: torch.dtype,
        num_classes: int,
        stores_logits: bool,
        device: torch.device | str = "cpu",
    ) -> None:
        rows = trials * capacity
        self._trials, self._capacity = trials, capacity
        self.presented = 0
        """How many samples each trial has been offered so far."""
        self.inputs = torch.zeros((rows, *input_shape), dtype=input_type, device=device)
        self.labels = torch.zeros(rows, dtype=torch.int64, device=device)
        self.logits = torch.zeros((rows, num_classes), device=device) if stores_logits else None

    @property
    def filled(self) -> int:
        """How many samples each trial holds."""
        return min(self._capacity, self.presented)

    def at(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and labels in slots of each trial, int64 [S, n]: [S, n, *shape], [S, n]."""
        trials = torch.arange(self._trials, device=slots.device)
        rows = slots + self._capacity * trials.unsqueeze(1)
        return self.inputs[rows], self.labels[rows]

    def insert(
        self,
        kept: tuple[torch.Tensor, torch.Tensor],
        *,
        rows: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        logits: torch.Tensor,
    ) -> None:
        """Copy the kept samples of a batch to their slots.

        The batch is given by its `rows` [S * B] of the train set's `inputs` and `labels`, and by
        the `logits` [S, B, K] that the network gave it.
        """
        source, target = kept
        rows = rows.index_select(0, source)
        self.inputs.index_copy_(0, target, inputs.index_select(0, rows))
        self.labels.index_copy_(0, target, labels.index_select(0, rows))
        if self.logits is not None:
            self.logits.index_copy_(0, target, logits.flatten(0, 1).index_select(0, source))

    def state(self) -> dict[str, torch.Tensor]:
        """The tensors to save and restore; they are the live ones, not copies."""
        tensors = {"inputs": self.inputs, "labels": self.labels}
        return tensors if self.logits is None else {**tensors, "logits": self.logits}
