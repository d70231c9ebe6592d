"""What is learnt from: samples by their rows, and how the networks see them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from remask.memory import JoinedRows, KeptRows, StoredRows
from remask.streams.augmentation import Cropper, Standardise, plan_views
from remask.streams.description import DataDescription
from remask.streams.holdout import Part


class Samples:
    """The samples that the trials of a stack learn from, on their device."""

    inputs: Tensor | StoredRows
    """All samples there are, also those that are held out: [N, *shape] as they came. Those that
    came in files stay there."""
    labels: Tensor
    """int64 [N]."""

    def __init__(self, data: DataDescription, seeds: Sequence[int], device: torch.device) -> None:
        self._data, self._seeds, self._device = data, seeds, device
        self._standardise = Standardise.of(data, device)
        self._crop = Cropper(data.input_shape, data.crop_padding) if data.augment else None
        self._kept: tuple[Tensor, Tensor] | None = None
        self._row_labels = torch.zeros(0, dtype=torch.int64)
        self._row_places: Tensor | None = None

    def load(self, inputs: Tensor | StoredRows, labels: Tensor, learnt: Part) -> None:
        """Learn from a part of these samples; its rows follow those of samples that are kept."""
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
        """Where plans of places are wanted: where the inputs are."""
        return self._device if isinstance(self.inputs, Tensor) else torch.device("cpu")

    def take(self, places: Tensor) -> Tensor:
        """The inputs in places of each trial, int64 [S * n] or [S, n]: [S, n, *shape]."""
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
        """Have room for copies of the samples that a method keeps, so that others may go."""
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
        """Copy the samples that a memory keeps, and let it count them from 0."""
        assert self._kept is not None
        places = self.places(memory.rows())
        count = places.shape[1]
        for kept, chosen in zip(self._kept, (self.take(places), self.labels[places]), strict=True):
            kept[:, :count] = chosen
        memory.renumber()

    def state(self) -> dict[str, Tensor]:
        """The tensors to save and restore; they are the live ones, not copies."""
        if self._kept is None:
            return {}
        inputs, labels = self._kept
        return {"inputs": inputs, "labels": labels}

    def places(self, rows: Tensor) -> Tensor:
        """Where in `inputs` and `labels` rows stand, trial by trial: [S * n] or [S, n]."""
        if self._row_places is None:
            return rows
        return self._row_places.gather(1, rows.reshape(len(self._seeds), -1)).view(rows.shape)

    def labels_of(self, rows: Tensor) -> Tensor:
        """The labels of rows of a task, the same in all trials."""
        return self._row_labels[rows]

    def plan_views(self, steps: int, samples: int, key: tuple[int, ...]) -> list[Tensor] | None:
        """Per step, how `samples` samples are to be seen: int64 [S, n]; None: as they are."""
        if self._crop is None:
            return None
        views = plan_views(
            steps=steps,
            samples=samples,
            padding=self._data.crop_padding,
            flip=self._data.flip,
            seeds=self._seeds,
            key=key,
            device=self._device,
        )
        return list(self._crop.starts(views))

    def decode(self, views: Tensor | None, *parts: Tensor) -> Tensor:
        """Parts [S, b, *shape] as they are kept, side by side, to what the networks see."""
        if self._crop is not None and views is not None:
            parts = (self._crop(torch.cat(parts, dim=1), views),)
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        if joined.dtype == torch.uint8:
            inputs = joined.to(torch.float32).mul_(self._data.scale)
        else:
            inputs = self._data.scaled(joined)  # not in place: they may belong to the caller
        return inputs if self._standardise is None else self._standardise(inputs)
