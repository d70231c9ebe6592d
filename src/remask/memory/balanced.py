"""Class-balanced memories: no class vanishes, however unequal the classes are.

Every class keeps min(its samples, its fair share) of the places, and what it keeps is a uniform
sample of what came. There are two ways to get there:

- `ClassBalance` does not know what will come (Chrysakis and Moens 2020). While there is room,
  everything is kept. Then a sample of a class that has all of its samples in memory, and fewer than
  the largest class, replaces a random sample of the largest; any other takes a random place of its
  own class with the probability that makes the memory a uniform sample of the class.
- `TaskBalance` knows how many samples of each class the task has, so a new class need not push the
  old ones out at once: while its samples come, it gets its share step by step, as it would in a
  plain reservoir. With classes of one size, that ends about a point higher on Split-MNIST.

What a memory does next depends on the classes in its slots, on how many samples of each class it
has been offered and on those still to come, and on nothing else of the past. The random numbers of
a sample depend on its place in the epoch alone. So a plan can begin at any step of an epoch.
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


class _Slots:
    """Which class is in each slot of one memory."""

    def __init__(self, classes: Integers, known: int) -> None:
        """Go on from the classes in all slots, [M], of so many classes that are known."""
        self._capacity = len(classes)
        self.of_class: list[list[int]] = [[] for _ in range(known)]  # ascending
        for slot, label in enumerate(classes.tolist()):
            if label != EMPTY:
                self.of_class[label].append(slot)
        self._filled = sum(map(len, self.of_class))

    def fill(self, label: int) -> int | None:
        """The next empty slot, which a sample of this class gets; None if there is none."""
        if self._filled == self._capacity:
            return None
        self._filled += 1
        self.of_class[label].append(self._filled - 1)  # later than all others
        return self._filled - 1

    def take(self, label: int, losers: Sequence[int], chance: float, choice: float) -> int:
        """A random slot of one of the losing classes, which a sample of this class gets."""
        slots = self.of_class[losers[int(chance * len(losers))]]
        slot = slots.pop(int(choice * len(slots)))
        insort(self.of_class[label], slot)
        return slot


class ClassBalance:
    """Decides where each sample goes in a memory that does not know what will come."""

    def __init__(self, classes: Integers, offered: Integers) -> None:
        """Go on from the classes in all slots, [M], and the samples offered of each class, [K]."""
        self.offered: list[int] = offered.tolist()
        self._slots = _Slots(classes, len(self.offered))

    def offer(self, label: int, chance: float, choice: float) -> int:
        """The slot that a sample of this class takes, or -1; both numbers are random in [0, 1)."""
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
        """Know so many classes."""
        for _ in range(classes - len(self.offered)):
            self.offered.append(0)
            self._slots.of_class.append([])


class TaskBalance:
    """Decides where each sample of a task goes in a memory that knows how many will come."""

    def __init__(self, classes: Integers, offered: Integers, coming: Integers) -> None:
        """Go on from the classes in all slots, [M]; of each class, `coming` [K] are still to come.

        `offered` [K] have come, in this task and before it.
        """
        self._offered: list[int] = offered.tolist()
        self._slots = _Slots(classes, len(self._offered))
        self._in_the_end: list[int] = (offered + coming).tolist()
        self._shares = fair_shares(self._in_the_end, len(classes))

    def offer(self, label: int, chance: float, choice: float) -> int:
        """The slot that a sample of this class takes, or -1; both numbers are random in [0, 1)."""
        self._offered[label] += 1
        if (slot := self._slots.fill(label)) is not None:
            return slot
        own, offered = self._slots.of_class[label], self._offered[label]
        share, in_the_end = self._shares[label], self._in_the_end[label]
        if len(own) * in_the_end >= share * offered:  # it has its share of what has come, or more
            return _reservoir_slot(own, offered, chance, choice)
        if share * offered // in_the_end == len(own):  # its next place is not due yet
            return -1
        surplus = [
            len(slots) - due for slots, due in zip(self._slots.of_class, self._shares, strict=True)
        ]
        most = max(surplus)
        losers = [other for other, more in enumerate(surplus) if more == most]
        return self._slots.take(label, losers, chance, choice)


def _reservoir_slot(own: list[int], offered: int, chance: float, choice: float) -> int:
    """Reservoir sampling within the slots of a class, with this sample the last offered; or -1."""
    return own[int(choice * len(own))] if chance * offered < len(own) else -1


def fair_shares(counts: Sequence[int], places: int) -> list[int]:
    """Divide places among classes that have so many samples each: equally, as far as they have."""
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
    """The slot of each of the samples of a task that are left, with labels [n], or -1: [n].

    The memory has `classes` [M] in its slots and was `offered` [K] samples of each class; `numbers`
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
