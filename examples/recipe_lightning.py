"""Masked replay in a LightningModule."""

from collections.abc import Sequence
from typing import Any

import lightning
import torch
from recipe_digits import compare, tasks
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from remask import ReplayMemory, masked_cross_entropy


class MaskedReplay(lightning.LightningModule):
    """A classifier that is fitted task after task; its checkpoints hold the memory, too."""

    active: Sequence[int]

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
        self.memory = ReplayMemory(capacity=100, seed=0)

    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        x, y = batch
        loss = masked_cross_entropy(self.net(x), y, active=self.active, mask_value=-1.0)
        if len(self.memory):  # it is empty in the very first step
            old = self.memory.draw(10)
            loss = loss + F.cross_entropy(self.net(old.inputs), old.labels)  # unmasked
        self.memory.add(x, y)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["memory"] = self.memory.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.memory.load_state_dict(checkpoint["memory"])


def train(masked: bool) -> nn.Module:
    """Fit one task after the other."""
    module = MaskedReplay()
    quiet = dict.fromkeys(("enable_progress_bar", "enable_checkpointing", "logger"), False)
    for classes, inputs, labels in tasks():
        module.active = classes if masked else range(10)  # all: the ordinary cross-entropy
        loader = DataLoader(TensorDataset(inputs, labels), batch_size=10, shuffle=True)
        lightning.Trainer(max_epochs=5, accelerator="cpu", **quiet).fit(module, loader)
    return module.net.eval()


if __name__ == "__main__":
    compare(train)
