"""Users' data: one reader for learners and benchmarks, and benchmarks made of it.

`tasks` is a number of tasks, or the classes of each. `test` is the test data, or the fraction of
every class that is held out for it. To normalise or augment, use
`dataclasses.replace(benchmark, mean=..., std=..., crop_padding=4, flip=True)`.
"""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from remask.data.benchmark import Benchmark
from remask.data.classes import Tasks, class_names, in_order, split_classes
from remask.data.images import ImageReader, Listing, list_images
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
    load_arrays,
)
from remask.data.sources import users_path
from remask.data.tasks import check_share, held_out
from remask.data.texts import ENDINGS, TextFile, TextReader, read_text_file
from remask.errors import DataError
from remask.files import AnyPath

_FRACTION = 0.2
# The names of the arrays in a .npz: ours, then those of Keras.
_NPZ_NAMES = (
    ("inputs", "labels", "test_inputs", "test_labels"),
    ("x_train", "y_train", "x_test", "y_test"),
)
Data = AnyPath | npt.NDArray[Any] | Tensor | Dataset[Any] | TextFile | Iterable[Any]
"""A folder CLASS/NAME.png (to predict, also a folder of images, an image, or a list of images), an
array or a tensor, texts, a TextFile, a torch Dataset or an iterable of (input, label)."""
TaskList = int | Sequence[Sequence[int | str]]
"""A number of tasks, or the classes of each task in order of learning."""
Array = npt.NDArray[Any] | Tensor
Arrays = AnyPath | tuple[AnyPath | Array, AnyPath | Array]
"""A .npz, or inputs and labels, each an array, a tensor, or a .npy."""


def read(
    data: Data,
    labels: Labels = None,
    *,
    labelled: bool,
    expected: InputFormat | None = None,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    skip_unreadable: bool = False,
    same_size: bool = False,
) -> SampleReader:
    """Return the reader of data, which reads most of it later. Raises DataError.

    `expected` is the format of a learner's inputs: strings are texts if it is that of texts.
    `size`, `channels` (3: always colour) and `same_size` are for images if none is expected yet.
    """
    names = None if labels is None else class_names(labels)
    texts = partial(TextReader, skip_unreadable=skip_unreadable)
    images = partial(
        ImageReader,
        size=size,
        channels=channels,
        skip_unreadable=skip_unreadable,
        same_size=same_size,
        labelled=labelled,
    )
    text_expected = expected is not None and expected.is_text
    if isinstance(data, str) and text_expected and not labelled:
        return texts([data], None)
    if names is not None and isinstance(data, TextFile | str | os.PathLike | Dataset):
        raise DataError(
            "leave `labels` out: folders of images, a TextFile and a Dataset have their own"
        )
    if isinstance(data, TextFile):
        return read_text_file(data, labelled=labelled, skip_unreadable=skip_unreadable)
    if isinstance(data, str | os.PathLike):
        path = users_path(data)
        if path.suffix.lower() in ENDINGS:
            raise DataError(
                f"name the columns of {path}: --text COLUMN --label COLUMN (in Python, "
                f"TextFile(path, text=..., label=...))"
            )
        return images(list_images(path, labelled=labelled))
    if isinstance(data, Tensor) or (isinstance(data, np.ndarray) and data.dtype.kind not in "UOT"):
        if labelled and names is None:
            raise DataError("an array needs `labels`, one for each input")
        return ArrayReader(as_numpy(data), names, "the inputs")
    if isinstance(data, Dataset):
        if not hasattr(data, "__len__"):
            raise DataError("the dataset has no length, so it cannot be read")
        if not (len(data) and _is_text_pair(data[0])):
            return ItemReader(data, labelled=labelled, what="the dataset")  # type: ignore[arg-type]
        data = [data[number] for number in range(len(data))]
    if not isinstance(data, Iterable):
        raise DataError(
            f"data must be a folder, an array, a tensor, texts, a Dataset or (input, label) "
            f"pairs, not {type(data).__name__}"
        )
    items = data.tolist() if isinstance(data, np.ndarray) else list(data)
    paths = bool(items) and all(isinstance(item, os.PathLike) for item in items)
    strings = bool(items) and all(isinstance(item, str) for item in items)
    if (paths or strings) and labelled and names is None:
        raise DataError(f"{'texts' if strings else 'image files'} need `labels`, one for each")
    if strings and (text_expected or labelled):
        return texts(items, names)
    if paths or strings:
        if names is not None and len(names) != len(items):
            raise DataError(f"{len(items)} image files but {len(names)} labels")
        return images(Listing([users_path(item) for item in items], names or []))
    if names is not None:
        raise DataError(
            "pass `labels` with an array, texts or image files only; other items are pairs, "
            "(input, label)"
        )
    if items and all(map(_is_text_pair, items)):
        pairs = class_names([label for _, label in items]) if labelled else None
        return texts([text for text, _ in items], pairs)
    return ItemReader(items, labelled=labelled, what="the data")


def _is_text_pair(item: Any) -> bool:
    return isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], str)


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
    load = partial(
        read,
        labelled=True,
        size=(size, size) if isinstance(size, int) else size,
        channels=channels,
        skip_unreadable=skip_unreadable,
        same_size=True,
    )
    train = load(Path(path))
    held = test if isinstance(test, float | int) else load(Path(test))
    benchmark = _assemble(name, train, held, tasks, seed)
    readers = [reader for reader in (train, held) if isinstance(reader, SampleReader)]
    if skipped := [str(reader.skipped) for reader in readers if reader.skipped]:
        warnings.warn("\n".join(skipped), UnreadableImageWarning, stacklevel=2)
    return benchmark


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
    readers = _read_arrays(train)
    held: SampleReader | float = readers[1] if len(readers) > 1 else _FRACTION
    if test is not None:
        held = test if isinstance(test, float | int) else _read_arrays(test)[0]
    return _assemble(name, readers[0], held, tasks, seed)


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
    held = test if isinstance(test, float | int) else read(test, labelled=True)
    return _assemble(name, read(train, labelled=True), held, tasks, seed)


def _read_arrays(source: Arrays) -> list[SampleReader]:
    """Return the reader of the data and, for a .npz that has some, that of the test data."""
    if isinstance(source, tuple | list) and len(source) == 2:
        pair = [
            load_arrays(users_path(each)) if isinstance(each, str | os.PathLike) else each
            for each in source
        ]
        if any(isinstance(each, Mapping) for each in pair):
            raise DataError("give either one .npz or a pair of .npy files")
        place = str(source[0]) if isinstance(source[0], str | os.PathLike) else "the arrays"
        return [_array_reader(pair[0], pair[1], place)]
    if not isinstance(source, str | os.PathLike):
        raise DataError(
            "give a pair, (inputs, labels), of arrays, tensors or .npy files, or one .npz"
        )
    loaded = load_arrays(users_path(source))
    if not isinstance(loaded, Mapping):
        raise DataError(f"{source} holds one array; give a pair: the inputs and the labels")
    for inputs, labels, test_inputs, test_labels in _NPZ_NAMES:
        if inputs in loaded and labels in loaded:
            found = [_array_reader(loaded[inputs], loaded[labels], str(source))]
            if test_inputs in loaded and test_labels in loaded:
                test = loaded[test_inputs], loaded[test_labels]
                found.append(_array_reader(*test, f"{source}, test"))
            return found
    raise DataError(
        f"{source} holds {', '.join(sorted(loaded)) or 'nothing'}; expected inputs and labels, "
        f"and optionally test_inputs and test_labels"
    )


def _array_reader(inputs: Any, labels: Any, what: str) -> SampleReader:
    try:
        return ArrayReader(as_numpy(inputs), class_names(labels), what)
    except DataError as error:
        raise DataError(f"{what}: {error}") from error


def _assemble(
    name: str, train: SampleReader, test: SampleReader | float, tasks: TaskList, seed: int
) -> Benchmark:
    """Make the benchmark, holding out test data if `test` is a fraction."""
    inputs, names = _load(train)
    classes = in_order(names)
    if len(classes) < 2:
        raise DataError(f"{name}: all inputs are of class {classes[0]!r}; need at least 2 classes")
    number_of = {each: number for number, each in enumerate(classes)}
    labels = torch.tensor([number_of[each] for each in names])
    try:
        if isinstance(test, SampleReader):
            test_inputs, test_names = _load(test)
            if differing := set(names) ^ set(test_names):
                raise DataError(
                    f"train and test data must have the same classes; only one of them has "
                    f"{', '.join(in_order(differing)[:10])}"
                )
            test_labels = torch.tensor([number_of[each] for each in test_names])
        elif 0 < test < 1:
            check_share(labels, test, name, classes)
            is_test = held_out(labels, test, seed)
            test_inputs, test_labels = inputs[is_test], labels[is_test]
            inputs, labels = inputs[~is_test], labels[~is_test]
        else:
            raise DataError(f"{name}: the test fraction must be between 0 and 1, got {test}")
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


def _load(reader: SampleReader) -> tuple[Tensor, list[str]]:
    """Return all inputs and the class of each. Raises DataError."""
    if reader.format().is_text:
        raise DataError("benchmarks are made of images or arrays, not of texts")
    inputs = as_bytes_or_floats(reader.read_all(), "the inputs")
    return torch.from_numpy(inputs), reader.names or []


def _tasks(tasks: TaskList, number_of: Mapping[str, int]) -> Tasks:
    if isinstance(tasks, int):
        return split_classes(len(number_of), tasks)
    # A number is a class's name if there is such a class, else its label.
    label_of = {str(label): label for label in range(len(number_of))} | dict(number_of)
    if unknown := {str(given) for task in tasks for given in task} - label_of.keys():
        raise DataError(f"unknown class {min(unknown)!r}. Known: {', '.join(number_of)}")
    split = tuple(tuple(label_of[str(given)] for given in task) for task in tasks)
    if (count := sum(map(len, split))) != len(number_of):
        raise DataError(f"the tasks hold {count} classes, the data has {len(number_of)}")
    return split
