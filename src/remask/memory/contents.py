"""The contents of replay memories; a policy decides which sample takes which slot."""

from collections.abc import Sequence

import torch
from torch import Tensor

from remask.memory.balanced import EMPTY
from remask.memory.merging import Places, merge
from remask.memory.rows import JoinedRows, SampleFileError, StoredRows


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
        self._trials, self._capacity = trials, capacity
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
        return self.labels.view(self._trials, self._capacity)

    @property
    def planned_on(self) -> torch.device:
        """The device for plans: that of the inputs."""
        return self._device if isinstance(self.inputs, Tensor) else torch.device("cpu")

    def begin_task(self, number: int, inputs: Tensor | StoredRows) -> None:
        """Register the inputs of a task."""
        if isinstance(self.inputs, SourcedInputs):
            self.inputs.begin_task(number, inputs)

    def take(self, rows: Tensor) -> Tensor:
        """Return the inputs in rows, int64 [S * n], on the device: [S, n, *shape]."""
        if isinstance(self.inputs, Tensor):
            found = self.inputs.index_select(0, rows)
            return found.view(self._trials, -1, *found.shape[1:])
        return self.inputs.take(rows.view(self._trials, -1), self._device)

    def at(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs and labels in slots, int64 [S, n]: [S, n, *shape], [S, n]."""
        trials = torch.arange(self._trials, device=slots.device)
        rows = slots + self._capacity * trials.unsqueeze(1)
        return self.take(rows.flatten().to(self.planned_on)), self.labels[rows]

    def count(self, labels: Tensor) -> None:
        """Count offered samples with labels [S, B], if balanced."""
        if self.offered is not None:
            self.offered.scatter_add_(1, labels, torch.ones_like(labels))

    def merge(
        self,
        kept: tuple[Tensor, Tensor] | None,
        *,
        inputs: Tensor,
        labels: Tensor,
        logits: Tensor,
        number: int,
    ) -> None:
        """Merge the samples of a batch [S, B, ...] that are not kept; see `merge`."""
        assert self.counts is not None
        assert isinstance(self.inputs, Tensor)
        places = Places(self.inputs, self.labels, self.logits, self.counts)
        own = None if kept is None else kept[0]
        merge(places, inputs, labels, logits, kept=own, number=number)

    def insert(
        self,
        kept: tuple[Tensor, Tensor],
        *,
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
        elif isinstance(inputs, StoredRows):
            self.inputs.index_copy_(0, target, inputs.take(rows, self._device))
        else:
            self.inputs.index_copy_(0, target, inputs.index_select(0, rows))
        source, target, rows = (each.to(self._device) for each in (source, target, rows))
        self.labels.index_copy_(0, target, labels.index_select(0, rows))
        if self.counts is not None:
            self.counts.index_fill_(0, target, 1)
        if self.logits is not None:
            self.logits.index_copy_(0, target, logits.flatten(0, 1).index_select(0, source))

    def state(self) -> dict[str, Tensor]:
        """Return the tensors to save and restore, not copies of them."""
        if isinstance(self.inputs, Tensor):
            tensors = {"inputs": self.inputs, "labels": self.labels}
        else:
            tensors = {"sources": self.inputs.sources, "labels": self.labels}
        if self.logits is not None:
            tensors["logits"] = self.logits
        if self.offered is not None:
            tensors["offered"] = self.offered
        if self.counts is not None:
            tensors["counts"] = self.counts
        return tensors


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
