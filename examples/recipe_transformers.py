"""Masked replay in a Hugging Face Trainer, with a small vision transformer: one callback."""

from collections.abc import Callable

from recipe_digits import compare, tasks
from torch import Tensor
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

from remask import ReplayMemory
from remask.integrations.transformers import MaskedReplay


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
        active = classes if masked else range(10)  # all: the ordinary cross-entropy
        replay = MaskedReplay(memory, active, replay=32)
        Trainer(model=model, args=options, train_dataset=task, callbacks=[replay]).train()
    return lambda images: model.eval()(images).logits


if __name__ == "__main__":
    compare(train)
