"""Readers of users' samples: formats, class names, arrays, and what was skipped."""

import hashlib
import math
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, Union

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from remask.data.classes import class_name
from remask.errors import DataError, printable
from remask.files import open_regular

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SKIP_UNREADABLE = "REMASK_SKIP_UNREADABLE"
"""An environment variable, so that it reaches a user's function in every worker process."""
Labels = Union[Sequence[Any], npt.NDArray[Any], "Tensor", None]
"""The class of each input: a name, or a whole number, which becomes its text."""
_SHOWN = 10
_MOST_VALUES = 1 << 28  # of one input
_CHANNELS = (1, 3, 4)


class InputFormat(BaseModel):
    """Shape and type of one input. The first visit of a learner fixes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    shape: tuple[PositiveInt, ...] = Field(min_length=1, max_length=3)
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
    def tensor_type(self) -> "torch.dtype":
        """The type of a tensor of inputs that are not texts."""
        import torch  # not needed to fetch datasets

        found: torch.dtype = getattr(torch, self.dtype)
        return found

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
        first = next(samples)  # after which `count` is final
        inputs = np.empty((self.count, *form.shape), dtype=form.dtype)
        for row, sample in enumerate(chain([first], samples)):
            inputs[row] = sample
        return inputs


def sample_bytes(sample: Any) -> bytes:
    """Return the bytes of a sample for a fingerprint."""
    if isinstance(sample, str):
        # Hashed, so that the bytes of a list of texts depend on where each one ends.
        return hashlib.sha256(sample.encode()).digest()
    return bytes(sample.tobytes())


class UnreadableImageWarning(UserWarning):
    """Samples were skipped because they cannot be read; the message names them."""


class Unreadable(NamedTuple):
    """A sample that cannot be read: its file, or FILE:LINE, and the reason."""

    source: str
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
        more = ", ..." if count > _SHOWN else ""
        return printable(f"ignored {count} {files}: {', '.join(self.ignored[:_SHOWN])}{more}")

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


_UNREADABLE = (  # raised by NumPy and zipfile for damaged files
    *(ValueError, OverflowError, OSError, EOFError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)


def load_arrays(path: Path) -> npt.NDArray[Any] | dict[str, npt.NDArray[Any]]:
    """Load a .npy, mapped into memory, or a .npz. Raises DataError, also for Python objects."""
    try:
        with open_regular(path) as stream:
            if stream.peek(2)[:2] == b"PK":  # a zip
                with np.load(stream, allow_pickle=False) as loaded:
                    return dict(loaded)
        array: npt.NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
        return array
    except _UNREADABLE as error:
        if isinstance(error, ValueError) and "pickle" in str(error):
            raise DataError(
                f"{path} is a pickle or holds Python objects, and loading it can run any code. "
                f"Save plain numbers: np.save(file, array.astype(np.float32)), np.uint8 for pixels"
            ) from error
        raise DataError(f"cannot read {path}: {error}") from error


def as_bytes_or_floats(inputs: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """Keep uint8, and convert floats to float32. Raises DataError for other types."""
    if inputs.dtype == np.uint8:
        return inputs
    if np.issubdtype(inputs.dtype, np.floating):
        with np.errstate(over="ignore"):  # too large values are reported later
            return inputs.astype(np.float32, copy=False)
    shift = " >> 8" if inputs.dtype == np.uint16 else ""
    raise DataError(
        f"{what} must be uint8 or floats, got {inputs.dtype}. Convert pixels by "
        f"(inputs{shift}).astype(np.uint8), anything else by inputs.astype(np.float32)"
    )


def as_numpy(array: Any) -> npt.NDArray[Any]:
    """Convert an array, or a tensor of any type; bfloat16 becomes float32."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        array = (array.float() if array.is_floating_point() else array).numpy()
    return np.asarray(array)


class ArrayReader(SampleReader):
    """Images [N, C, H, W], [N, H, W, C] or [N, H, W], features [N, D], or token ids [N, T].

    Token ids are int32 or int64, and become int64.
    """

    def __init__(self, array: npt.NDArray[Any], names: list[str] | None, what: str) -> None:
        if array.dtype in (np.int32, np.int64) and array.ndim == 2:
            array = array.astype(np.int64, copy=False)
        else:
            array = as_bytes_or_floats(array, what)
        if array.ndim not in (2, 3, 4) or 0 in array.shape:
            raise DataError(
                f"{what} must be images [N, C, H, W], [N, H, W, C] or [N, H, W], features [N, D] "
                f"or token ids [N, T], and not be empty; got {list(array.shape)}"
            )
        if names is not None and len(names) != len(array):
            raise DataError(f"{what}: {len(array)} inputs but {len(names)} labels")
        super().__init__(len(array), names)
        if array.ndim == 3:
            array = array[:, None]
        elif array.ndim == 4 and array.shape[1] not in _CHANNELS and array.shape[3] in _CHANNELS:
            array = np.moveaxis(array, 3, 1)
        self._array, self._what = array, what

    def format(self) -> InputFormat:
        """Return the format of the array."""
        dtype: Any = str(self._array.dtype)
        return InputFormat(shape=self._array.shape[1:], dtype=dtype)

    def samples(self, form: InputFormat) -> Iterator[npt.NDArray[Any]]:
        """Yield the rows."""
        if self.format() != form:
            raise DataError(
                f"{self._what}: the model takes {form}, as in the first data; got "
                f"{list(self._array.shape[1:])}, {self._array.dtype}. Convert them."
            )
        for number, sample in enumerate(self._array):
            if sample.dtype == np.float32 and not np.isfinite(sample).all():
                raise DataError(
                    f"{self._what}: input {number} has a NaN or an infinite number (or one too "
                    f"large for float32). Correct it, or leave it out."
                )
            yield sample


class ItemReader(SampleReader):
    """Items that are read one by one, such as those of a Dataset, with their labels."""

    def __init__(self, items: Sequence[Any], *, labelled: bool, what: str) -> None:
        super().__init__(len(items), [] if labelled else None)
        self._items, self._what = items, what
        if not len(items):
            raise DataError(f"{what} is empty")
        self._form = self._read(0)[0].format()

    def format(self) -> InputFormat:
        """Return the format of the first item."""
        return self._form

    def samples(self, form: InputFormat) -> Iterator[npt.NDArray[Any]]:
        """Yield the inputs; `names` is complete when all are read."""
        if self.names is not None:
            self.names.clear()
        for number in range(self.count):
            sample, label = self._read(number)
            if self.names is not None:
                self.names.append(class_name(label))
            yield from sample.samples(form)

    def _read(self, number: int) -> tuple[ArrayReader, Any]:
        """Return an item, as an array of one input, and its label."""
        item, label = self._items[number], None
        if isinstance(item, tuple | list) and len(item) == 2:
            item, label = item
        elif self.names is not None:
            raise DataError(
                f"{self._what} must give (input, label), but item {number} is {type(item).__name__}"
            )
        what = f"{self._what}: input {number}"
        if hasattr(item, "getbands"):  # a PIL image, which has its channels last
            if item.mode not in ("L", "RGB"):  # palette indices are not colours
                raise DataError(f"{what} is an image of mode {item.mode}; use image.convert('RGB')")
            item = np.moveaxis(np.atleast_3d(np.asarray(item)), 2, 0)
        return ArrayReader(as_numpy(item)[None], None, what), label
