"""The samples that a stack learns from: their order, augmentation and normalisation."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from remask.data.tasks import DataDescription, Subset
from remask.memory import JoinedRows, KeptRows, StoredRows
from remask.randomness import generator

# Augmentation: the views of an epoch are planned ahead, per trial, so nothing has to be saved.


class Cropper:
    """Pads images with zeros, crops them back to their size, and mirrors some.

    From its first pixel to its last, a crop is one stretch of the padded image's memory, of the
    same length for every crop. Copying stretches is far faster than gathering pixels.
    """

    def __init__(self, input_shape: tuple[int, ...], padding: int, *, flip: bool = False) -> None:
        self._padding, self._flip = padding, flip
        self._channels, self._height, self._width = input_shape
        self._framed_height, self._framed_width = (n + 2 * padding for n in input_shape[1:])
        self._size = self._channels * self._framed_height * self._framed_width
        self._piece = self._size - 2 * padding * self._framed_width - 2 * padding
        # Reused for every batch: the zeros around the images are never overwritten.
        self._frames = torch.zeros(0)
        self._first = torch.zeros(0, dtype=torch.int64)

    def draw(
        self, steps: int, samples: int, seeds: Sequence[int], key: tuple[int, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw the crops of `samples` images per step of an epoch, [steps, S, samples] each.

        Returns the first rows and columns of the crops in the padded images, int64 in 0..2P, and
        whether to mirror them. Each trial draws from the generator named by its seed and `key`.
        """
        offsets = np.empty((2, steps, len(seeds), samples), dtype=np.int64)
        mirrored = np.zeros((steps, len(seeds), samples), dtype=np.bool_)
        for trial, seed in enumerate(seeds):
            random = generator(seed, "augment", *key)
            offsets[:, :, trial] = random.integers(0, 2 * self._padding + 1, (2, steps, samples))
            if self._flip:
                mirrored[:, trial] = random.integers(0, 2, (steps, samples))
        tops, lefts = torch.from_numpy(offsets)
        return tops, lefts, torch.from_numpy(mirrored)

    def starts(self, tops: Tensor, lefts: Tensor, mirrored: Tensor) -> Tensor:
        """Return the offset of each crop in the memory of its image and mirror image, int64.

        A mirrored crop is a crop of the mirror image, counted from its other end.
        """
        in_mirror = self._size + 2 * self._padding - lefts
        return torch.where(mirrored, in_mirror, lefts) + tops * self._framed_width

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


def batch_sizes(num_samples: int, batch: int) -> list[int]:
    """Return the sizes of an epoch's batches; the last one may be smaller."""
    full, rest = divmod(num_samples, batch)
    return [batch] * full + [rest] * (rest > 0)


def epoch_order(rows: Tensor, seeds: Sequence[int], key: tuple[int, ...]) -> Tensor:
    """Return the rows of an epoch in each trial's order, int64 [S, N].

    Each trial shuffles `rows`, [N] for all or [S, N], in an order named by its seed and `key`.
    """
    count = rows.shape[-1]
    orders = np.stack([generator(seed, "order", *key).permutation(count) for seed in seeds])
    order = torch.from_numpy(orders).to(rows.device)
    return rows[order] if rows.ndim == 1 else rows.gather(1, order)


class Samples:
    """The samples that the trials of a stack learn from, on their device."""

    inputs: Tensor | StoredRows
    """All samples, including those held out: [N, *shape]. Those in files stay there."""
    labels: Tensor
    """int64 [N]."""

    def __init__(self, data: DataDescription, seeds: Sequence[int], device: torch.device) -> None:
        self._data, self._seeds, self._device = data, seeds, device
        self._normalise = data.normaliser(device)
        self._crop: Cropper | None = None
        if data.augment:
            self._crop = Cropper(data.input_shape, data.crop_padding, flip=data.flip)
        self._kept: tuple[Tensor, Tensor] | None = None
        self._row_labels = torch.zeros(0, dtype=torch.int64)
        self._row_places: Tensor | None = None

    def load(self, inputs: Tensor | StoredRows, labels: Tensor, learnt: Subset) -> None:
        """Learn from a subset of these samples; its rows follow those of kept samples."""
        self.inputs = inputs.to(self._device) if isinstance(inputs, Tensor) else inputs
        self.labels = labels.to(self._device)
        self._row_labels = learnt.labels.to(self._device)
        self._row_places = None if learnt.places is None else learnt.places.to(self._device)
        if self._kept is None:
            return
        kept_inputs, kept_labels = self._kept
        trials, kept = kept_labels.shape
        if self._row_places is None:
            self._row_places = torch.arange(len(labels), device=self._device).expand(trials, -1)
        first = torch.arange(trials * kept, device=self._device).view(trials, kept)
        self._row_places = torch.cat([first, trials * kept + self._row_places], dim=1)
        self._row_labels = torch.cat([torch.zeros_like(kept_labels[0]), self._row_labels])
        self.labels = torch.cat([kept_labels.flatten(), self.labels])
        every_kept = kept_inputs.flatten(0, 1)
        if isinstance(self.inputs, Tensor):
            self.inputs = torch.cat([every_kept, self.inputs])
        else:
            self.inputs = JoinedRows([every_kept.cpu(), self.inputs])

    @property
    def planned_on(self) -> torch.device:
        """The device for plans of places: that of the inputs."""
        return self._device if isinstance(self.inputs, Tensor) else torch.device("cpu")

    def take(self, places: Tensor) -> Tensor:
        """Return the inputs at each trial's places, int64 [S * n] or [S, n]: [S, n, *shape]."""
        trials = len(self._seeds)
        if isinstance(self.inputs, Tensor):
            found = self.inputs.index_select(0, places.flatten())
            return found.view(trials, -1, *found.shape[1:])
        return self.inputs.take_stacked(places.view(trials, -1), self._device)

    @property
    def first_row(self) -> int:
        """The row of the first sample that is loaded next."""
        return 0 if self._kept is None else self._kept[1].shape[1]

    def make_room(self, capacity: int) -> None:
        """Allocate copies of the samples that a method keeps, so that others can be released."""
        shape = (len(self._seeds), capacity)
        self._kept = (
            torch.zeros(
                (*shape, *self._data.input_shape),
                dtype=self._data.input_type,
                device=self._device,
            ),
            torch.zeros(shape, dtype=torch.int64, device=self._device),
        )

    def retain(self, memory: KeptRows) -> None:
        """Copy the samples that a memory keeps, and renumber them from 0."""
        assert self._kept is not None
        places = self.places(memory.rows())
        count = places.shape[1]
        for kept, chosen in zip(self._kept, (self.take(places), self.labels[places]), strict=True):
            kept[:, :count] = chosen
        memory.renumber()

    def state(self) -> dict[str, Tensor]:
        """Return the live tensors to save and restore."""
        if self._kept is None:
            return {}
        inputs, labels = self._kept
        return {"inputs": inputs, "labels": labels}

    def places(self, rows: Tensor) -> Tensor:
        """Return the index of rows in `inputs` and `labels`, per trial: [S * n] or [S, n]."""
        if self._row_places is None:
            return rows
        return self._row_places.gather(1, rows.reshape(len(self._seeds), -1)).view(rows.shape)

    def labels_of(self, rows: Tensor) -> Tensor:
        """Return the labels of rows, which are the same in all trials."""
        return self._row_labels[rows]

    def plan_views(self, steps: int, samples: int, key: tuple[int, ...]) -> list[Tensor] | None:
        """Plan the crops of `samples` samples per step, int64 [S, n]; None without augmentation."""
        if self._crop is None:
            return None
        starts = self._crop.starts(*self._crop.draw(steps, samples, self._seeds, key))
        return list(starts.to(self._device))

    def decode(self, views: Tensor | None, *parts: Tensor) -> Tensor:
        """Join parts [S, b, *shape] and convert them to what the networks receive."""
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        if self._crop is not None and views is not None:
            joined = self._crop(joined, views)
        normalised: Tensor = self._normalise(joined)
        return normalised
