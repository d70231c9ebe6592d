"""Policies beside the plain reservoir: class balance, and merging.

Balance: every class keeps min(its samples, its fair share) of the slots, a uniform sample of the
class.

- `ClassBalance` does not know the future (Chrysakis and Moens 2020). While there is room,
  everything is kept. Then a sample of a class that is entirely in memory, and smaller than the
  largest class, replaces a random sample of the largest; any other replaces a sample of its own
  class with the probability of reservoir sampling.
- `TaskBalance` knows the number of samples of each class in the task, so that a new class gets its
  share gradually, as in a plain reservoir. On Split-MNIST this is about one point better.

The next decision depends only on the classes in the slots, the samples offered per class and those
still to come; the random numbers of a sample depend only on its position in the epoch. A plan can
therefore begin at any step of an epoch.

Merging: a sample x without a slot moves the nearest sample c of its class:
c <- c + (x - c) / min(n, MOST), where n counts the samples merged into that slot, including x. A
slot thus becomes the mean of its neighbourhood. A few means represent a class better than single
samples; many do not, hence SPARSE.
"""

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

EMPTY = -1
"""The class of an empty slot. Slots are filled in order."""
SPARSE = 16
"""Merging starts when a memory holds less than one in so many of the samples so far."""
MOST = 4
"""A slot moves as if at most this many samples were merged into it."""
WINDOW = 256
"""How many slots a step searches, so that its cost does not depend on the size of the memory."""

Integers = NDArray[np.int64]


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


class Places(NamedTuple):
    """The memories of S trials with M slots each, concatenated."""

    inputs: Tensor
    """[S * M, *shape], floating point or uint8."""
    labels: Tensor
    """int64 [S * M]."""
    logits: Tensor | None
    """[S * M, K]."""
    counts: Tensor
    """uint8 [S * M]: samples merged into each slot, at most MOST; initially 1."""


@torch.no_grad()
def merge(
    places: Places,
    inputs: Tensor,
    labels: Tensor,
    logits: Tensor | None,
    *,
    kept: Tensor | None,
    number: int,
) -> None:
    """Merge batches [S, B, *shape] with labels [S, B] and logits [S, B, K] into full memories.

    `kept` are the numbers, among all S * B, of samples with a slot of their own. The `number` of
    the step selects the window. Does not wait for the host.
    """
    trials, batch = labels.shape
    capacity = len(places.labels) // trials
    first = number * WINDOW % capacity
    last = min(first + WINDOW, capacity)
    near, found = _nearest(
        inputs.flatten(2).float(),
        labels,
        places.inputs.view(trials, capacity, -1)[:, first:last].float(),
        places.labels.view(trials, capacity)[:, first:last],
    )
    loose = found.flatten()
    if kept is not None:
        loose = loose.index_fill(0, kept, False)
    moves = _last_at_each_place(near, loose.view(trials, batch)).flatten()
    offsets = capacity * torch.arange(trials, device=near.device).unsqueeze(1)
    rows = (near + first + offsets).flatten()
    counts = places.counts.index_add_(0, rows, moves.to(torch.uint8)).clamp_(max=MOST)
    shares = moves / counts.index_select(0, rows)
    _move(places.inputs, rows, inputs.flatten(0, 1), shares)
    if places.logits is not None and logits is not None:
        _move(places.logits, rows, logits.flatten(0, 1), shares)


def _nearest(
    inputs: Tensor, labels: Tensor, places: Tensor, classes: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the nearest slot [S, C, D] of the same class for inputs [S, B, D], and if any is."""
    squares = torch.linalg.vector_norm(places, dim=2).square().unsqueeze(1)
    distances = torch.baddbmm(squares, inputs, places.transpose(1, 2), alpha=-2)
    others = labels.unsqueeze(2) != classes.unsqueeze(1)
    least, near = distances.masked_fill(others, torch.inf).min(2)
    return near, least.isfinite()


def _last_at_each_place(near: Tensor, loose: Tensor) -> Tensor:
    """Mark the last of the loose samples that go to the same slot: bool [S, B]."""
    same = near.unsqueeze(2) == near.unsqueeze(1)
    later = (same & loose.unsqueeze(1)).triu(1).any(2)
    return loose & ~later


def _move(stored: Tensor, rows: Tensor, towards: Tensor, shares: Tensor) -> None:
    """Move stored rows [n] towards others [n, ...], by a share [n] of the distance."""
    old = stored.index_select(0, rows)
    shares = shares.view(-1, *[1] * (old.ndim - 1))
    change = (towards.float() - old.float()) * shares
    change = change.masked_fill(shares == 0, 0)  # 0 * inf is NaN
    if not stored.is_floating_point():  # uint8 wraps around: adding 255 subtracts 1
        change = change.round().to(torch.int16)
    stored.index_add_(0, rows, change.to(stored.dtype))
