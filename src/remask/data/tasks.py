"""What a stack learns from: the description of data, tasks, and the samples that are held out."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from remask.config import Protocol
from remask.data.classes import SplitError
from remask.errors import RemaskError
from remask.memory import StoredRows
from remask.randomness import generator

if TYPE_CHECKING:
    from remask.data.benchmark import Benchmark


class StreamError(RemaskError, ValueError):
    """Data that a stack cannot learn from."""


@dataclass(frozen=True, kw_only=True)
class PreprocessedData:
    """Data whose inputs the network receives as `(inputs * scale - mean) / std`."""

    scale: float = 1 / 255
    """Factor of the inputs; bytes must end up in [0, 1]. 1.0 for int64."""
    mean: tuple[float, ...] | None = None
    """Per channel, subtracted after scaling; None: inputs are only scaled."""
    std: tuple[float, ...] | None = None
    """Per channel, divided by last; given with `mean` or not at all."""
    crop_padding: int = 0
    """Zeros on every side of train images before they are cropped back at random."""
    flip: bool = False
    """Whether a random half of the train images is mirrored left to right."""
    class_names: tuple[str, ...] = field(default=(), repr=False)
    """By label; default: the labels as text."""

    @property
    def augment(self) -> bool:
        """Whether train images are changed at random."""
        return self.crop_padding > 0 or self.flip


@dataclass(frozen=True)
class DataDescription(PreprocessedData):
    """The shape, type, classes and preprocessing of data that may arrive later."""

    input_shape: tuple[int, ...]
    """Of one input."""
    num_classes: int
    """The outputs of the head; there may be more than classes."""
    name: str = "stream"
    """The `benchmark` of configs."""
    input_type: torch.dtype = torch.uint8
    """uint8, float32, or int64 for token ids, which the network receives unchanged."""
    num_tasks: int | None = None
    """The number of tasks, which some methods need; None if unknown."""

    def __post_init__(self) -> None:
        """Check the fields."""
        names = tuple(self.class_names) or tuple(map(str, range(self.num_classes)))
        object.__setattr__(self, "class_names", names)
        numbers = (*(self.mean or ()), *(self.std or ()))
        if not 1 <= self.num_classes == len(names):
            raise StreamError(
                f"need num_classes >= 1 and a name per class, got num_classes={self.num_classes} "
                f"and {len(names)} names"
            )
        if self.num_tasks is not None and self.num_tasks < 1:
            raise StreamError(f"num_tasks must be at least 1, or None, got {self.num_tasks}")
        if self.input_type not in (torch.uint8, torch.float32, torch.int64):
            raise StreamError(f"inputs must be uint8, float32 or int64, got {self.input_type}")
        if self.input_type == torch.int64 and (self.scale != 1 or numbers or self.augment):
            raise StreamError(
                "int64 inputs are passed to the network as they are: use scale=1.0, and leave out "
                "mean, std, crop_padding and flip"
            )
        if not 0 < self.scale < inf:
            raise StreamError(f"scale must be a number above zero, got {self.scale}")
        if (
            (self.mean is None) != (self.std is None)
            or {len(part) for part in (self.mean, self.std) if part} - {*self.input_shape[:1]}
            or not (all(map(isfinite, numbers)) and min(self.std or (1.0,)) > 0)
        ):
            raise StreamError(
                f"mean and std are given together or not at all, and have a number per channel of "
                f"{list(self.input_shape)}; they must be finite, and std above zero; got "
                f"{self.mean} and {self.std}"
            )
        if self.crop_padding < 0:
            raise StreamError(f"crop_padding must not be negative, got {self.crop_padding}")
        if self.augment and len(self.input_shape) != 3:
            raise StreamError(
                f"only images [C, H, W] can be cropped or flipped, inputs are "
                f"{list(self.input_shape)}"
            )

    @classmethod
    def of(cls, benchmark: "Benchmark", *, num_tasks: int | None = None) -> "DataDescription":
        """Describe the data of a benchmark."""
        own = {each.name for each in fields(cls)} - {"input_type", "num_tasks"}
        values = {name: getattr(benchmark, name) for name in own}
        return cls(**values, input_type=benchmark.train_inputs.dtype, num_tasks=num_tasks)

    def preprocessed(self, protocol: Protocol, *, augment: bool) -> "DataDescription":
        """Return the description under a protocol, and without augmentation unless `augment`."""
        changes: dict[str, Any] = {} if augment else {"crop_padding": 0, "flip": False}
        if protocol == "online" and self.input_type == torch.uint8:
            half = (0.5,) * self.input_shape[0]
            changes |= {"mean": half, "std": half}  # pixels in [-1, 1]
        return replace(self, **changes)

    def normaliser(self, device: torch.device) -> "Normalise":
        """Make the module that normalises inputs."""
        return Normalise(self, self.input_shape).to(device)

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
                f"{part} labels must be in 0..{self.num_classes - 1}, found {lowest}..{highest}"
            )
        if inputs.dtype.is_floating_point:
            start = 0
            for chunk in (inputs,) if isinstance(inputs, Tensor) else inputs.chunks():
                # A NaN makes both extremes NaN, so the common case takes no memory.
                if not all(map(torch.isfinite, torch.aminmax(chunk))):
                    row = int((~chunk.isfinite()).flatten(1).any(1).nonzero()[0])
                    raise StreamError(f"{part} input {start + row} has a NaN or an infinite number")
                start += len(chunk)


class Normalise(nn.Module):
    """Converts stored inputs to what the network receives, `(inputs * scale - mean) / std`."""

    mean: Tensor | None
    std: Tensor | None

    def __init__(self, how: Any, input_shape: Sequence[int]) -> None:
        """Normalise inputs of that shape by the `scale`, `mean` and `std` of `how`."""
        super().__init__()
        self.scale: float = how.scale
        for name, numbers in (("mean", how.mean), ("std", how.std)):
            per_channel = None
            if numbers is not None:
                per_channel = torch.tensor(numbers).view(-1, *[1] * (len(input_shape) - 1))
            self.register_buffer(name, per_channel)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return new floats [..., C, *rest]; int64 inputs unchanged."""
        if inputs.dtype == torch.int64:
            return inputs
        # Not in place for floats, which may belong to the caller.
        floats = inputs.dtype == torch.float32
        scaled = inputs * self.scale if floats else inputs.to(torch.float32).mul_(self.scale)
        if self.mean is None or self.std is None:
            return scaled
        return scaled.sub_(self.mean).div_(self.std)


@dataclass(frozen=True, eq=False)
class Subset:
    """A part of a data set, with the same labels but other samples in each trial of a stack."""

    labels: Tensor
    """int64 [N], one per row."""
    places: Tensor | None = None
    """int64 [S, N]: the index of each trial's rows in the whole set, or [N] if the same for all;
    None: the whole set."""

    def at(self, rows: Tensor) -> "Subset":
        """Return the part with these rows."""
        return Subset(self.labels[rows], rows if self.places is None else self.places[..., rows])


def held_out(labels: Tensor, share: float, seed: int) -> Tensor:
    """Mark the samples to hold out, bool [N]: of every class at least one, and never all."""
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    by_class = torch.split(labels.argsort(stable=True), torch.bincount(labels).tolist())
    for label, rows in enumerate(by_class):
        count = min(max(round(share * len(rows)), 1), len(rows) - 1)
        if count > 0:
            drawn = generator(seed, "validation", label).permutation(len(rows))[:count]
            chosen[rows[drawn]] = True
    return chosen


def hold_out(whole: Subset, share: float, seeds: Sequence[int]) -> tuple[Subset, Subset | None]:
    """Split a set into the rows to learn and, if `share` is not 0, the rows to hold out.

    The samples are drawn per trial; their number per class is the same. Rows are sorted by class.
    """
    if not share:
        return whole, None
    order = whole.labels.argsort(stable=True)
    chosen = [held_out(whole.labels, share, seed)[order] for seed in seeds]

    def part(rows: Tensor) -> Subset:
        places = rows if whole.places is None else whole.places.gather(1, rows)
        return Subset(whole.labels[rows[0]], places)

    learnt, apart = ([order[mask == held] for mask in chosen] for held in (False, True))
    return part(torch.stack(learnt)), part(torch.stack(apart))


def check_share(labels: Tensor, share: float, name: str, class_names: Sequence[str]) -> None:
    """Raise SplitError if a class has one sample only, which cannot be held out."""
    alone = (torch.bincount(labels) == 1).nonzero().flatten().tolist() if share else []
    if alone:
        names = ", ".join(repr(class_names[label]) for label in alone[:5])
        raise SplitError(
            f"cannot hold out {share:g} of every class of {name}: {names}"
            f"{', ...' if len(alone) > 5 else ''} has one training sample. Hold out nothing, "
            f"add samples, or drop the class."
        )


@dataclass(frozen=True, eq=False)
class TaskData:
    """The samples of a task that is not part of a benchmark."""

    inputs: Tensor | StoredRows
    """[N, *shape], including those held out."""
    labels: Tensor
    """int64 [N]."""
    learnt: Subset
    """The rows to learn."""
    held_out: Subset | None
    """The rows held out, if any."""
    test: tuple[Tensor, Tensor] | None
    """Test inputs and labels, if any."""
    apart: Subset | None = None
    """The rows on which candidates are compared, if any."""


@dataclass(frozen=True, eq=False)
class Task:
    """A task of the stream."""

    number: int
    """From 0; the row of the accuracy matrix."""
    rows: Tensor
    """Its rows among the samples to learn, ascending, the same in all trials: int64 [N]."""
    own_labels: tuple[int, ...]
    """Its classes, ascending."""
    seen_labels: tuple[int, ...]
    """Its classes, and those of all tasks before it, ascending."""
    num_classes: int
    """K."""
    data: TaskData | None = None
    """Its samples; None if the stack has them, as for a benchmark."""

    @cached_property
    def old_labels(self) -> tuple[int, ...]:
        """The classes of all tasks before it, without its own, ascending."""
        return tuple(sorted({*self.seen_labels} - {*self.own_labels}))

    # Cached on the device, so that no step waits for a copy.
    @cached_property
    def classes(self) -> Tensor:
        """Bool [K]: mask of its classes."""
        return self._flags(self.own_labels)

    @cached_property
    def seen(self) -> Tensor:
        """Bool [K]: mask of `seen_labels`."""
        return self._flags(self.seen_labels)

    @cached_property
    def old(self) -> Tensor:
        """Bool [K]: mask of `old_labels`."""
        return self._flags(self.old_labels)

    @cached_property
    def seen_columns(self) -> Tensor:
        """`seen_labels` as an index on the device: int64."""
        return torch.tensor(self.seen_labels, dtype=torch.int64, device=self.rows.device)

    @cached_property
    def old_columns(self) -> Tensor:
        """`old_labels` as an index on the device: int64."""
        return torch.tensor(self.old_labels, dtype=torch.int64, device=self.rows.device)

    def _flags(self, labels: tuple[int, ...]) -> Tensor:
        flags = torch.zeros(self.num_classes, dtype=torch.bool)
        flags[list(labels)] = True
        return flags.to(self.rows.device)


def benchmark_tasks(benchmark: "Benchmark", keys: Tensor, device: torch.device) -> list[Task]:
    """Return the tasks of a benchmark for samples with these keys [N]."""
    tasks = []
    seen: set[int] = set()
    for number in range(benchmark.num_tasks):
        own = labels_in(benchmark.active(number))
        seen |= {*own}
        rows = benchmark.rows_of(number, keys).to(device)
        tasks.append(Task(number, rows, own, tuple(sorted(seen)), benchmark.num_classes))
    return tasks


def union_task(benchmark: "Benchmark", labels: Tensor, device: torch.device) -> list[Task]:
    """Return one task with all classes, the upper bound."""
    every_class = tuple(range(benchmark.num_classes))
    rows = torch.arange(len(labels), device=device)
    return [
        Task(benchmark.num_tasks - 1, rows, every_class, every_class, benchmark.num_classes),
    ]


def labels_in(classes: Tensor) -> tuple[int, ...]:
    """Return the classes in a mask, bool [K], ascending."""
    return tuple(classes.nonzero().flatten().tolist())
