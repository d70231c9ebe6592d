"""Masked replay in other training frameworks, as one callback that leaves the model unchanged.

`remask.integrations.lightning` and `remask.integrations.transformers` have a `MaskedReplay` each.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from remask.losses.arguments import read_active, read_mask_value
from remask.memory import ReplayMemory


class ReplayHooks:
    """Adds replayed samples to batches, and masks the logits of the others in training.

    The cross-entropy of the model is then that of masked replay (MSER): the mean over both.
    """

    def __init__(
        self,
        memory: ReplayMemory,
        active: Iterable[int] | None = None,
        *,
        mask_value: float = -1.0,
        replay: int | None = None,
        head: nn.Module | None = None,
    ) -> None:
        """Prepare a callback; it changes the model in training only.

        Args:
            memory: it receives every batch; pass the same one for each task.
            active: the classes of the current task. None: the classes of each batch.
            mask_value: m, as in `remask.masked_cross_entropy`.
            replay: samples to replay per step. None: the size of the batch.
            head: the module that returns the logits. None: the last linear layer.

        """
        self.memory, self.head, self.replay = memory, head, replay
        self.active = None if active is None else list(active)
        self.mask_value = read_mask_value(mask_value, check=True, allow_positive=False)
        self._handles: list[Any] = []
        self._stream: Tensor | None = None  # the labels of the batch, without the replayed ones

    def attach(self, model: nn.Module) -> None:
        """Mask the logits of a model from now on."""
        linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
        if self.head is None and not linear:
            raise ValueError("the model has no linear layer; pass the module of its logits as head")
        self._handles.append((self.head or linear[-1]).register_forward_hook(self._mask))

    def detach(self) -> None:
        """Leave the model as it was."""
        while self._handles:
            self._handles.pop().remove()
        self._stream = None

    def extend(self, inputs: Any, labels: Tensor) -> tuple[Any, Tensor]:
        """Return a batch with replayed samples after its own, which the memory receives."""
        count = self.replay or len(labels)
        old = self.memory.draw(count, labels.device) if len(self.memory) else None
        self.memory.add(inputs, labels)
        self._stream = labels
        if old is None:
            return inputs, labels
        if isinstance(inputs, Mapping):
            inputs = {name: torch.cat([inputs[name], old.inputs[name]]) for name in inputs}
        else:
            inputs = torch.cat([inputs, old.inputs])
        return inputs, torch.cat([labels, old.labels.to(labels.dtype)])

    def extend_named(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Do the same for a batch by names, with its labels as `labels`."""
        labels = batch.get("labels")
        if not isinstance(labels, Tensor):
            raise ValueError(f"masked replay needs `labels` in each batch, found {sorted(batch)}")
        inputs = {
            name: part
            for name, part in batch.items()
            if name != "labels" and isinstance(part, Tensor) and part.shape[:1] == labels.shape[:1]
        }
        joined, labels = self.extend(inputs, labels)
        return {**batch, **joined, "labels": labels}

    def _mask(self, module: nn.Module, _: object, logits: Tensor) -> Tensor | None:
        if self._stream is None or not module.training:
            return None
        active = self.active
        given = self._stream[self._stream >= 0].unique() if active is None else active
        ids = read_active(given, logits.shape, logits.device, check=True)
        mask = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
        replayed = torch.arange(len(logits), device=logits.device) >= len(self._stream)
        mask = mask.scatter(0, ids, True) | replayed.view(-1, *[1] * (logits.ndim - 1))
        return torch.where(mask, logits, self.mask_value)
