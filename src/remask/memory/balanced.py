"""Class-balanced reservoir sampling: no class vanishes, however unequal the classes are.

As in Chrysakis and Moens 2020: while there is room, everything is kept. Then a sample of a class
that has all of its samples in memory, and fewer than the largest class, replaces a random sample of
the largest; any other takes a random place of its own class with the probability that makes the
memory a uniform sample of the class. So every class keeps min(its samples, its fair share).

What a memory does next depends on the classes in its slots and on how many samples of each class
it has been offered, and on nothing else of the past. The random numbers of a sample depend on its
place in the epoch alone. So a plan can begin at any step of an epoch.
"""

from bisect import insort
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from remask.memory.reservoir import (
    Integers,
    ReservoirPlan,
    cumulative,
    last_candidates,
    lay_out,
    make_distinct,
)
from remask.randomness import generator

EMPTY = -1
"""The class of a slot that holds nothing. Slots are filled in their order."""


class ClassBalance:
    """The classes in the slots of one memory, which decides where a sample goes."""

    def __init__(self, classes: Integers, offered: Integers) -> None:
        """Go on from the classes in all slots, [M], and the samples offered of each class, [K]."""
        self._classes: list[int] = classes.tolist()
        self.offered: list[int] = offered.tolist()
        self._slots: list[list[int]] = [[] for _ in self.offered]  # of each class, ascending
        self._filled = 0
        for slot, label in enumerate(self._classes):
            if label != EMPTY:
                self._slots[label].append(slot)
                self._filled += 1
        self._largest = max(map(len, self._slots), default=0)

    def offer(self, label: int, chance: float, choice: float) -> int:
        """The slot that a sample of this class takes, or -1; both numbers are random in [0, 1)."""
        self.offered[label] += 1
        own = self._slots[label]
        if self._filled < len(self._classes):
            slot = self._filled
            self._filled += 1
            self._place(slot, label)
            return slot
        complete = len(own) == self.offered[label] - 1  # before this sample
        if complete and len(own) < self._largest:
            tied = [slots for slots in self._slots if len(slots) == self._largest]
            slots = tied[int(chance * len(tied))]
            slot = slots.pop(int(choice * len(slots)))
            if len(tied) == 1:
                self._largest -= 1
            self._place(slot, label)
            return slot
        if own and chance * self.offered[label] < len(own):
            return own[int(choice * len(own))]
        return -1

    def grow(self, classes: int) -> None:
        """Know so many classes."""
        for _ in range(classes - len(self.offered)):
            self.offered.append(0)
            self._slots.append([])

    def _place(self, slot: int, label: int) -> None:
        self._classes[slot] = label
        insort(self._slots[label], slot)
        self._largest = max(self._largest, len(self._slots[label]))


def balanced_slots(
    classes: Integers, offered: Integers, labels: Integers, numbers: NDArray[np.float64]
) -> Integers:
    """The slot of each of the next samples with these labels [n], or -1: [n].

    The memory has `classes` [M] in its slots and was `offered` [K] samples of each class; `numbers`
    [n, 2] are random in [0, 1).
    """
    memory = ClassBalance(classes, offered)
    triples = zip(labels.tolist(), *numbers.T.tolist(), strict=True)
    return np.array([memory.offer(*triple) for triple in triples], dtype=np.int64)


def plan_balanced(
    *,
    classes: Integers,
    offered: Integers,
    labels: Integers,
    sizes: Sequence[int],
    begin: int,
    draws: int,
    draw_size: int,
    seeds: Sequence[int],
    key: tuple[int, ...],
    device: torch.device | str = "cpu",
) -> ReservoirPlan:
    """Plan the steps of an epoch whose batches have `sizes`, from step `begin` on.

    Before that step, the slots have `classes` [S, M], and each memory has been `offered` [S, K]
    samples of each class. In the epoch, samples with `labels` [S, N] come. In the first epoch of a
    task, `key` (task, 0), they are offered to the memory; later they are not, so that no sample is
    in memory twice. What the plan says of steps before `begin` means nothing.
    """
    trials, capacity = classes.shape
    arrived = cumulative(sizes)
    first = int(arrived[begin])
    offers = key[-1] == 0
    held = int((classes[0] != EMPTY).sum())
    come = arrived - first if offers else np.zeros_like(arrived)
    filled = np.clip(held + come, 0, capacity)
    chosen, slots = [], []
    known: dict[tuple[int, bytes], Integers] = {}  # trials of one seed have one memory
    last = last_candidates(np.repeat(filled[:-1], draws), draw_size)
    for trial in range(trials):
        seed = seeds[trial]
        uniform = generator(seed, "balanced replay", *key).random(last.shape)
        chosen.append(make_distinct((uniform * (last + 1)).astype(np.int64), last))
        name = (seed, classes[trial].tobytes())
        if name not in known:
            known[name] = np.full(len(labels[trial]), -1, dtype=np.int64)
            if offers:
                numbers = generator(seed, "balanced", *key).random((len(labels[trial]), 2))
                known[name][first:] = balanced_slots(
                    classes[trial], offered[trial], labels[trial, first:], numbers[first:]
                )
        slots.append(known[name])
    return lay_out(
        chosen,
        slots,
        sizes=sizes,
        filled=filled,
        capacity=capacity,
        offers=offers,
        device=device,
    )
