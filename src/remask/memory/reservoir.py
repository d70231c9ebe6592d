"""Reservoir sampling for a stack of trials: a uniform sample of everything presented so far.

Slots and draws depend only on counters and random numbers, so both are planned for a whole epoch;
a step only gathers and copies rows. Slot j of trial s is row s * M + j.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remask.memory.policies import EMPTY, Integers, Places, merge, task_slots
from remask.memory.rows import JoinedRows, SampleFileError, StoredRows, fetch
from remask.randomness import generator

_MARKED = 2**24  # bytes

Kept = tuple[Tensor, Tensor]
"""Rows of the stacked batch, int64 [n], and the slots they go to, int64 [n]."""


@dataclass(frozen=True, eq=False)
class ReservoirPlan:
    """The draws and insertions of each step of an epoch."""

    chosen: Integers
    """The slots to replay, [S, steps, D, R] (D independent draws), of which `size` are defined."""
    slots: Integers
    """The slot that each sample of the stream takes, or -1: [S, N]."""
    ends: list[int]
    """Where the samples of the steps begin and end: [steps + 1]."""
    filled: list[int]
    """Samples in memory before each step and after the last."""
    offers: bool
    """Whether the epoch's samples are offered to the memory."""
    capacity: int
    device: torch.device

    def size(self, number: int) -> int:
        """The samples of each draw of a step."""
        return min(int(self.chosen.shape[3]), self.filled[number])

    def draws(self, number: int) -> Tensor | None:
        """The rows to replay in a step: int64 [S, D * R]; None while the memory is empty."""
        slots = self.chosen[:, number, :, : self.size(number)]
        if not slots.size:
            return None
        rows = slots.reshape(len(slots), -1) + self._first_rows()[:, None]
        return torch.from_numpy(rows).to(self.device)

    def kept(self, number: int) -> Kept | None:
        """The samples of a step that are kept; None if none is."""
        slots = _drop_overwritten(self.slots[:, self.ends[number] : self.ends[number + 1]])
        trials, places = np.nonzero(slots >= 0)
        if not len(trials):
            return None
        source, target = trials * slots.shape[1] + places, slots[trials, places]
        target = target + self._first_rows()[trials]
        return torch.from_numpy(source).to(self.device), torch.from_numpy(target).to(self.device)

    def _first_rows(self) -> Integers:
        return np.arange(len(self.slots), dtype=np.int64) * self.capacity


class Reservoir:
    """The samples of a stack of trials: rows [S * M] of inputs, labels and logits."""

    def __init__(
        self,
        *,
        trials: int,
        capacity: int,
        input_shape: tuple[int, ...],
        input_type: torch.dtype,
        num_classes: int,
        stores_logits: bool,
        balanced: bool = False,
        merging: bool = False,
        earlier_samples: Sequence[StoredRows] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Make an empty memory.

        A `balanced` one counts the samples offered per class, a `merging` one those merged into
        each slot. With `earlier_samples`, it stores no inputs: see `SourcedInputs`.
        """
        rows = trials * capacity
        self._trials, self.capacity = trials, capacity
        self._device = torch.device(device)
        self.filled = 0
        """Samples per trial."""
        self.inputs = (
            torch.zeros((rows, *input_shape), dtype=input_type, device=device)
            if earlier_samples is None
            else SourcedInputs(rows, earlier_samples)
        )
        self.labels = torch.full((rows,), EMPTY if balanced else 0, device=device)
        self.logits = torch.zeros((rows, num_classes), device=device) if stores_logits else None
        shape = (trials, num_classes)
        self.offered = torch.zeros(shape, dtype=torch.int64, device=device) if balanced else None
        """Samples offered per class, if balanced: int64 [S, K]."""
        self.counts = torch.ones(rows, dtype=torch.uint8, device=device) if merging else None
        """Samples merged into each slot, if merging."""

    @property
    def classes(self) -> Tensor:
        """The class in each slot, int64 [S, M]; -1 in empty slots of a balanced memory."""
        return self.labels.view(self._trials, self.capacity)

    @property
    def planned_on(self) -> torch.device:
        """The device for plans: that of the inputs."""
        return self._device if isinstance(self.inputs, Tensor) else torch.device("cpu")

    def begin_task(self, number: int, inputs: Tensor | StoredRows) -> None:
        """Register the inputs of a task."""
        if isinstance(self.inputs, SourcedInputs):
            self.inputs.begin_task(number, inputs)

    def recall(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the inputs [S, n, *shape], labels [S, n] and logits [S, n, K] in rows [S, n]."""
        if isinstance(self.inputs, Tensor):
            inputs = fetch(self.inputs, rows, self._device)
        else:
            inputs = self.inputs.take(rows, self._device)
        flat = rows.flatten().to(self._device)
        labels = self.labels.index_select(0, flat).view(rows.shape)
        if self.logits is None:
            return inputs, labels, None
        return inputs, labels, self.logits.index_select(0, flat).view(*rows.shape, -1)

    def rows_of(self, slots: Tensor) -> Tensor:
        """Return the rows of slots, int64 [S, n]."""
        trials = torch.arange(self._trials, device=slots.device)
        return (slots + self.capacity * trials.unsqueeze(1)).to(self.planned_on)

    def plan(
        self,
        labels: Tensor,
        sizes: Sequence[int],
        *,
        seen: int,
        begin: int,
        draws: int,
        draw_size: int,
        seeds: Sequence[int],
        key: tuple[int, ...],
    ) -> ReservoirPlan:
        """Plan an epoch of labels [S, N] in steps of these sizes, after `seen` presentations.

        A step first draws, then offers its own batch. Steps before `begin` have been taken already;
        in the plan of a balanced memory they are undefined. A balanced memory is offered samples
        only in the first epoch of a task, `key` (task, 0), so that none is stored twice.
        """
        arrived = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        offers = self.offered is None or key[-1] == 0
        if self.offered is None:
            filled = np.minimum(self.capacity, seen + arrived)
            slots = [
                offer_slots(generator(seed, "reservoir", *key), seen, sum(sizes), self.capacity)
                for seed in seeds
            ]
        else:
            first = int(arrived[begin])
            self.count_filled(seen)
            added = arrived - first if offers else np.zeros_like(arrived)
            filled = np.clip(self.filled + added, 0, self.capacity)
            begins = first if offers else None
            slots = self._balanced_slots(labels.cpu().numpy(), begins, seeds, key)
        size = np.repeat(filled[:-1], draws)
        chosen = [draw_distinct(generator(seed, "replay", *key), size, draw_size) for seed in seeds]
        return ReservoirPlan(
            np.stack(chosen).reshape(len(seeds), len(sizes), draws, draw_size),
            np.stack(slots),
            arrived.tolist(),
            filled.tolist(),
            offers,
            self.capacity,
            self.planned_on,
        )

    def _balanced_slots(
        self, labels: Integers, first: int | None, seeds: Sequence[int], key: tuple[int, ...]
    ) -> list[Integers]:
        """The slots, or -1, of a task's samples [S, N] from the `first` on; None: of none."""
        assert self.offered is not None
        classes, offered = self.classes.cpu().numpy(), self.offered.cpu().numpy()
        known: dict[tuple[int, bytes], Integers] = {}  # trials with the same seed share a memory
        names = [(seed, own.tobytes()) for seed, own in zip(seeds, classes, strict=True)]
        for trial, name in enumerate(names):
            if name in known:
                continue
            known[name] = np.full(len(labels[trial]), -1, dtype=np.int64)
            if first is not None:
                numbers = generator(seeds[trial], "balanced", *key).random((len(labels[trial]), 2))
                known[name][first:] = task_slots(
                    classes[trial], offered[trial], labels[trial, first:], numbers[first:]
                )
        return [known[name] for name in names]

    def count_filled(self, seen: int) -> None:
        """Set the number of samples after `seen` presentations."""
        if self.offered is None:
            self.filled = min(self.capacity, seen)
        else:
            self.filled = int((self.classes[0] != EMPTY).sum())

    def offer(self, labels: Tensor) -> None:
        """Count offered samples with labels [S, B], if balanced."""
        if self.offered is not None:
            self.offered.scatter_add_(1, labels, torch.ones_like(labels))

    def merge(
        self, kept: Kept | None, inputs: Tensor, labels: Tensor, logits: Tensor, *, number: int
    ) -> None:
        """Merge the samples of a batch [S, B, ...] that are not kept; see `merge`."""
        assert self.counts is not None
        assert isinstance(self.inputs, Tensor)
        places = Places(self.inputs, self.labels, self.logits, self.counts)
        own = None if kept is None else kept[0]
        merge(places, inputs, labels, logits, kept=own, number=number)

    def insert(
        self,
        kept: Kept,
        rows: Tensor,
        inputs: Tensor | StoredRows,
        labels: Tensor,
        logits: Tensor,
    ) -> None:
        """Copy the kept samples of a batch to their slots.

        The batch is given by its `rows` [S * B] of the train set's `inputs` and `labels`, and by
        the `logits` [S, B, K] that the network gave it.
        """
        source, target = kept
        rows = rows.index_select(0, source.to(rows.device))
        if isinstance(self.inputs, SourcedInputs):
            self.inputs.put(target, rows)
        else:
            self.inputs.index_copy_(0, target, fetch(inputs, rows, self._device))
        source, target, rows = (each.to(self._device) for each in (source, target, rows))
        self.labels.index_copy_(0, target, labels.index_select(0, rows))
        if self.counts is not None:
            self.counts.index_fill_(0, target, 1)
        if self.logits is not None:
            self.logits.index_copy_(0, target, logits.flatten(0, 1).index_select(0, source))

    def state(self) -> dict[str, Tensor]:
        """Return the tensors to save and restore, not copies of them."""
        own = {"logits": self.logits, "offered": self.offered, "counts": self.counts}
        if isinstance(self.inputs, Tensor):
            tensors = {"inputs": self.inputs, "labels": self.labels}
        else:
            tensors = {"sources": self.inputs.sources, "labels": self.labels}
        return tensors | {name: tensor for name, tensor in own.items() if tensor is not None}


class SourcedInputs:
    """The inputs of a memory that stores row numbers ("sources") instead of copies.

    Sources count through the rows of `earlier_samples` and then those of the tasks learnt since,
    held-out samples included. To continue from a saved memory, pass the same rows in the same order
    or renumber the sources. Rows are gathered on the host and copied to the device.
    """

    def __init__(self, slots: int, earlier_samples: Sequence[StoredRows]) -> None:
        self.sources = torch.zeros(slots, dtype=torch.int64)
        """The source of each slot, 0 if empty: int64 [S * M]."""
        self._earlier = list(earlier_samples)
        self._learnt: dict[int, StoredRows | Tensor] = {}
        self._rows: StoredRows | None = None
        self._first = 0  # the source of the first sample of the task

    def begin_task(self, number: int, inputs: Tensor | StoredRows) -> None:
        """Append the samples of a task; raises SampleFileError if earlier ones are missing."""
        self._learnt = {n: rows for n, rows in self._learnt.items() if n < number}
        self._learnt[number] = inputs.cpu() if isinstance(inputs, Tensor) else inputs
        self._rows = JoinedRows([*self._earlier, *self._learnt.values()])
        self._first = len(self._rows) - len(inputs)
        lowest, highest = int(self.sources.min()), int(self.sources.max())
        if lowest < 0 or highest >= len(self._rows):
            raise SampleFileError(
                f"the memory refers to samples {lowest}..{highest}, but only {len(self._rows)} are "
                f"given, including those of the task; pass all earlier samples"
            )

    def take(self, rows: Tensor, device: torch.device) -> Tensor:
        """Return the inputs in rows of the memory, int64 [S, n]: [S, n, *shape]."""
        assert self._rows is not None  # a task has begun
        return self._rows.take_stacked(self.sources[rows], device)

    def put(self, target: Tensor, places: Tensor) -> None:
        """Put the samples with these row numbers [n] of the task into slots [n]."""
        self.sources[target] = self._first + places.cpu()


def offer_slots(random: np.random.Generator, seen: int, count: int, capacity: int) -> Integers:
    """Return the slot of each of the next `count` samples, or -1 if it is not kept: [count].

    Sample n (from 0) takes slot n while there is room, then a slot drawn from 0..n, if it exists.
    """
    numbers = np.arange(seen, seen + count, dtype=np.int64)
    drawn = random.integers(0, numbers + 1)
    return np.where(numbers < capacity, numbers, np.where(drawn < capacity, drawn, -1))


def draw_distinct(random: np.random.Generator, filled: Integers, size: int) -> Integers:
    """Draw n times min(size, filled) distinct slots of 0..filled-1: [n, size].

    Every subset is equally likely (Floyd's algorithm). The numbers that are consumed do not depend
    on `filled`. Entries beyond min(size, filled) are undefined.
    """
    last = (filled - np.minimum(filled, size))[:, None] + np.arange(size)
    candidates = (random.random(last.shape) * (last + 1)).astype(np.int64)
    slots = int(last.max(initial=0)) + 1
    for rows in np.array_split(np.arange(len(filled)), -(-len(filled) * slots // _MARKED) or 1):
        marked = np.zeros((len(rows), slots), dtype=np.bool_)
        place = np.arange(len(rows))
        for j in range(size):
            own = candidates[rows, j]
            own = np.where(marked[place, own], last[rows, j], own)  # `last` is always free
            candidates[rows, j] = own
            marked[place, own] = True
    return candidates


def _drop_overwritten(slots: Integers) -> Integers:
    """Drop samples that a later one of the same batch overwrites: [S, B] -> [S, B].

    Torch does not define the order of copies to repeated indices.
    """
    same = (slots[:, :, None] == slots[:, None, :]) & (slots[:, :, None] >= 0)
    overwritten = np.triu(same, k=1).any(axis=2)
    return np.where(overwritten, -1, slots)
