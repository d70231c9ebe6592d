"""Masked replay in a Hugging Face Trainer, with a small vision transformer."""

from collections.abc import Callable, Sequence
from typing import Any

from recipe_digits import compare, tasks
from torch import Tensor
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

from remask import ReplayMemory, masked_cross_entropy


class MaskedReplayTrainer(Trainer):
    """A Trainer whose loss is masked to the active classes, and which replays from a memory."""

    def __init__(self, *, active: Sequence[int], memory: ReplayMemory, **options: Any) -> None:
        super().__init__(**options)
        self.active, self.memory = active, memory

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any
    ) -> Any:
        x, y = inputs["pixel_values"], inputs["labels"]
        outputs = model(pixel_values=x)
        loss = masked_cross_entropy(outputs.logits, y, active=self.active, mask_value=-1.0)
        if model.training:  # and not in `evaluate`
            if len(self.memory):  # it is empty in the very first step
                old = self.memory.draw(32)
                logits = model(pixel_values=old.inputs).logits
                loss = loss + F.cross_entropy(logits, old.labels)  # unmasked
            self.memory.add(x, y)
        return (loss, outputs) if return_outputs else loss


def train(masked: bool) -> Callable[[Tensor], Tensor]:
    """Learn one task after the other, each with a Trainer of its own."""
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 4}
    config = ViTConfig(
        image_size=8, patch_size=2, num_channels=1, num_labels=10, num_hidden_layers=2, **sizes
    )
    model, memory = ViTForImageClassification(config), ReplayMemory(capacity=100, seed=0)
    steps = {"num_train_epochs": 5, "learning_rate": 1e-3, "per_device_train_batch_size": 16}
    options = TrainingArguments(use_cpu=True, save_strategy="no", report_to="none", **steps)
    for classes, images, labels in tasks():
        task = [{"pixel_values": x, "labels": y} for x, y in zip(images, labels, strict=True)]
        MaskedReplayTrainer(
            model=model,
            args=options,
            train_dataset=task,
            active=classes if masked else range(10),  # all: the ordinary cross-entropy
            memory=memory,
        ).train()
    return lambda images: model.eval()(images).logits


if __name__ == "__main__":
    compare(train)
