"""Reservoir sampling: a uniform sample of everything presented so far.

Slots and draws depend only on counters and random numbers, so both are planned for a whole epoch;
a step only gathers and copies rows (`Reservoir`). Slot j of trial s is row s * M + j.
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
    """The draws and insertions of each step of an epoch."""

    draws: list[torch.Tensor | None]
    """Per step, the rows to replay: int64 [S, D * R] (D independent draws); None while empty."""
    kept: list[tuple[torch.Tensor, torch.Tensor] | None]
    """Per step, (rows of the stacked batch [n], the slots they go to [n]); None if none is kept."""
    filled: list[int]
    """Samples in memory before each step and after the last."""
    offers: bool = True
    """Whether the epoch's samples are offered to the memory."""


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

    A step first draws, then offers its own batch.
    """
    filled = np.minimum(capacity, seen + cumulative(sizes))
    chosen = [
        draw_distinct(generator(seed, "replay", *key), np.repeat(filled[:-1], draws), draw_size)
        for seed in seeds
    ]
    slots = [
        offer_slots(generator(seed, "reservoir", *key), seen, sum(sizes), capacity)
        for seed in seeds
    ]
    return lay_out(chosen, slots, sizes=sizes, filled=filled, capacity=capacity, device=device)


def lay_out(
    chosen: Sequence[Integers],
    slots: Sequence[Integers],
    *,
    sizes: Sequence[int],
    filled: Integers,
    capacity: int,
    offers: bool = True,
    device: torch.device | str,
) -> ReservoirPlan:
    """Combine the trials' own draws and insertions into the plan of a stack.

    Per trial, `chosen` has the slots of all draws, [steps * D, R], and `slots` the slot of each
    offered sample or -1, [N]. `filled` is that of the plan, [steps + 1].
    """
    trials, draw_size = len(chosen), chosen[0].shape[1]
    offsets = np.arange(trials, dtype=np.int64) * capacity
    drawn = np.stack(chosen).reshape(trials, len(sizes), -1, draw_size)
    drawn = drawn + offsets[:, None, None, None]
    by_step = torch.from_numpy(drawn).transpose(0, 1).contiguous().to(device)
    planned_draws = [
        rows[..., : min(draw_size, int(n))].flatten(1) if n and rows.numel() else None
        for rows, n in zip(by_step, filled[:-1], strict=True)
    ]

    offered = np.stack(slots)
    kept: list[tuple[torch.Tensor, torch.Tensor] | None] = []
    start = 0
    for size in sizes:
        batch = _drop_overwritten(offered[:, start : start + size])
        owners, positions = np.nonzero(batch >= 0)
        start += size
        if len(owners) == 0:
            kept.append(None)
            continue
        source = torch.from_numpy(owners * size + positions).to(device)
        target = torch.from_numpy(batch[owners, positions] + offsets[owners]).to(device)
        kept.append((source, target))
    return ReservoirPlan(planned_draws, kept, filled.tolist(), offers)


def cumulative(sizes: Sequence[int]) -> Integers:
    """Return the number of samples before each step and after the last: [steps + 1]."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def offer_slots(random: np.random.Generator, seen: int, count: int, capacity: int) -> Integers:
    """Return the slot of each of the next `count` samples, or -1 if it is not kept: [count].

    Sample n (from 0) takes slot n while there is room, then a slot drawn from 0..n, if it exists.
    """
    numbers = np.arange(seen, seen + count, dtype=np.int64)
    drawn = random.integers(0, numbers + 1)
    return np.where(numbers < capacity, numbers, np.where(drawn < capacity, drawn, -1))


def draw_distinct(random: np.random.Generator, filled: Integers, size: int) -> Integers:
    """Draw n times min(size, filled) distinct slots of 0..filled-1: [n, size].

    Every subset is equally likely. Entries beyond min(size, filled) are undefined.
    """
    last = last_candidates(filled, size)
    return make_distinct(random.integers(0, last + 1), last)


def last_candidates(filled: Integers, size: int) -> Integers:
    """Return the bounds of Floyd's algorithm: entry j is drawn from 0..last, [n, size]."""
    last: Integers = (filled - np.minimum(filled, size))[:, None] + np.arange(size)
    return last


def make_distinct(candidates: Integers, last: Integers) -> Integers:
    """Replace repeated entries by their `last`, which is always free: [n, size]."""
    chosen = np.empty_like(candidates)
    for j in range(candidates.shape[1]):
        repeated = (chosen[:, :j] == candidates[:, j, None]).any(axis=1)
        chosen[:, j] = np.where(repeated, last[:, j], candidates[:, j])
    return chosen


def _drop_overwritten(slots: Integers) -> Integers:
    """Drop samples that a later one of the same batch overwrites: [S, B] -> [S, B].

    Torch does not define the order of copies to repeated indices.
    """
    same = (slots[:, :, None] == slots[:, None, :]) & (slots[:, :, None] >= 0)
    overwritten = np.triu(same, k=1).any(axis=2)
    return np.where(overwritten, -1, slots)
