"""Users' arrays, tensors, .npy and .npz files, and datasets."""

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from remask import files
from remask.data.originals import DataError
from remask.data.user_samples import InputFormat, SampleReader, class_name
from remask.machine import require_room

_UNREADABLE = (  # raised by NumPy and zipfile for damaged files
    *(ValueError, OverflowError, OSError, EOFError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)


def as_bytes_or_floats(inputs: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """Keep uint8, and convert floats to float32. Raises DataError for other types."""
    if inputs.dtype == np.uint8:
        return inputs
    if np.issubdtype(inputs.dtype, np.floating):
        with np.errstate(over="ignore"):  # too large values are reported later
            return inputs.astype(np.float32, copy=False)
    advice = (
        "Pixels of 0..255 become bytes by inputs.astype(np.uint8), anything else floats by "
        "inputs.astype(np.float32)"
    )
    if inputs.dtype == np.uint16:
        advice = "Pixels of 16 bits become bytes by (inputs >> 8).astype(np.uint8)"
    raise DataError(f"{what} must be uint8 or floats, got {inputs.dtype}. {advice}")


def as_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    """Convert a tensor of any type; bfloat16 becomes float32."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


def load_arrays(path: Path) -> npt.NDArray[Any] | dict[str, npt.NDArray[Any]]:
    """Load a .npy, mapped into memory, or a .npz. Raises DataError, also for Python objects."""
    try:
        with files.open_regular(path) as stream:
            if stream.peek(4)[:4] == b"PK\x03\x04":
                with zipfile.ZipFile(stream) as archive:
                    size = sum(member.file_size for member in archive.infolist())
                require_room(size, f"loading {path}")
                stream.seek(0)
                with np.load(stream, allow_pickle=False) as loaded:
                    return {name: loaded[name] for name in loaded.files}
        array: npt.NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
        return array
    except _UNREADABLE as error:
        if "allow_pickle" in str(error) or "pickled" in str(error):
            raise DataError(
                f"{path} is a pickle or holds Python objects, and loading it can run any code. "
                f"Save plain numbers: np.save(file, array.astype(np.float32)), np.uint8 for pixels"
            ) from error
        raise DataError(f"cannot read {path}: {error}") from error


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
        self._array, self._what = array, what

    def format(self) -> InputFormat:
        """Return the format of the array."""
        dtype: Any = str(self._array.dtype)
        return InputFormat(shape=self._channels_first(None).shape[1:], dtype=dtype)

    def samples(self, form: InputFormat) -> Iterator[npt.NDArray[Any]]:
        """Yield the rows."""
        array = self._channels_first(form.shape[0] if form.is_image else None)
        if array.shape[1:] != form.shape or str(array.dtype) != form.dtype:
            raise DataError(
                f"{self._what}: the model takes {form}, as in the first data; got "
                f"{list(array.shape[1:])}, {array.dtype}. Convert them."
            )
        for number, sample in enumerate(array):
            if sample.dtype == np.float32 and not np.isfinite(sample).all():
                raise self._not_finite(number)
            yield sample

    def read_all(self) -> npt.NDArray[Any]:
        """Return the array, channels first."""
        array = self._channels_first(None)
        # A NaN makes both extremes NaN, so the common case takes no memory.
        if array.dtype == np.float32 and not np.isfinite([array.min(), array.max()]).all():
            finite = (bool(np.isfinite(row).all()) for row in array)
            raise self._not_finite(list(finite).index(False))
        return array

    def _not_finite(self, number: int) -> DataError:
        return DataError(
            f"{self._what}: input {number} has a NaN or an infinite number (or one too large for "
            f"float32). Correct it, or leave it out."
        )

    def _channels_first(self, channels: int | None) -> npt.NDArray[Any]:
        array = self._array
        if array.ndim == 3:
            return array[:, None]
        if array.ndim == 4:
            known = (1, 3, 4) if channels is None else (channels,)
            if array.shape[1] not in known and array.shape[3] in known:
                return np.moveaxis(array, 3, 1)
        return array


class ItemReader(SampleReader):
    """Items that are read one by one, such as those of a Dataset, with their labels."""

    def __init__(self, items: Sequence[Any], *, labelled: bool, what: str) -> None:
        super().__init__(len(items), [] if labelled else None)
        self._items, self._what = items, what
        if not len(items):
            raise DataError(f"{what} is empty")
        self._first = self._read(0)[0]

    def format(self) -> InputFormat:
        """Return the format of the first item."""
        return ArrayReader(self._first[None], None, f"{self._what}: input 0").format()

    def samples(self, form: InputFormat) -> Iterator[npt.NDArray[Any]]:
        """Yield the inputs; `names` is complete when all are read."""
        if self.names is not None:
            self.names.clear()
        for number in range(self.count):
            sample, label = self._read(number)
            one = ArrayReader(sample[None], None, f"{self._what}: input {number}")
            if self.names is not None:
                self.names.append(class_name(label))
            yield from one.samples(form)

    def _read(self, number: int) -> tuple[npt.NDArray[Any], Any]:
        item, label = self._items[number], None
        if isinstance(item, tuple | list) and len(item) == 2:
            item, label = item
        elif self.names is not None:
            raise DataError(
                f"{self._what} must give (input, label), but item {number} is {type(item).__name__}"
            )
        return _item_to_array(item, f"{self._what}: input {number}"), label


def _item_to_array(item: Any, what: str) -> npt.NDArray[Any]:
    """Convert a tensor, an array or a PIL image of mode L or RGB."""
    if hasattr(item, "getbands"):  # a PIL image, which has its channels last
        if item.mode not in ("L", "RGB"):  # palette indices are not colours
            raise DataError(f"{what} is an image of mode {item.mode}; use image.convert('RGB')")
        array = np.asarray(item)
        return array.transpose(2, 0, 1) if array.ndim == 3 else array
    return as_numpy(item) if isinstance(item, Tensor) else np.asarray(item)
