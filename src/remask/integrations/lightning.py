"""Masked replay as a callback of a Lightning Trainer."""

from typing import Any

import lightning
from torch import Tensor

from remask.integrations import ReplayHooks


class MaskedReplay(ReplayHooks, lightning.Callback):
    """Masks the loss and replays: `Trainer(callbacks=[MaskedReplay(memory, active=[2, 3])])`.

    Batches are lists `[x, y]`, or dicts with `labels`. Checkpoints include the memory.
    """

    def on_train_start(self, trainer: Any, pl_module: lightning.LightningModule) -> None:
        """Mask the module's logits."""
        self.attach(pl_module)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add replayed samples to the batch, in place."""
        if isinstance(batch, dict):
            batch.update(self.extend_named(batch))
        elif isinstance(batch, list) and len(batch) == 2:
            batch[:] = self.extend(*batch)
        else:
            raise TypeError(f"masked replay needs batches [x, y] or dicts, not {type(batch)}")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the module as it was."""
        self.detach()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the module as it was."""
        self.detach()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the memory for a checkpoint."""
        return self.memory.state_dict()

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> None:
        """Restore the memory from a checkpoint."""
        self.memory.load_state_dict(state_dict)
