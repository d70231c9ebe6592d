"""A custom benchmark: Split-CIFAR-10 as the features of a frozen, pretrained encoder."""

from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import interpolate

from remask import Benchmark, load_benchmark
from remask.data import arrays
from remask.encoders import find_encoder

ARRAYS = ("inputs", "labels", "test_inputs", "test_labels")
FILE = Path("cifar10-features.npz")
PIXELS = 96


def features() -> Benchmark:
    """Encode all images once, and read the features from a file from then on."""
    if not FILE.exists():
        images = load_benchmark("split-cifar10")
        encoded = [
            encode(images.train_inputs),
            images.train_labels.numpy(),
            encode(images.test_inputs),
            images.test_labels.numpy(),
        ]
        np.savez(FILE, **dict(zip(ARRAYS, encoded, strict=True)))
    return arrays(FILE, tasks=5, name="cifar10-features")


def encode(images: torch.Tensor) -> np.ndarray:
    """Features float32 [N, D] of images uint8 [N, 3, H, W]."""
    encoder = find_encoder("efficientnet-lite0")
    parts = [
        encoder.encode(interpolate(some.float(), size=PIXELS, mode="bilinear").round().byte())
        for some in images.split(256)
    ]
    return torch.cat(parts).numpy()


def linear(input_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
    """A linear head."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(input_shape[0], num_classes))
