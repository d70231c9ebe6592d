"""What is known of a stream before any of its data has come."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from remask.benchmarks import Benchmark
from remask.errors import RemaskError
from remask.memory import StoredRows


class StreamError(RemaskError, ValueError):
    """Data that a stack cannot learn from; the message says why, and what to do."""


@dataclass(frozen=True)
class DataDescription:
    """What a stack must know of its data before any has come.

    Inputs are kept as they come, and `(inputs * scale - mean) / std` is what the network sees.
    """

    input_shape: tuple[int, ...]
    """Of one input."""
    num_classes: int
    """The outputs of the head. Classes that never come are only room to spare."""
    name: str = "stream"
    """What configs call it, as their benchmark."""
    input_type: torch.dtype = torch.uint8
    """uint8, float32, or int64 for token ids, which the network sees as they are."""
    scale: float = 1 / 255
    """1.0 for int64."""
    mean: tuple[float, ...] | None = None
    """Per channel, given with `std` or not at all."""
    std: tuple[float, ...] | None = None
    crop_padding: int = 0
    """Images are padded by so many zeros and cropped back at random in training."""
    flip: bool = False
    """Whether images are mirrored left to right in training, one in two."""
    class_names: tuple[str, ...] = field(default=(), repr=False)
    """By label; not given: the labels as text."""
    num_tasks: int | None = None
    """How many tasks will come; None: nobody knows. Only some methods need it."""

    def __post_init__(self) -> None:
        """Refuse what no data can be like."""
        names = tuple(self.class_names) or tuple(map(str, range(self.num_classes)))
        object.__setattr__(self, "class_names", names)
        if self.num_classes < 1 or len(names) != self.num_classes:
            raise StreamError(
                f"a head has at least 1 output, and as many class names as outputs; got "
                f"num_classes={self.num_classes} and {len(names)} names"
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
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise StreamError(f"scale must be a number above zero, got {self.scale}")
        if (self.mean is None) != (self.std is None):
            raise StreamError("mean and std are given together or not at all")
        if self.augment and len(self.input_shape) != 3:
            raise StreamError("only images [C, H, W] can be cropped or flipped")

    @classmethod
    def of(cls, benchmark: Benchmark, *, num_tasks: int | None = None) -> "DataDescription":
        """What a benchmark's data are like; of how many tasks is for the caller to say."""
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
        """Whether training images are changed at random; test images never are."""
        return self.crop_padding > 0 or self.flip

    def scaled(self, inputs: Tensor) -> Tensor:
        """Return inputs times `scale`, as new floats; int64 inputs as they are."""
        return inputs if self.input_type == torch.int64 else inputs * self.scale

    def check(self, part: str, inputs: Tensor | StoredRows, labels: Tensor) -> None:
        """Refuse samples that are not as described; raises StreamError."""
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
            raise StreamError(f"{part} inputs have a NaN or an infinite number among them")
