"""Reservoir sampling: at any time a uniform sample of everything presented so far.

Which slot a sample takes and which slots a step replays depend on counters and random numbers
only, never on the network. So both are planned ahead for a whole epoch, and the inner step does
nothing but gather and copy rows (`Reservoir`).

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
    filled: list[int]
    """Before each step, and after the last, how many samples each trial holds."""
    offers: bool = True
    """Whether the samples of the epoch are offered to the memory at all."""


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
    """The plan of a stack from what each trial does by itself.

    Of each trial, `chosen` has the slots of all draws, step by step [steps * D, R], and `slots` the
    slot of each sample that is offered, or -1, [N]. `filled` is that of the plan, [steps + 1].
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
    """How many samples have come before each step, and after the last: [steps + 1]."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


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

    Every subset is equally likely. Where fewer slots are filled than asked for, the entries beyond
    min(size, filled) mean nothing.
    """
    last = last_candidates(filled, size)
    return make_distinct(random.integers(0, last + 1), last)


def last_candidates(filled: Integers, size: int) -> Integers:
    """Floyd's algorithm, on all draws at once: entry j may come from 0..last, [n, size]."""
    last: Integers = (filled - np.minimum(filled, size))[:, None] + np.arange(size)
    return last


def make_distinct(candidates: Integers, last: Integers) -> Integers:
    """Replace an entry that was taken before by its `last`, which cannot have been: [n, size]."""
    chosen = np.empty_like(candidates)
    for j in range(candidates.shape[1]):
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
