"""What the slots of a replay memory hold. Which sample takes which slot is a policy's to say."""

import torch

from remask.memory.balanced import EMPTY


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
        balanced: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        """Make an empty memory; one that is `balanced` also counts what each class was offered."""
        rows = trials * capacity
        self._trials, self._capacity = trials, capacity
        self.filled = 0
        """How many samples each trial holds."""
        self.inputs = torch.zeros((rows, *input_shape), dtype=input_type, device=device)
        self.labels = torch.full((rows,), EMPTY if balanced else 0, device=device)
        self.logits = torch.zeros((rows, num_classes), device=device) if stores_logits else None
        shape = (trials, num_classes)
        self.offered = torch.zeros(shape, dtype=torch.int64, device=device) if balanced else None
        """How many samples of each class a balanced memory has been offered: int64 [S, K]."""

    @property
    def classes(self) -> torch.Tensor:
        """The class in each slot, int64 [S, M]; in an empty one of a balanced memory, -1."""
        return self.labels.view(self._trials, self._capacity)

    def at(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and labels in slots of each trial, int64 [S, n]: [S, n, *shape], [S, n]."""
        trials = torch.arange(self._trials, device=slots.device)
        rows = slots + self._capacity * trials.unsqueeze(1)
        return self.inputs[rows], self.labels[rows]

    def count(self, labels: torch.Tensor) -> None:
        """Know that samples with these labels, [S, B], are offered; only if it is balanced."""
        if self.offered is not None:
            self.offered.scatter_add_(1, labels, torch.ones_like(labels))

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
        if self.logits is not None:
            tensors["logits"] = self.logits
        if self.offered is not None:
            tensors["offered"] = self.offered
        return tensors
