"""A custom benchmark: Split-CIFAR-10 as the features of a frozen, pretrained encoder."""

from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import interpolate

from remask import Benchmark, load_benchmark
from remask.data import arrays
from remask.encoders import find_encoder

FILE = Path("cifar10-features.npz")
PIXELS = 96


def features() -> Benchmark:
    """Encode all images once, and read the features from a file from then on."""
    if not FILE.exists():
        images = load_benchmark("split-cifar10")
        np.savez(
            FILE,
            inputs=encode(images.train_inputs).numpy(),
            labels=images.train_labels.numpy(),
            test_inputs=encode(images.test_inputs).numpy(),
            test_labels=images.test_labels.numpy(),
        )
    return arrays(FILE, tasks=5, name="cifar10-features")


def encode(images: torch.Tensor) -> torch.Tensor:
    """Features float32 [N, D] of images uint8 [N, 3, H, W]."""
    encoder = find_encoder("efficientnet-lite0")
    parts = [
        encoder.encode(interpolate(some.float(), size=PIXELS, mode="bilinear").round().byte())
        for some in torch.split(images, 256)
    ]
    return torch.cat(parts)


def linear(input_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
    """A linear head."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(input_shape[0], num_classes))
