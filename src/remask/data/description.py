"""The description of a stream's data, and their normalisation."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from remask.data.benchmark import Benchmark, check_preprocessing
from remask.errors import RemaskError
from remask.memory import StoredRows


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
