"""Arrays, tensors and datasets of users."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from remask.datasets import DataError
from remask.user_data.class_names import class_name
from remask.user_data.formats import InputFormat
from remask.user_data.source import Source

_TOKENS = (np.dtype(np.int32), np.dtype(np.int64))


def as_bytes_or_floats(inputs: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """Keep uint8 and float32, convert other floats to float32, refuse the rest with DataError."""
    if inputs.dtype == np.uint8:
        return inputs
    if np.issubdtype(inputs.dtype, np.floating):
        with np.errstate(over="ignore"):  # what is too large is found, and named, later
            return inputs.astype(np.float32, copy=False)
    advice = (
        "Pixels of 0..255 become bytes by inputs.astype(np.uint8), anything else floats by "
        "inputs.astype(np.float32)"
    )
    if inputs.dtype == np.uint16:
        advice = "Pixels of 16 bits become bytes by (inputs >> 8).astype(np.uint8)"
    raise DataError(f"{what} must be uint8 or floats, got {inputs.dtype}. {advice}")


def item_to_array(item: Any, what: str) -> npt.NDArray[Any]:
    """Convert a tensor, a PIL image or an array. Raises DataError for an image's other modes."""
    if hasattr(item, "getbands"):  # a PIL image, which has its channels last
        if item.mode not in ("L", "RGB"):  # the numbers of a palette are not colours
            raise DataError(f"{what} is an image of mode {item.mode}; use image.convert('RGB')")
        array = np.asarray(item)
        return array.transpose(2, 0, 1) if array.ndim == 3 else array
    return as_numpy(item) if isinstance(item, Tensor) else np.asarray(item)


def as_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    """Convert a tensor of any type; numpy has fewer types of floats."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


class ArraySource(Source):
    """Images [N, C, H, W], [N, H, W, C] or [N, H, W], features [N, D], or token ids [N, T].

    Token ids are int32 or int64, and become int64.
    """

    def __init__(self, array: npt.NDArray[Any], names: list[str] | None, what: str) -> None:
        if array.dtype in _TOKENS and array.ndim == 2:
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
        dtype: Literal["uint8", "float32", "int64"] = "float32"
        if self._array.dtype == np.uint8:
            dtype = "uint8"
        elif self._array.dtype == np.int64:
            dtype = "int64"
        return InputFormat(shape=self._channels_first(None).shape[1:], dtype=dtype)

    def samples(self, form: InputFormat) -> Iterator[npt.NDArray[Any]]:
        """Yield the rows."""
        array = self._channels_first(form.shape[0] if form.is_image else None)
        if array.shape[1:] != form.shape or str(array.dtype) != form.dtype:
            raise DataError(
                f"{self._what}: this learner takes {form}, since its first visit; got "
                f"{list(array.shape[1:])}, {array.dtype}. Convert them."
            )
        for number, sample in enumerate(array):
            if sample.dtype == np.float32 and not np.isfinite(sample).all():
                raise DataError(
                    f"{self._what}: input {number} has a NaN or an infinite number in it. Correct "
                    f"it, or leave it out."
                )
            yield sample

    def _channels_first(self, channels: int | None) -> npt.NDArray[Any]:
        array = self._array
        if array.ndim == 3:
            return array[:, None]
        if array.ndim == 4:
            known = (1, 3, 4) if channels is None else (channels,)
            if array.shape[1] not in known and array.shape[3] in known:
                return np.moveaxis(array, 3, 1)
        return array


class ItemSource(Source):
    """Items that are read one by one, such as those of a Dataset, with their labels."""

    def __init__(self, items: Sequence[Any], *, labelled: bool, what: str) -> None:
        super().__init__(len(items), [] if labelled else None)
        self._items, self._what = items, what
        if not len(items):
            raise DataError(f"{what} is empty: there is nothing to learn or to predict")
        self._first = self._read(0)[0]

    def format(self) -> InputFormat:
        """Return the format of the first item."""
        return ArraySource(self._first[None], None, self._what).format()

    def samples(self, form: InputFormat) -> Iterator[npt.NDArray[Any]]:
        """Yield the inputs; `names` are known when all are read."""
        if self.names is not None:
            self.names.clear()
        for number in range(self.count):
            sample, label = self._read(number)
            one = ArraySource(sample[None], None, f"{self._what}: input {number}")
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
        return item_to_array(item, f"{self._what}: input {number}"), label
