"""What is learnt from: samples by their rows, and how the networks see them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from remask.benchmarks import Benchmark
from remask.streams.augmentation import Cropper, Standardise, plan_views
from remask.streams.holdout import Part


class Samples:
    """The samples that the trials of a stack learn from, on their device."""

    def __init__(
        self, benchmark: Benchmark, learnt: Part, seeds: Sequence[int], device: torch.device
    ) -> None:
        self.inputs = benchmark.train_inputs.to(device)
        """All of the benchmark's train set, also what is not learnt from."""
        self.labels = benchmark.train_labels.to(device)
        self._row_labels = learnt.labels.to(device)
        self._row_places = None if learnt.places is None else learnt.places.to(device)
        self._scale = benchmark.scale
        self._standardise = Standardise.of(benchmark, device)
        self._padding, self._flip = benchmark.crop_padding, benchmark.flip
        self._crop = Cropper(benchmark.input_shape, self._padding) if benchmark.augment else None
        self._seeds = seeds
        self._device = device

    def places(self, rows: Tensor) -> Tensor:
        """Where in `inputs` and `labels` rows stand, trial by trial: [S * n] or [S, n]."""
        if self._row_places is None:
            return rows
        return self._row_places.gather(1, rows.reshape(len(self._seeds), -1)).view(rows.shape)

    def labels_of(self, rows: Tensor) -> Tensor:
        """The labels of rows, the same in all trials."""
        return self._row_labels[rows]

    def plan_views(self, steps: int, samples: int, key: tuple[int, ...]) -> list[Tensor] | None:
        """Per step, how `samples` samples are seen, for `seen`: int64 [S, n]; None: as they are."""
        if self._crop is None:
            return None
        views = plan_views(
            steps=steps,
            samples=samples,
            padding=self._padding,
            flip=self._flip,
            seeds=self._seeds,
            key=key,
            device=self._device,
        )
        return list(self._crop.starts(views))

    def seen(self, views: Tensor | None, *parts: Tensor) -> Tensor:
        """Parts [S, b, *shape] as they are kept, side by side, to what the networks see."""
        if self._crop is not None and views is not None:
            parts = (self._crop(torch.cat(parts, dim=1), views),)
        first = parts[0]
        size = sum(part.shape[1] for part in parts)
        inputs = torch.empty((len(first), size, *first.shape[2:]), device=self._device)
        start = 0
        for part in parts:
            inputs[:, start : start + part.shape[1]] = part
            start += part.shape[1]
        inputs.mul_(self._scale)
        return inputs if self._standardise is None else self._standardise(inputs)
