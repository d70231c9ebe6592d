"""Reading data for a learner: folders of images, arrays, datasets. One sample after the other."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from remask.benchmarks.inputs_and_labels import as_bytes_or_floats
from remask.benchmarks.own import item_to_array
from remask.benchmarks.own_images import class_folders, decode_file, images_in
from remask.datasets.files import DataError, users_path
from remask.datasets.images import pillow
from remask.durable import AnyPath
from remask.learner.errors import LearnerError
from remask.learner.manifest import InputFormat
from remask.learner.names import checked_name
from remask.printable import printable

Data = AnyPath | npt.NDArray[Any] | Tensor | Dataset[Any] | Iterable[Any]
"""A folder CLASS/NAME.png (to predict, also a folder of images, an image, or a list of images), an
array or a tensor, a torch Dataset of (input, label), or an iterable of (input, label)."""
Labels = Sequence[Any] | npt.NDArray[Any] | Tensor | None
"""The classes of arrays: text or whole numbers, which become their text."""
Sample = npt.NDArray[Any]

_LARGEST_SIDE = 64
_SHOWN = 10


class Source:
    """Samples to be read, in their order, with the names of their classes if they have any."""

    def __init__(self, count: int, names: list[str] | None, files: list[Path] | None) -> None:
        self.count = count
        self.names = names
        """The class of each sample."""
        self.files = files
        """The file of each sample, if each is one."""

    def format(self) -> InputFormat:
        """What the inputs are like, if nothing is known yet."""
        raise NotImplementedError

    def samples(self, form: InputFormat) -> Iterator[Sample]:
        """The inputs, each of this format. Raises LearnerError."""
        raise NotImplementedError


class _Files(Source):
    def __init__(
        self, files: list[Path], names: list[str] | None, size: tuple[int, int] | None
    ) -> None:
        pillow()
        super().__init__(len(files), names, files)
        self._files, self._size = files, size

    def format(self) -> InputFormat:
        height, width, grey = _look_at(self._files[0])
        if self._size is not None:
            height, width = self._size
        elif max(height, width) > _LARGEST_SIDE:
            height = width = _LARGEST_SIDE
        return InputFormat(shape=(1 if grey else 3, height, width), dtype="uint8")

    def samples(self, form: InputFormat) -> Iterator[Sample]:
        if not form.is_image or form.dtype != "uint8":
            raise LearnerError(
                f"this learner has learnt from arrays {list(form.shape)} of {form.dtype}, and "
                f"{self._files[0]} is an image: give arrays like those of the first visit."
            )
        channels, *size = form.shape
        unreadable = []
        for file in self._files:
            try:
                sample = decode_file(file, (size[0], size[1]), channels)
            except DataError as error:
                unreadable.append(printable(str(error)))
                continue
            if not unreadable:
                yield sample
        if unreadable:
            more = len(unreadable) - _SHOWN
            raise LearnerError(
                f"{len(unreadable)} image{'s' * (len(unreadable) > 1)} cannot be read:\n  "
                + "\n  ".join(unreadable[:_SHOWN])
                + (f"\n  and {more} more" if more > 0 else "")
                + "\nReplace or remove what is named, then try again."
            )


class _Array(Source):
    def __init__(self, array: npt.NDArray[Any], names: list[str] | None, what: str) -> None:
        try:
            array = as_bytes_or_floats(array, what)
        except DataError as error:
            raise LearnerError(str(error)) from error
        if array.ndim not in (2, 3, 4) or 0 in array.shape:
            raise LearnerError(
                f"{what} must be images [N, C, H, W], [N, H, W, C] or [N, H, W], or features "
                f"[N, D], and not be empty; got {list(array.shape)}"
            )
        if names is not None and len(names) != len(array):
            raise LearnerError(f"{what}: {len(array)} inputs but {len(names)} labels")
        super().__init__(len(array), names, None)
        self._array, self._what = array, what

    def format(self) -> InputFormat:
        dtype: Literal["uint8", "float32"] = "uint8" if self._array.dtype == "uint8" else "float32"
        return InputFormat(shape=self._channels_first(None).shape[1:], dtype=dtype)

    def samples(self, form: InputFormat) -> Iterator[Sample]:
        array = self._channels_first(form.shape[0] if form.is_image else None)
        _check_format(array[0], form, self._what)
        for number, sample in enumerate(array):
            _check_finite(sample, f"{self._what}: input {number}")
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


class _Items(Source):
    """What has to be asked for one by one; labels are known only after that."""

    def __init__(self, items: Sequence[Any], *, labelled: bool, what: str) -> None:
        super().__init__(len(items), [] if labelled else None, None)
        self._items, self._what = items, what
        if not len(items):
            raise LearnerError(f"{what} is empty: there is nothing to learn or to predict")
        self._first = self._read(0)[0]

    def format(self) -> InputFormat:
        return _Array(self._first[None], None, self._what).format()

    def samples(self, form: InputFormat) -> Iterator[Sample]:
        if self.names is not None:
            self.names.clear()
        for number in range(self.count):
            sample, label = self._read(number)
            one = _Array(sample[None], None, f"{self._what}: input {number}")
            if self.names is not None:
                self.names.append(class_name(label))
            yield from one.samples(form)

    def _read(self, number: int) -> tuple[Sample, Any]:
        item = self._items[number]
        label = None
        if isinstance(item, tuple | list) and len(item) == 2:
            item, label = item
        elif self.names is not None:
            raise LearnerError(
                f"{self._what} must give (input, label), but item {number} is {type(item).__name__}"
            )
        try:
            return item_to_array(item, f"{self._what}: input {number}"), label
        except DataError as error:
            raise LearnerError(str(error)) from error


def read(data: Data, labels: Labels, *, size: tuple[int, int] | None, labelled: bool) -> Source:
    """Find out what data are given. Nothing much is read before `samples`. Raises LearnerError."""
    if isinstance(data, str | os.PathLike):
        if labels is not None:
            raise LearnerError("the folders of images are their labels: leave `labels` out")
        return _read_path(data, size, labelled=labelled)
    if isinstance(data, np.ndarray | Tensor):
        names = None if labels is None else [class_name(label) for label in _plain(labels)]
        if labelled and names is None:
            raise LearnerError("an array needs `labels`, one for each input")
        return _Array(_as_numpy(data), names, "the inputs")
    if labels is not None:
        raise LearnerError("give `labels` with an array only: a dataset brings its own")
    if isinstance(data, Dataset):
        if not hasattr(data, "__len__"):
            raise LearnerError("the dataset has no length, so it cannot be read")
        return _Items(data, labelled=labelled, what="the dataset")  # type: ignore[arg-type]
    if not isinstance(data, Iterable):
        raise LearnerError(
            f"data must be a folder, an array, a tensor, a Dataset or (input, label) pairs, not "
            f"{type(data).__name__}"
        )
    items = list(data)
    if not labelled and items and all(isinstance(item, str | os.PathLike) for item in items):
        return _Files([users_path(item) for item in items], None, size)
    return _Items(items, labelled=labelled, what="the data")


def class_name(label: Any) -> str:
    """What a class is called: a label as text. Raises LearnerError."""
    if isinstance(label, Tensor) and label.ndim == 0:
        label = label.item()
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise LearnerError(
            f"a label is a class's name or number, not {type(label).__name__} {label!r:.50}"
        )
    return checked_name(str(label), "a class")


def in_order(names: Iterable[str]) -> list[str]:
    """New names in the order in which they get their outputs: numbers by size, others by text."""
    names = set(names)
    if all(name.isascii() and name.isdigit() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def _read_path(data: AnyPath, size: tuple[int, int] | None, *, labelled: bool) -> Source:
    try:
        path = users_path(data)
        if path.is_file() and not labelled:
            return _Files([path], None, size)
        if not path.is_dir():
            expected = "a folder with a folder per class, CLASS/NAME.png"
            if not labelled:
                expected = "an image, or a folder of images"
            found = "is a file" if path.exists() else "does not exist"
            raise LearnerError(f"{path} {found}: expected {expected}")
        flat = not any(each.is_dir() and not each.name.startswith(".") for each in path.iterdir())
        if flat and not labelled:
            return _Files(images_in(path), None, size)
        files, names = [], []
        for folder in class_folders(path):
            name = class_name(folder.name.encode(errors="backslashreplace").decode())
            found_files = images_in(folder)
            files += found_files
            names += [name] * len(found_files)
    except (DataError, OSError) as error:
        raise LearnerError(str(error)) from error
    return _Files(files, names if labelled else None, size)


def _look_at(file: Path) -> tuple[int, int, bool]:
    """Height and width of an image, and whether it is grey."""
    try:
        with pillow().open(file) as image:
            return image.height, image.width, image.mode in ("1", "L", "LA", "I;16")
    except (OSError, ValueError, SyntaxError) as error:
        raise LearnerError(f"{printable(str(file))} is not a whole image: {error}") from error


def _check_format(sample: Sample, form: InputFormat, what: str) -> None:
    if sample.shape == form.shape and str(sample.dtype) == form.dtype:
        return
    if form.is_image:
        expected = (
            f"{form.shape[0]} channels of {form.shape[1]} x {form.shape[2]} pixels, {form.dtype}"
        )
    else:
        expected = f"{form.shape[0]} features, {form.dtype}"
    raise LearnerError(
        f"{what}: this learner takes {expected}, since its first visit; got "
        f"{list(sample.shape)}, {sample.dtype}. Bring them to that form."
    )


def _check_finite(sample: Sample, what: str) -> None:
    if sample.dtype != np.uint8 and not np.isfinite(sample).all():
        raise LearnerError(
            f"{what} has a NaN or an infinite number in it. Mend it, or leave it out."
        )


def _as_numpy(data: npt.NDArray[Any] | Tensor) -> npt.NDArray[Any]:
    if isinstance(data, Tensor):
        data = data.detach().cpu()
        return (data.float() if data.dtype == torch.bfloat16 else data).numpy()
    return data


def _plain(labels: Sequence[Any] | npt.NDArray[Any] | Tensor) -> list[Any]:
    return labels.tolist() if isinstance(labels, np.ndarray | Tensor) else list(labels)
