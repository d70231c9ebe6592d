"""Users' data: the choice of its reader, and benchmarks made of it."""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from remask.data.benchmark import Benchmark
from remask.data.classes import Tasks, spread_classes
from remask.data.image_files import ImageReader, Listing, has_classes, list_classes, list_images
from remask.data.readers import (
    SKIP_UNREADABLE,
    ArrayReader,
    InputFormat,
    ItemReader,
    Labels,
    SampleReader,
    UnreadableImageWarning,
    as_bytes_or_floats,
    as_numpy,
    class_names,
    in_order,
    load_arrays,
)
from remask.data.sources import users_path
from remask.data.tasks import check_share, held_out
from remask.data.texts import TextFile, read_text_file, read_texts
from remask.errors import DataError
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


_FRACTION = 0.2
# The names of the arrays in a .npz: ours, then those of Keras.
_NPZ_NAMES = (
    ("inputs", "labels", "test_inputs", "test_labels"),
    ("x_train", "y_train", "x_test", "y_test"),
)

TaskList = int | Sequence[Sequence[int | str]]
"""A number of tasks, or the classes of each task in order of learning."""
Array = npt.NDArray[Any] | torch.Tensor
Arrays = AnyPath | tuple[AnyPath | Array, AnyPath | Array]
"""A .npz, or inputs and labels, each an array, a tensor, or a .npy."""


@dataclass(frozen=True, eq=False)
class _Labelled:
    """Inputs [N, *shape] and the class of each."""

    inputs: npt.NDArray[Any]
    names: list[str]


def image_folder(
    path: AnyPath,
    *,
    tasks: TaskList,
    test: AnyPath | float = _FRACTION,
    size: tuple[int, int] | int | None = None,
    channels: int = 3,
    seed: int = 0,
    name: str = "own-images",
    skip_unreadable: bool | None = None,
) -> Benchmark:
    """Load CLASS/NAME.png (or .jpg, .webp, ...); classes are numbered in the order of their names.

    `tasks` may name the classes. `size`, (height, width) or one number for both, resizes every
    image by its shorter side and crops the centre; without it all must have one size. `channels` is
    3 for colour, 1 for grey. Images are in memory as uint8 [N, channels, height, width]. Raises
    DataError, also for images that cannot be read; with `skip_unreadable` they are skipped, and an
    UnreadableImageWarning names them and other files. If it is None, --skip-unreadable or
    REMASK_SKIP_UNREADABLE=1 decides.
    """
    if channels not in (1, 3):
        raise DataError(f"channels must be 1 or 3, got {channels}")
    if skip_unreadable is None:
        skip_unreadable = os.environ.get(SKIP_UNREADABLE) == "1"
    readers = [
        ImageReader(
            list_classes(users_path(place)),
            size=(size, size) if isinstance(size, int) else size,
            channels=channels,
            skip_unreadable=skip_unreadable,
            same_size=True,
        )
        for place in ([path] if isinstance(test, float | int) else [path, test])
    ]
    _check_classes(readers[0].names or [], readers[-1].names or [])
    parts = [_read(reader, str(path)) for reader in readers]
    if skipped := [str(reader.skipped) for reader in readers if reader.skipped]:
        warnings.warn("\n".join(skipped), UnreadableImageWarning, stacklevel=2)
    held = test if isinstance(test, float | int) else parts[1]
    return _assemble(name, parts[0], held, tasks, seed)


def arrays(
    train: Arrays,
    *,
    tasks: TaskList,
    test: Arrays | float | None = None,
    seed: int = 0,
    name: str = "own-arrays",
) -> Benchmark:
    """Make a benchmark of inputs [N, C, H, W], [N, H, W, C], [N, H, W] or [N, D] and labels [N].

    `train` is a pair, (inputs, labels), of arrays, tensors or .npy files, or one .npz. Labels are
    integers or names. Bytes (uint8) are pixels, which the network receives in [0, 1]. Floats
    are kept, as float32.

    A .npz holds `inputs` and `labels`, and optionally `test_inputs` and `test_labels` (or x_train,
    y_train, x_test, y_test), which are the test data unless `test` is given. Without either, a
    fifth of each class is held out. Raises DataError.
    """
    part, own_test = _read_arrays(train)
    if test is None:
        held: _Labelled | float = own_test if own_test is not None else _FRACTION
    else:
        held = test if isinstance(test, float | int) else _read_arrays(test)[0]
    return _assemble(name, part, held, tasks, seed)


def from_dataset(
    train: Dataset[Any],
    *,
    tasks: TaskList,
    test: Dataset[Any] | float = _FRACTION,
    seed: int = 0,
    name: str = "own-dataset",
) -> Benchmark:
    """Load every (input, label) of a torch Dataset into memory.

    An input is a PIL image or a tensor or array of bytes (uint8), which the network
    receives in [0, 1], or of floats, which are kept, as float32. Raises DataError.
    """
    held = test if isinstance(test, float | int) else _read_dataset(test, "the test dataset")
    return _assemble(name, _read_dataset(train, "the train dataset"), held, tasks, seed)


def _read_dataset(dataset: Dataset[Any], what: str) -> _Labelled:
    if not hasattr(dataset, "__len__"):
        raise DataError(f"{what} has no length, so it cannot be loaded")
    return _read(ItemReader(dataset, labelled=True, what=what), what)  # type: ignore[arg-type]


def _read_arrays(source: Arrays) -> tuple[_Labelled, _Labelled | None]:
    if not isinstance(source, str | os.PathLike):
        if type(source) not in (tuple, list) or len(source) != 2:
            raise DataError(
                "give a pair, (inputs, labels), of arrays, tensors or .npy files, or one .npz"
            )
        inputs, labels = map(_as_array, source)
        if isinstance(inputs, Mapping) or isinstance(labels, Mapping):
            raise DataError("give either one .npz or a pair of .npy files")
        place = source[0] if isinstance(source[0], str | os.PathLike) else "the arrays"
        return _labelled(inputs, labels, str(place)), None
    loaded = load_arrays(users_path(source))
    if not isinstance(loaded, Mapping):
        raise DataError(f"{source} holds one array; give a pair: the inputs and the labels")
    for inputs_name, labels_name, test_inputs, test_labels in _NPZ_NAMES:
        if inputs_name in loaded and labels_name in loaded:
            test = None
            if test_inputs in loaded and test_labels in loaded:
                test = _labelled(loaded[test_inputs], loaded[test_labels], f"{source}, test")
            return _labelled(loaded[inputs_name], loaded[labels_name], str(source)), test
    raise DataError(
        f"{source} holds {', '.join(sorted(loaded)) or 'nothing'}; expected inputs and labels, "
        f"and optionally test_inputs and test_labels"
    )


def _as_array(source: AnyPath | Array) -> Any:
    if isinstance(source, str | os.PathLike):
        return load_arrays(users_path(source))
    if isinstance(source, torch.Tensor):
        source = as_numpy(source)
    return np.array(source)  # a copy, so that the caller may change theirs


def _labelled(inputs: npt.NDArray[Any], labels: npt.NDArray[Any], what: str) -> _Labelled:
    try:
        names = class_names(labels)
    except DataError as error:
        raise DataError(f"{what}: {error}") from error
    return _read(ArrayReader(inputs, names, what), what)


def _read(reader: SampleReader, what: str) -> _Labelled:
    inputs = as_bytes_or_floats(reader.read_all(), f"{what}: inputs")
    return _Labelled(inputs, reader.names or [])


def _assemble(
    name: str, train: _Labelled, test: _Labelled | float, tasks: TaskList, seed: int
) -> Benchmark:
    """Make the benchmark, holding out test data if `test` is a fraction."""
    classes = in_order(train.names)
    if len(classes) < 2:
        raise DataError(f"{name}: all inputs are of class {classes[0]!r}; need at least 2 classes")
    number_of = {each: number for number, each in enumerate(classes)}

    def tensors(part: _Labelled) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.tensor([number_of[each] for each in part.names])
        return torch.from_numpy(np.ascontiguousarray(part.inputs)), labels

    inputs, labels = tensors(train)
    try:
        if isinstance(test, _Labelled):
            _check_classes(train.names, test.names)
            test_inputs, test_labels = tensors(test)
        else:
            if not 0 < test < 1:
                raise DataError(f"{name}: the test fraction must be between 0 and 1, got {test}")
            check_share(labels, test, name, classes)
            is_test = held_out(labels, test, seed)
            test_inputs, test_labels = inputs[is_test], labels[is_test]
            inputs, labels = inputs[~is_test], labels[~is_test]
        return Benchmark(
            name=name,
            train_inputs=inputs,
            train_labels=labels,
            test_inputs=test_inputs,
            test_labels=test_labels,
            tasks=_tasks(tasks, number_of),
            scale=1.0 if inputs.is_floating_point() else 1 / 255,
            class_names=tuple(classes),
        )
    except ValueError as error:
        raise DataError(f"{name}: {error}") from error


def _check_classes(train: Sequence[str], test: Sequence[str]) -> None:
    if differing := set(train) ^ set(test):
        raise DataError(
            f"train and test data must have the same classes; only one of them has "
            f"{', '.join(in_order(differing)[:10])}"
        )


def _tasks(tasks: TaskList, number_of: Mapping[str, int]) -> Tasks:
    if isinstance(tasks, int):
        return spread_classes(len(number_of), tasks)

    def number(given: int | str) -> int:
        if str(given) in number_of:
            return number_of[str(given)]
        if isinstance(given, int):
            return given
        raise DataError(f"unknown class {given!r}. Known: {', '.join(number_of)}")

    split = tuple(tuple(map(number, task)) for task in tasks)
    count = sum(map(len, split))
    if count != len(number_of):
        raise DataError(f"the tasks hold {count} classes, the data has {len(number_of)}")
    return split
