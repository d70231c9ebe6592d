"""Class-balanced memories.

Every class keeps min(its samples, its fair share) of the slots, a uniform sample of the class.

- `ClassBalance` does not know the future (Chrysakis and Moens 2020). While there is room,
  everything is kept. Then a sample of a class that is entirely in memory, and smaller than the
  largest class, replaces a random sample of the largest; any other replaces a sample of its own
  class with the probability of reservoir sampling.
- `TaskBalance` knows the number of samples of each class in the task, so that a new class gets its
  share gradually, as in a plain reservoir. On Split-MNIST this is about one point better.

The next decision depends only on the classes in the slots, the samples offered per class and those
still to come; the random numbers of a sample depend only on its position in the epoch. A plan can
therefore begin at any step of an epoch.
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
"""The class of an empty slot. Slots are filled in order."""


class _Slots:
    """The class in each slot of one memory."""

    def __init__(self, classes: Integers, known: int) -> None:
        """Start from the classes in all slots, [M]; `known` is the number of classes."""
        self._capacity = len(classes)
        self.of_class: list[list[int]] = [[] for _ in range(known)]  # ascending
        for slot, label in enumerate(classes.tolist()):
            if label != EMPTY:
                self.of_class[label].append(slot)
        self._filled = sum(map(len, self.of_class))

    def fill(self, label: int) -> int | None:
        """Give the next empty slot to a sample of this class; None if all are full."""
        if self._filled == self._capacity:
            return None
        self._filled += 1
        self.of_class[label].append(self._filled - 1)
        return self._filled - 1

    def take(self, label: int, losers: Sequence[int], chance: float, choice: float) -> int:
        """Give a random slot of one of the losing classes to a sample of this class."""
        slots = self.of_class[losers[int(chance * len(losers))]]
        slot = slots.pop(int(choice * len(slots)))
        insort(self.of_class[label], slot)
        return slot


class ClassBalance:
    """Chooses the slot of each sample, without knowing the future."""

    def __init__(self, classes: Integers, offered: Integers) -> None:
        """Start from the classes in all slots, [M], and the samples offered per class, [K]."""
        self.offered: list[int] = offered.tolist()
        self._slots = _Slots(classes, len(self.offered))

    def offer(self, label: int, chance: float, choice: float) -> int:
        """Return the slot of a sample of this class, or -1; both numbers are random in [0, 1)."""
        self.offered[label] += 1
        if (slot := self._slots.fill(label)) is not None:
            return slot
        own = self._slots.of_class[label]
        if len(own) == self.offered[label] - 1:  # all samples before this one
            held = [len(slots) for slots in self._slots.of_class]
            if len(own) < (most := max(held)):
                largest = [other for other, count in enumerate(held) if count == most]
                return self._slots.take(label, largest, chance, choice)
        return _reservoir_slot(own, self.offered[label], chance, choice)

    def grow(self, classes: int) -> None:
        """Grow to `classes` classes."""
        for _ in range(classes - len(self.offered)):
            self.offered.append(0)
            self._slots.of_class.append([])


class TaskBalance:
    """Chooses the slot of each sample of a task whose class sizes are known."""

    def __init__(self, classes: Integers, offered: Integers, coming: Integers) -> None:
        """Start from the classes in all slots, [M].

        Per class, `offered` [K] samples came before, and `coming` [K] are still to come.
        """
        self._offered: list[int] = offered.tolist()
        self._slots = _Slots(classes, len(self._offered))
        self._in_the_end: list[int] = (offered + coming).tolist()
        self._shares = fair_shares(self._in_the_end, len(classes))

    def offer(self, label: int, chance: float, choice: float) -> int:
        """Return the slot of a sample of this class, or -1; both numbers are random in [0, 1)."""
        self._offered[label] += 1
        if (slot := self._slots.fill(label)) is not None:
            return slot
        own, offered = self._slots.of_class[label], self._offered[label]
        share, in_the_end = self._shares[label], self._in_the_end[label]
        if len(own) * in_the_end >= share * offered:  # the class has its share
            return _reservoir_slot(own, offered, chance, choice)
        if share * offered // in_the_end == len(own):  # its next slot is not due yet
            return -1
        surplus = [
            len(slots) - due for slots, due in zip(self._slots.of_class, self._shares, strict=True)
        ]
        most = max(surplus)
        losers = [other for other, more in enumerate(surplus) if more == most]
        return self._slots.take(label, losers, chance, choice)


def _reservoir_slot(own: list[int], offered: int, chance: float, choice: float) -> int:
    """Return a slot by reservoir sampling within a class, or -1."""
    return own[int(choice * len(own))] if chance * offered < len(own) else -1


def fair_shares(counts: Sequence[int], places: int) -> list[int]:
    """Divide places equally among classes, at most `counts` each."""
    shares = [0] * len(counts)
    open_classes = [label for label, count in enumerate(counts) if count]
    while places and open_classes:
        each, rest = divmod(places, len(open_classes))
        for number, label in enumerate(open_classes):
            more = min(counts[label] - shares[label], each or int(number < rest))
            shares[label] += more
            places -= more
        open_classes = [label for label in open_classes if shares[label] < counts[label]]
    return shares


def task_slots(
    classes: Integers, offered: Integers, labels: Integers, numbers: NDArray[np.float64]
) -> Integers:
    """Return the slots, or -1, of the remaining samples of a task with labels [n]: [n].

    The memory has `classes` [M] in its slots and was `offered` [K] samples per class; `numbers`
    [n, 2] are random in [0, 1).
    """
    memory = TaskBalance(classes, offered, np.bincount(labels, minlength=len(offered)))
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

    Before that step, the slots have `classes` [S, M], and each memory was `offered` [S, K] samples
    per class. The epoch has samples with `labels` [S, N]. Only the first epoch of a task, `key`
    (task, 0), offers them, so that no sample is stored twice. Steps before `begin` are undefined.
    """
    trials, capacity = classes.shape
    arrived = cumulative(sizes)
    first = int(arrived[begin])
    offers = key[-1] == 0
    held = int((classes[0] != EMPTY).sum())
    come = arrived - first if offers else np.zeros_like(arrived)
    filled = np.clip(held + come, 0, capacity)
    chosen, slots = [], []
    known: dict[tuple[int, bytes], Integers] = {}  # trials with the same seed share a memory
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
                known[name][first:] = task_slots(
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
