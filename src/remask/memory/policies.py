"""Policies beside the plain reservoir: class balance, and merging.

Balance: every class keeps min(its samples, its fair share) of the slots, a uniform sample of the
class.

- `ClassBalance` is given one sample at a time (Chrysakis and Moens 2020). While there is room,
  everything is kept. Then a sample of a class that is entirely in memory, and smaller than the
  largest class, replaces a random sample of the largest; any other replaces a sample of its own
  class with the probability of reservoir sampling.
- `TaskBalance` is given the number of samples of each class in the task, so that a new class gets
  its share gradually, as in a plain reservoir. On Split-MNIST this is about one point better.

The next decision depends only on the classes in the slots, the samples offered per class and those
still to come; the random numbers of a sample depend only on its position in the epoch. A plan can
therefore begin at any step of an epoch.

Merging: a sample x without a slot moves the nearest sample c of its class:
c <- c + (x - c) / min(n, MOST), where n counts the samples merged into that slot, including x. A
slot thus becomes the mean of its neighbourhood. A few means represent a class better than single
samples; many do not, hence SPARSE.
"""

from abc import ABC, abstractmethod
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
"""Merging starts when a memory holds less than one in `SPARSE` of the samples so far."""
MOST = 4
"""A slot moves as if at most this many samples were merged into it."""
WINDOW = 256
"""How many slots a step searches, so that its cost does not depend on the size of the memory."""

Integers = NDArray[np.int64]


class _Balance(ABC):
    """Chooses the slot of each sample, given the classes in all slots."""

    def __init__(self, classes: Integers, offered: Integers) -> None:
        """Start from the classes in all slots, [M], and the samples offered per class, [K]."""
        self.offered: list[int] = offered.tolist()
        self._empty = int((classes == EMPTY).sum())
        self._capacity = len(classes)
        self._slots: list[list[int]] = [  # of each class, ascending
            np.flatnonzero(classes == label).tolist() for label in range(len(offered))
        ]

    def offer(self, label: int, chance: float, choice: float) -> int:
        """Return the slot of a sample of this class, or -1; both numbers are random in [0, 1)."""
        self.offered[label] += 1
        own = self._slots[label]
        if self._empty:
            own.append(self._capacity - self._empty)
            self._empty -= 1
            return own[-1]
        losers = self._losers(label)
        if losers is None:  # reservoir sampling within the class
            return own[int(choice * len(own))] if chance * self.offered[label] < len(own) else -1
        if not losers:
            return -1
        slots = self._slots[losers[int(chance * len(losers))]]
        slot = slots.pop(int(choice * len(slots)))
        insort(own, slot)
        return slot

    @abstractmethod
    def _losers(self, label: int) -> list[int] | None:
        """Return the classes, one of which loses a slot to this class; None: only the class itself.

        The list is empty if the sample is not kept.
        """


class ClassBalance(_Balance):
    """Balances classes without the sizes of those to come."""

    def _losers(self, label: int) -> list[int] | None:
        held = len(self._slots[label])
        if held < self.offered[label] - 1:  # not all samples before this one are in memory
            return None
        counts = [len(slots) for slots in self._slots]
        most = max(counts)
        return _equal_to(most, counts) if held < most else None

    def grow(self, classes: int) -> None:
        """Grow to `classes` classes."""
        for _ in range(classes - len(self.offered)):
            self.offered.append(0)
            self._slots.append([])


class TaskBalance(_Balance):
    """Balances the classes of a task, given their sizes."""

    def __init__(self, classes: Integers, offered: Integers, coming: Integers) -> None:
        super().__init__(classes, offered)
        self._in_the_end: list[int] = (offered + coming).tolist()
        self._shares = fair_shares(self._in_the_end, len(classes))

    def _losers(self, label: int) -> list[int] | None:
        share, in_the_end = self._shares[label], self._in_the_end[label]
        held, offered = len(self._slots[label]), self.offered[label]
        if held * in_the_end >= share * offered:  # the class has its share
            return None
        if share * offered // in_the_end == held:  # its next slot is not due yet
            return []
        surplus = [len(own) - due for own, due in zip(self._slots, self._shares, strict=True)]
        return _equal_to(max(surplus), surplus)


def _equal_to(value: int, values: list[int]) -> list[int]:
    return [index for index, each in enumerate(values) if each == value]


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
