"""Choose the reader for a user's data."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.data import Dataset

from remask.data.image_files import ImageReader, Listing, has_classes, list_classes, list_images
from remask.data.originals import DataError, users_path
from remask.data.texts import TextFile, read_text_file, read_texts
from remask.data.user_arrays import ArrayReader, ItemReader, as_numpy
from remask.data.user_samples import InputFormat, Labels, SampleReader, class_names
from remask.files import AnyPath

Data = AnyPath | npt.NDArray[Any] | Tensor | Dataset[Any] | TextFile | Iterable[Any]
"""A folder CLASS/NAME.png (to predict, also a folder of images, an image, or a list of images), an
array or a tensor, texts, a TextFile, a torch Dataset or an iterable of (input, label)."""


def read(
    data: Data,
    labels: Labels = None,
    *,
    labelled: bool,
    expected: InputFormat | None = None,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    skip_unreadable: bool = False,
) -> SampleReader:
    """Return the reader of data, which reads most of it later. Raises DataError.

    `expected` is the format of a learner's inputs: strings are texts if it is that of texts. `size`
    and `channels` (3: always colour) apply to image files if no format is expected yet.
    """
    texts = expected is not None and expected.is_text
    choice = _Choice(labelled, texts, size, channels, skip_unreadable)
    return choice.read(data, None if labels is None else class_names(labels))


@dataclass(frozen=True)
class _Choice:
    _labelled: bool
    _texts: bool
    _size: tuple[int, int] | None
    _channels: int | None
    _skip: bool

    def read(self, data: Data, names: list[str] | None) -> SampleReader:
        if isinstance(data, TextFile):
            if names is not None:
                raise DataError("a TextFile names the column of its labels: leave `labels` out")
            return read_text_file(data, labelled=self._labelled, skip_unreadable=self._skip)
        if isinstance(data, str) and self._texts and not self._labelled:
            return self._of_texts([data], None)
        if isinstance(data, str | os.PathLike):
            if names is not None:
                raise DataError("the folders of images are their labels: leave `labels` out")
            return self._of_path(users_path(data))
        if isinstance(data, np.ndarray) and data.dtype.kind in "UOT":
            data = data.tolist()
        if isinstance(data, np.ndarray | Tensor):
            if self._labelled and names is None:
                raise DataError("an array needs `labels`, one for each input")
            array = as_numpy(data) if isinstance(data, Tensor) else data
            return ArrayReader(array, names, "the inputs")
        if isinstance(data, Dataset):
            return self._of_dataset(data, names)
        if not isinstance(data, Iterable):
            raise DataError(
                f"data must be a folder, an array, a tensor, texts, a Dataset or (input, label) "
                f"pairs, not {type(data).__name__}"
            )
        return self._of_items(list(data), names)

    def _of_dataset(self, data: Dataset[Any], names: list[str] | None) -> SampleReader:
        if names is not None:
            raise DataError("a dataset has its own labels: leave `labels` out")
        if not hasattr(data, "__len__"):
            raise DataError("the dataset has no length, so it cannot be read")
        if len(data) and _is_text_pair(data[0]):
            return self._of_items([data[number] for number in range(len(data))], None)
        return ItemReader(data, labelled=self._labelled, what="the dataset")  # type: ignore[arg-type]

    def _of_items(self, items: list[Any], names: list[str] | None) -> SampleReader:
        paths = bool(items) and all(isinstance(item, os.PathLike) for item in items)
        strings = bool(items) and all(isinstance(item, str) for item in items)
        if strings and self._labelled and names is None:
            raise DataError("texts need `labels`, one for each")
        if strings and (self._texts or self._labelled):
            return self._of_texts(items, names)
        if paths and self._labelled and names is None:
            raise DataError("image files need `labels`, one for each")
        if paths or strings:
            if names is not None and len(names) != len(items):
                raise DataError(f"{len(items)} image files but {len(names)} labels")
            return self._images(Listing([users_path(item) for item in items], names or []))
        if items and all(map(_is_text_pair, items)):
            pairs = class_names([label for _, label in items]) if self._labelled else None
            return self._of_texts([text for text, _ in items], pairs)
        if names is not None:
            raise DataError(
                "pass `labels` with an array, texts or image files only; other items are pairs, "
                "(input, label)"
            )
        return ItemReader(items, labelled=self._labelled, what="the data")

    def _of_texts(self, texts: list[str], names: list[str] | None) -> SampleReader:
        return read_texts(texts, names, skip_unreadable=self._skip)

    def _of_path(self, path: Path) -> SampleReader:
        if path.suffix.lower() in (".csv", ".jsonl", ".ndjson"):
            raise DataError(
                f"name the columns of {path}: --text COLUMN --label COLUMN (in Python, "
                f"TextFile(path, text=..., label=...))"
            )
        if path.is_file() and not self._labelled:
            return self._images(Listing([path]))
        if not path.is_dir():
            wanted = "a folder with a folder per class, CLASS/NAME.png"
            if not self._labelled:
                wanted = "an image, or a folder of images"
            found = "is a file" if path.is_file() else "does not exist"
            if path.exists() and not path.is_file():
                found = "is not a regular file"
            raise DataError(f"{path} {found}: expected {wanted}")
        if not self._labelled and not has_classes(path):
            return self._images(list_images(path))
        return self._images(list_classes(path))

    def _images(self, listing: Listing) -> SampleReader:
        return ImageReader(
            listing,
            size=self._size,
            channels=self._channels,
            skip_unreadable=self._skip,
            labelled=self._labelled,
        )


def _is_text_pair(item: Any) -> bool:
    return isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], str)
