"""Augmentation: random crops and mirrorings of whole batches of images, as they are kept.

How each sample of each step is seen (`Views`) is planned ahead for an epoch, by each trial for
itself, as the order and the draws are: nothing of it has to be saved. The samples themselves stay
as they are, in the train set and in memory, and are seen anew whenever they are drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remask.randomness import generator
from remask.streams.description import DataDescription


@dataclass(frozen=True, eq=False)
class Views:
    """How samples are seen, in a frame of P zeros on every side: [..., S, n] for n of S trials."""

    tops: Tensor
    """int64, each in 0..2P: the first row of the crop."""
    lefts: Tensor
    """int64, each in 0..2P: the first column of the crop."""
    mirrored: Tensor
    """bool: whether left and right change places."""


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
    """Draw how up to `samples` samples per step are seen, for all steps of an epoch: [steps, S, n].

    What each trial draws is named by its seed and `key`.
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
    """Frames images with zeros, crops them back to their size, and mirrors some.

    From the first pixel of a crop to its last, a framed image is one piece of memory, and every
    crop's piece has the same length. Copying pieces is far faster than picking pixels; where a
    piece starts is planned ahead, with the views.
    """

    def __init__(self, input_shape: tuple[int, ...], padding: int) -> None:
        self._padding = padding
        self._channels, self._height, self._width = input_shape
        self._framed_height, self._framed_width = (n + 2 * padding for n in input_shape[1:])
        self._size = self._channels * self._framed_height * self._framed_width
        self._piece = self._size - 2 * padding * self._framed_width - 2 * padding
        # Kept from batch to batch: the zeros around the images are never written to.
        self._frames = torch.zeros(0)
        self._first = torch.zeros(0, dtype=torch.int64)

    def starts(self, views: Views) -> Tensor:
        """Where a view begins in the memory of its image and its mirror image, int64 [..., S, n].

        The mirror image of a crop is the crop of the mirror image, as far from its other end.
        """
        in_mirror = self._size + 2 * self._padding - views.lefts
        columns = torch.where(views.mirrored, in_mirror, views.lefts)
        return columns + views.tops * self._framed_width

    def __call__(self, images: Tensor, starts: Tensor) -> Tensor:
        """Look at images by the first n of the planned starts [S, >= n].

        [S, n, C, H, W] -> [S, n, C, H, W] of the same type, a strided view of new memory.
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
        """Have frames [>= count, 2, C, H + 2P, W + 2P], for images and mirror images."""
        frames = self._frames
        fits = frames.dtype == like.dtype and frames.device == like.device
        if len(frames) < count or not fits:
            shape = (count, 2, self._channels, self._framed_height, self._framed_width)
            self._frames = torch.zeros(shape, dtype=like.dtype, device=like.device)
            self._first = torch.arange(count, device=like.device) * 2 * self._size


class Standardise:
    """Scaled images, channel by channel less the mean and over the standard deviation."""

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        input_shape: tuple[int, ...],
        device: torch.device | str = "cpu",
    ) -> None:
        per_channel = (-1, *[1] * (len(input_shape) - 1))
        self._mean = torch.tensor(mean, device=device).view(per_channel)
        self._std = torch.tensor(std, device=device).view(per_channel)

    @classmethod
    def of(cls, data: DataDescription, device: torch.device | str = "cpu") -> "Standardise | None":
        """As the data are described; None if they are only scaled."""
        if data.mean is None or data.std is None:
            return None
        return cls(data.mean, data.std, data.input_shape, device)

    def __call__(self, images: Tensor) -> Tensor:
        """In place, and returned: float [..., C, *rest]."""
        return images.sub_(self._mean).div_(self._std)
