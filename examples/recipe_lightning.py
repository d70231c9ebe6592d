"""Masked replay with Lightning: one callback."""

import lightning
import torch
from recipe_digits import compare, tasks
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from remask import ReplayMemory
from remask.integrations.lightning import MaskedReplay


class Classifier(lightning.LightningModule):
    """An ordinary classifier, unaware of replay and mask."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))

    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(masked: bool) -> nn.Module:
    """Fit one task after the other."""
    module, memory = Classifier(), ReplayMemory(capacity=100, seed=0)
    quiet = dict.fromkeys(("enable_progress_bar", "enable_checkpointing", "logger"), False)
    for classes, inputs, labels in tasks():
        active = classes if masked else range(10)  # all: the ordinary cross-entropy
        replay = MaskedReplay(memory, active)
        loader = DataLoader(TensorDataset(inputs, labels), batch_size=10, shuffle=True)
        trainer = lightning.Trainer(max_epochs=5, accelerator="cpu", callbacks=[replay], **quiet)
        trainer.fit(module, loader)
    return module.net.eval()


if __name__ == "__main__":
    compare(train)
