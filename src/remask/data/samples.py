"""The samples that a stack learns from: their description, order and normalisation."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from remask.data.augmentation import Cropper, plan_views
from remask.data.benchmark import Benchmark, check_preprocessing
from remask.data.tasks import Subset
from remask.errors import RemaskError
from remask.memory import JoinedRows, KeptRows, StoredRows
from remask.randomness import generator


class StreamError(RemaskError, ValueError):
    """Data that a stack cannot learn from."""


@dataclass(frozen=True)
class DataDescription:
    """The shape, type, classes and preprocessing of data that may arrive later.

    Inputs are stored unchanged; the network receives `(inputs * scale - mean) / std`.
    """

    input_shape: tuple[int, ...]
    """Of one input."""
    num_classes: int
    """The outputs of the head; there may be more than classes."""
    name: str = "stream"
    """The `benchmark` of configs."""
    input_type: torch.dtype = torch.uint8
    """uint8, float32, or int64 for token ids, which the network receives unchanged."""
    scale: float = 1 / 255
    """1.0 for int64."""
    mean: tuple[float, ...] | None = None
    """Per channel, given with `std` or not at all."""
    std: tuple[float, ...] | None = None
    crop_padding: int = 0
    """Zeros on every side of train images before they are cropped back at random."""
    flip: bool = False
    """Whether a random half of the train images is mirrored left to right."""
    class_names: tuple[str, ...] = field(default=(), repr=False)
    """By label; default: the labels as text."""
    num_tasks: int | None = None
    """The number of tasks, which some methods need; None if unknown."""

    def __post_init__(self) -> None:
        """Check the fields."""
        names = tuple(self.class_names) or tuple(map(str, range(self.num_classes)))
        object.__setattr__(self, "class_names", names)
        if self.num_classes < 1 or len(names) != self.num_classes:
            raise StreamError(
                f"need num_classes >= 1 and a name per class, got num_classes={self.num_classes} "
                f"and {len(names)} names"
            )
        if self.num_tasks is not None and self.num_tasks < 1:
            raise StreamError(f"num_tasks must be at least 1, or None, got {self.num_tasks}")
        if self.input_type not in (torch.uint8, torch.float32, torch.int64):
            raise StreamError(f"inputs must be uint8, float32 or int64, got {self.input_type}")
        if self.input_type == torch.int64 and (
            self.scale != 1.0 or self.mean is not None or self.std is not None or self.augment
        ):
            raise StreamError(
                "int64 inputs are passed to the network as they are: use scale=1.0, and leave out "
                "mean, std, crop_padding and flip"
            )
        try:
            check_preprocessing(
                *(self.input_shape, self.scale, self.mean, self.std, self.crop_padding, self.flip)
            )
        except ValueError as error:
            raise StreamError(str(error)) from error

    @classmethod
    def of(cls, benchmark: Benchmark, *, num_tasks: int | None = None) -> "DataDescription":
        """Describe the data of a benchmark."""
        return cls(
            input_shape=benchmark.input_shape,
            num_classes=benchmark.num_classes,
            name=benchmark.name,
            input_type=benchmark.train_inputs.dtype,
            scale=benchmark.scale,
            mean=benchmark.mean,
            std=benchmark.std,
            crop_padding=benchmark.crop_padding,
            flip=benchmark.flip,
            class_names=benchmark.class_names,
            num_tasks=num_tasks,
        )

    @property
    def augment(self) -> bool:
        """Whether train images are changed at random."""
        return self.crop_padding > 0 or self.flip

    def check(self, part: str, inputs: Tensor | StoredRows, labels: Tensor) -> None:
        """Raise StreamError unless the samples are as described."""
        if inputs.dtype != self.input_type or tuple(inputs.shape[1:]) != self.input_shape:
            shape = ", ".join(["N", *map(str, self.input_shape)])
            raise StreamError(
                f"{part} inputs must be {self.input_type} [{shape}], got {inputs.dtype} "
                f"{list(inputs.shape)}"
            )
        if labels.dtype != torch.int64 or tuple(labels.shape) != (len(inputs),) or not len(labels):
            raise StreamError(
                f"{part} labels must be int64, one for each of the {len(inputs)} inputs, and at "
                f"least one; got {labels.dtype} {list(labels.shape)}"
            )
        lowest, highest = int(labels.min()), int(labels.max())
        if lowest < 0 or highest >= self.num_classes:
            raise StreamError(
                f"{part} labels must be in 0..{self.num_classes - 1}, for which the head has room; "
                f"found {lowest}..{highest}"
            )
        parts = (inputs,) if isinstance(inputs, Tensor) else inputs.chunks()
        if inputs.dtype.is_floating_point and not all(part.isfinite().all() for part in parts):
            raise StreamError(f"{part} inputs contain a NaN or an infinite number")


class Normaliser:
    """Converts stored inputs to what the network receives, `(inputs * scale - mean) / std`."""

    def __init__(
        self,
        scale: float,
        mean: Sequence[float] | None,
        std: Sequence[float] | None,
        input_shape: Sequence[int],
        device: torch.device | str = "cpu",
    ) -> None:
        self._scale = scale
        self._mean_and_std: tuple[Tensor, Tensor] | None = None
        if mean is not None and std is not None:
            shape = (-1, *[1] * (len(input_shape) - 1))
            self._mean_and_std = (
                torch.tensor(mean, device=device).view(shape),
                torch.tensor(std, device=device).view(shape),
            )

    @classmethod
    def of(cls, data: DataDescription, device: torch.device | str = "cpu") -> "Normaliser":
        """Make the normaliser of described data."""
        return cls(data.scale, data.mean, data.std, data.input_shape, device)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return new floats [..., C, *rest]; int64 inputs unchanged."""
        if inputs.dtype == torch.int64:
            return inputs
        # Not in place for floats, which may belong to the caller.
        floats = inputs.dtype == torch.float32
        scaled = inputs * self._scale if floats else inputs.to(torch.float32).mul_(self._scale)
        if self._mean_and_std is None:
            return scaled
        mean, std = self._mean_and_std
        return scaled.sub_(mean).div_(std)


def batch_sizes(num_samples: int, batch: int) -> list[int]:
    """Return the sizes of an epoch's batches; the last one may be smaller."""
    full, rest = divmod(num_samples, batch)
    return [batch] * full + [rest] * (rest > 0)


def epoch_batches(
    rows: Tensor, batch: int, seeds: Sequence[int], key: tuple[int, ...]
) -> list[Tensor]:
    """Return the batches of an epoch: per step, int64 [S * B], trial by trial.

    Each trial shuffles `rows`, [N] for all or [S, N], in an order named by its seed and `key`.
    """
    count = rows.shape[-1]
    orders = np.stack([generator(seed, "order", *key).permutation(count) for seed in seeds])
    order = torch.from_numpy(orders).to(rows.device)
    shuffled = rows[order] if rows.ndim == 1 else rows.gather(1, order)
    return [chunk.reshape(-1) for chunk in torch.split(shuffled, batch, dim=1)]


class Samples:
    """The samples that the trials of a stack learn from, on their device."""

    inputs: Tensor | StoredRows
    """All samples, including those held out: [N, *shape]. Those in files stay there."""
    labels: Tensor
    """int64 [N]."""

    def __init__(self, data: DataDescription, seeds: Sequence[int], device: torch.device) -> None:
        self._data, self._seeds, self._device = data, seeds, device
        self._normalise = Normaliser.of(data, device)
        self._crop = Cropper(data.input_shape, data.crop_padding) if data.augment else None
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
        """Join parts [S, b, *shape] and convert them to what the networks receive."""
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        if self._crop is not None and views is not None:
            joined = self._crop(joined, views)
        return self._normalise(joined)
