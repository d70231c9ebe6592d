"""What all readers of users' data share: formats, class names, and what was skipped."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from remask.data.originals import DataError
from remask.errors import printable

SKIP_UNREADABLE = "REMASK_SKIP_UNREADABLE"
"""An environment variable, so that it reaches a user's function in every worker process."""
Labels = Sequence[Any] | npt.NDArray[Any] | Tensor | None
"""The class of each input: a name, or a whole number, which becomes its text."""
_LONGEST_NAME = 200
_SHOWN = 10
_MOST_VALUES = 1 << 28  # of one input


class InputFormat(BaseModel):
    """Shape and type of one input. The first visit of a learner fixes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    shape: tuple[Annotated[int, Field(ge=1, le=_MOST_VALUES)], ...] = Field(
        min_length=1, max_length=3
    )
    """(channels, height, width), (features,), (length,) of token ids, or (1,) for a text."""
    dtype: Literal["uint8", "float32", "int64", "text"]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if math.prod(self.shape) > _MOST_VALUES:
            raise ValueError(f"an input has at most {_MOST_VALUES} values, not {self.shape}")
        return self

    @property
    def is_image(self) -> bool:
        """Whether an input has channels, height and width."""
        return len(self.shape) == 3

    @property
    def is_text(self) -> bool:
        """Whether an input is a string."""
        return self.dtype == "text"

    @property
    def tensor_type(self) -> torch.dtype:
        """The type of a tensor of inputs that are not texts."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def sample_bytes(self) -> int:
        """The size of one input that is not a text."""
        return math.prod(self.shape) * self.tensor_type.itemsize

    def __str__(self) -> str:
        if self.is_text:
            return "texts"
        if self.is_image:
            channels, height, width = self.shape
            return f"{channels} channels of {height} x {width} pixels, {self.dtype}"
        values = "integers" if self.dtype == "int64" else "features"
        return f"{self.shape[0]} {values}, {self.dtype}"


class SampleReader(ABC):
    """Reads samples in order, with the names of their classes if they are labelled.

    If unreadable samples are skipped, `count`, `names`, `sources` and `skipped` are final as soon
    as `samples` has yielded its first sample.
    """

    def __init__(
        self, count: int, names: list[str] | None, sources: list[str] | None = None
    ) -> None:
        self.count = count
        self.names = names
        """The class of each sample; None if they are not labelled."""
        self.sources = sources
        """The file, or FILE:LINE, of each sample; None for data in memory."""
        self.skipped = Skipped(of=count)

    @abstractmethod
    def format(self) -> InputFormat:
        """Return the format of the samples, for a learner that has none yet. Raises DataError."""

    @abstractmethod
    def samples(self, form: InputFormat) -> Iterator[Any]:
        """Yield the samples: arrays of this format, or strings if it is text. Raises DataError."""

    def read_all(self) -> npt.NDArray[Any]:
        """Read all samples into an array [N, *shape]. Raises DataError."""
        form = self.format()
        samples = self.samples(form)
        first = next(samples)
        inputs = np.empty((self.count, *form.shape), dtype=form.dtype)
        inputs[0] = first
        for row, sample in enumerate(samples, start=1):
            inputs[row] = sample
        return inputs


def sample_bytes(sample: Any) -> bytes:
    """Return the bytes of a sample for a fingerprint."""
    if isinstance(sample, str):
        # Hashed, so that the bytes of a list of texts depend on where each one ends.
        return hashlib.sha256(sample.encode()).digest()
    data: bytes = sample.tobytes()
    return data


def class_name(label: Any) -> str:
    """Return a label as the name of a class. Raises DataError."""
    if isinstance(label, np.generic) or (isinstance(label, Tensor) and label.ndim == 0):
        label = label.item()
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise DataError(
            f"a label must be a class's name or number, not {type(label).__name__} {label!r:.50}"
        )
    return checked_name(str(label), "a class")


def class_names(labels: Sequence[Any] | npt.NDArray[Any] | Tensor) -> list[str]:
    """Return the class name of each label, [N] or [N, 1]. Raises DataError."""
    if isinstance(labels, np.ndarray | Tensor):
        labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        labels = labels.tolist()
    return [class_name(label) for label in labels]


def checked_name(name: str, what: str) -> str:
    """Return the name if it can be printed and stored. Raises DataError."""
    if not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
        raise DataError(
            f"the name of {what} must have 1 to {_LONGEST_NAME} printable characters, got "
            f"{name!r:.60}"
        )
    return name


def in_order(names: Iterable[str]) -> list[str]:
    """Sort the distinct names in the order of their outputs: numbers by size, others as text."""
    names = set(names)
    if all(name.isascii() and name.isdigit() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


class UnreadableImageWarning(UserWarning):
    """Samples were skipped because they cannot be read; the message names them."""


@dataclass(frozen=True)
class Unreadable:
    """A sample that cannot be read."""

    source: str
    """Its file, or the file and the line."""
    reason: str

    def __str__(self) -> str:
        return printable(f"{self.source}: {self.reason}")


@dataclass
class Skipped:
    """The samples that were skipped, and the files that are not samples."""

    of: int
    """The number of samples, including those that were skipped."""
    unreadable: list[Unreadable] = field(default_factory=list)
    what: str = "files"
    """The word for samples."""
    ignored: list[str] = field(default_factory=list)
    """Files and folders whose names are not those of images."""

    def __bool__(self) -> bool:
        return bool(self.unreadable or self.ignored)

    @property
    def unreadable_line(self) -> str:
        """One line with the number and names of unreadable samples, or nothing."""
        if not self.unreadable:
            return ""
        named = ", ".join(f"{each.source} ({each.reason})" for each in self.unreadable)
        return printable(f"skipped {len(self.unreadable)} of {self.of} {self.what}: {named}")

    @property
    def ignored_line(self) -> str:
        """One line with the number and names of files that are not images, or nothing."""
        if not self.ignored:
            return ""
        count = len(self.ignored)
        files = "file that is not an image" if count == 1 else "files that are not images"
        named = ", ".join(self.ignored[:_SHOWN]) + (", ..." if count > _SHOWN else "")
        return printable(f"ignored {count} {files}: {named}")

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.unreadable_line, self.ignored_line)))


def unreadable_error(unreadable: Sequence[Unreadable], of: int, what: str = "image") -> DataError:
    """Make the error that names unreadable samples and the option that skips them."""
    count = len(unreadable)
    named = "\n  ".join(map(str, unreadable[:_SHOWN]))
    if count > _SHOWN:
        named += f"\n  and {count - _SHOWN} more"
    return DataError(
        f"{count} of {of} {what}s cannot be read:\n  {named}\n"
        f"Replace or remove them, or skip them with --skip-unreadable\n"
        f"(in Python, skip_unreadable=True)."
    )
