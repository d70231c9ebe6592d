"""Fine-tune with LoRA on new labels, and keep the old ones."""

from collections.abc import Callable

import torch
from peft import LoraConfig, get_peft_model
from recipe_digits import compare, tasks
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

from remask import ReplayMemory
from remask.integrations.transformers import MaskedReplay


def fit(model: nn.Module, images: Tensor, labels: Tensor, *replay: MaskedReplay) -> None:
    """Train for ten epochs."""
    steps = {"num_train_epochs": 10, "learning_rate": 2e-3, "per_device_train_batch_size": 16}
    options = TrainingArguments(use_cpu=True, save_strategy="no", report_to="none", **steps)
    task = [{"pixel_values": x, "labels": y} for x, y in zip(images, labels, strict=True)]
    Trainer(model=model, args=options, train_dataset=task, callbacks=[*replay]).train()


def train(masked: bool) -> Callable[[Tensor], Tensor]:
    """Train a model on the digits 0 to 7; then add 8 and 9 with LoRA and a memory."""
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 4}
    config = ViTConfig(
        image_size=8, patch_size=2, num_channels=1, num_labels=10, num_hidden_layers=2, **sizes
    )
    *first, (classes, images, labels) = tasks()
    old_images = torch.cat([images for _, images, _ in first])
    old_labels = torch.cat([labels for _, _, labels in first])
    model, memory = ViTForImageClassification(config), ReplayMemory(100, "balanced")
    fit(model, old_images, old_labels)
    memory.add({"pixel_values": old_images}, old_labels)

    lora = LoraConfig(target_modules=r".*(query|value|[qv]_proj)", modules_to_save=["classifier"])
    tuned = get_peft_model(model, lora)  # the base stays as it is; the head is trained as a copy
    fit(tuned, images, labels, MaskedReplay(memory, classes if masked else range(10)))
    return lambda images: tuned.eval()(pixel_values=images).logits


if __name__ == "__main__":
    compare(train)
