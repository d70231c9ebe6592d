"""Augmentation: random crops and mirror images of whole batches.

The views of an epoch are planned ahead, for each trial by itself, so nothing has to be saved. The
samples in the train set and in memory do not change.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remask.randomness import generator


@dataclass(frozen=True, eq=False)
class Views:
    """Random crops of images padded by P zeros on every side: [..., S, n]."""

    tops: Tensor
    """int64, each in 0..2P: the first row of the crop."""
    lefts: Tensor
    """int64, each in 0..2P: the first column of the crop."""
    mirrored: Tensor
    """bool: whether the image is mirrored left to right."""


def plan_views(
    *,
    steps: int,
    samples: int,
    padding: int,
    flip: bool,
    seeds: Sequence[int],
    key: tuple[int, ...],
    device: torch.device | str = "cpu",
) -> Views:
    """Draw the views of `samples` images per step of an epoch: [steps, S, samples].

    Each trial draws from the generator named by its seed and `key`.
    """
    offsets = np.empty((2, steps, len(seeds), samples), dtype=np.int64)
    mirrored = np.zeros((steps, len(seeds), samples), dtype=np.bool_)
    for trial, seed in enumerate(seeds):
        random = generator(seed, "augment", *key)
        offsets[:, :, trial] = random.integers(0, 2 * padding + 1, (2, steps, samples))
        if flip:
            mirrored[:, trial] = random.integers(0, 2, (steps, samples))
    tops, lefts = torch.from_numpy(offsets).to(device)
    return Views(tops, lefts, torch.from_numpy(mirrored).to(device))


class Cropper:
    """Pads images with zeros, crops them back to their size, and mirrors some.

    From its first pixel to its last, a crop is one stretch of the padded image's memory, of the
    same length for every crop. Copying stretches is far faster than gathering pixels.
    """

    def __init__(self, input_shape: tuple[int, ...], padding: int) -> None:
        self._padding = padding
        self._channels, self._height, self._width = input_shape
        self._framed_height, self._framed_width = (n + 2 * padding for n in input_shape[1:])
        self._size = self._channels * self._framed_height * self._framed_width
        self._piece = self._size - 2 * padding * self._framed_width - 2 * padding
        # Reused for every batch: the zeros around the images are never overwritten.
        self._frames = torch.zeros(0)
        self._first = torch.zeros(0, dtype=torch.int64)

    def starts(self, views: Views) -> Tensor:
        """Return the offset of each view in the memory of its image and mirror image, int64.

        A mirrored crop is a crop of the mirror image, counted from its other end.
        """
        in_mirror = self._size + 2 * self._padding - views.lefts
        columns = torch.where(views.mirrored, in_mirror, views.lefts)
        return columns + views.tops * self._framed_width

    def __call__(self, images: Tensor, starts: Tensor) -> Tensor:
        """Crop images [S, n, C, H, W] at the first n of the planned starts [S, >= n].

        Returns [S, n, C, H, W] of the same type, a strided view of new memory.
        """
        trials, samples = images.shape[:2]
        self._make_room(trials * samples, images)
        frames, first = self._frames[: trials * samples], self._first[: trials * samples]
        plain = images.flatten(0, 1)
        inside = frames[..., self._padding :, self._padding :][..., : self._height, : self._width]
        inside[:, 0].copy_(plain)
        inside[:, 1].copy_(plain.flip(-1))
        places = starts[:, :samples].flatten() + first
        pieces = frames.as_strided((frames.numel() - self._piece + 1, self._piece), (1, 1))
        crops = pieces.index_select(0, places)  # [S * n, piece]
        row, channel = self._framed_width, self._framed_height * self._framed_width
        strides = (samples * self._piece, self._piece, channel, row, 1)
        return crops.as_strided(images.shape, strides)

    def _make_room(self, count: int, like: Tensor) -> None:
        """Allocate frames [>= count, 2, C, H + 2P, W + 2P], for images and mirror images."""
        frames = self._frames
        fits = frames.dtype == like.dtype and frames.device == like.device
        if len(frames) < count or not fits:
            shape = (count, 2, self._channels, self._framed_height, self._framed_width)
            self._frames = torch.zeros(shape, dtype=like.dtype, device=like.device)
            self._first = torch.arange(count, device=like.device) * 2 * self._size
