"""Your own data: a folder of images, arrays, or any torch Dataset, as a Benchmark.

Each takes `tasks`, a number of tasks or the classes of each, and `test`, the test data or the
fraction of every class that is set aside for it. To normalise or augment, use
`dataclasses.replace(benchmark, mean=..., std=..., crop_padding=4, flip=True)`.
"""

import math
import os
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from remask import durable
from remask.benchmarks.benchmark import Benchmark
from remask.benchmarks.inputs_and_labels import (
    Part,
    TaskList,
    assemble,
    from_numpy,
)
from remask.datasets.originals import DataError, users_path
from remask.durable import AnyPath
from remask.machine import require_room
from remask.user_data import (
    SKIP_UNREADABLE,
    ImageSource,
    UnreadableImageWarning,
    as_bytes_or_floats,
    item_to_array,
    list_classes,
)

_FRACTION = 0.2
_UNREADABLE = (  # what NumPy and zipfile raise of files that are damaged, or are not what they say
    ValueError,
    OverflowError,
    OSError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
# The names that arrays go by in a .npz: ours, then those of Keras.
_NPZ_NAMES = (
    ("inputs", "labels", "test_inputs", "test_labels"),
    ("x_train", "y_train", "x_test", "y_test"),
)

Array = npt.NDArray[Any] | torch.Tensor
Arrays = AnyPath | tuple[AnyPath | Array, AnyPath | Array]
"""A .npz, or inputs and labels, each an array, a tensor, or a .npy."""


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
    UnreadableImageWarning names them. If it is None, --skip-unreadable or REMASK_SKIP_UNREADABLE=1
    decides.
    """
    if channels not in (1, 3):
        raise DataError(f"channels must be 1 or 3, got {channels}")
    shape = (size, size) if isinstance(size, int) else size
    if skip_unreadable is None:
        skip_unreadable = os.environ.get(SKIP_UNREADABLE) == "1"
    places = [path] if isinstance(test, float | int) else [path, test]
    sources = [
        ImageSource(
            list_classes(users_path(place)),
            size=shape,
            channels=channels,
            skip_unreadable=skip_unreadable,
            same_size=True,
        )
        for place in places
    ]
    names, test_names = (sorted(set(source.names or ())) for source in (sources[0], sources[-1]))
    if names != test_names:
        raise DataError(
            f"{path} and {test} must hold the same classes; only one of them has "
            f"{', '.join(sorted(set(names) ^ set(test_names)))}"
        )
    parts = [
        _read_images(source, str(place)) for source, place in zip(sources, places, strict=True)
    ]
    if skipped := [line for source in sources if (line := source.skipped.unreadable_line)]:
        warnings.warn("\n".join(skipped), UnreadableImageWarning, stacklevel=2)
    held_out = test if isinstance(test, float | int) else parts[1]
    return assemble(name, parts[0], held_out, tasks, seed=seed, class_names=names)


def _read_images(source: ImageSource, what: str) -> Part:
    form = source.format()
    samples = source.samples(form)
    first = next(samples)
    inputs = np.empty((source.count, *form.shape), dtype=np.uint8)
    inputs[0] = first
    for row, sample in enumerate(samples, start=1):
        inputs[row] = sample
    number_of = {name: number for number, name in enumerate(sorted(set(source.names or ())))}
    labels = np.array([number_of[name] for name in source.names or ()])
    return from_numpy(inputs, labels, what)


def arrays(
    train: Arrays,
    *,
    tasks: TaskList,
    test: Arrays | float | None = None,
    seed: int = 0,
    name: str = "own-arrays",
) -> Benchmark:
    """Make a benchmark of inputs [N, C, H, W], [N, H, W] or [N, D] and integer labels [N].

    `train` is a pair, (inputs, labels), of arrays, tensors or .npy files, or one .npz. Labels are
    in 0..K-1.

    Bytes (uint8) are pixels, which the network sees in [0, 1]. Floats stay what they are, whatever
    their range, as float32.

    A .npz holds `inputs` and `labels`, and perhaps `test_inputs` and `test_labels` (or x_train,
    y_train, x_test, y_test). Unless `test` says otherwise, those are the test data, and without
    them a fifth of each class is. Raises DataError.
    """
    part, own_test = _read_arrays(train)
    if test is None:
        held_out: Part | float = own_test if own_test is not None else _FRACTION
    else:
        held_out = test if isinstance(test, float | int) else _read_arrays(test)[0]
    return assemble(name, part, held_out, tasks, seed=seed)


def from_dataset(
    train: Dataset[Any],
    *,
    tasks: TaskList,
    test: Dataset[Any] | float = _FRACTION,
    seed: int = 0,
    name: str = "own-dataset",
) -> Benchmark:
    """Load every (input, label) of a torch Dataset into memory.

    An input is a PIL image or a tensor or array of bytes (uint8), which the network sees in
    [0, 1], or of floats, which stay what they are, as float32. Raises DataError.
    """
    held_out = test if isinstance(test, float | int) else _read_dataset(test, "test")
    return assemble(name, _read_dataset(train, "train"), held_out, tasks, seed=seed)


def _read_arrays(source: Arrays) -> tuple[Part, Part | None]:
    if not isinstance(source, str | os.PathLike):
        if type(source) not in (tuple, list) or len(source) != 2:
            raise DataError(
                "give a pair, (inputs, labels), of arrays, tensors or .npy files, or one .npz"
            )
        inputs, labels = map(_as_array, source)
        if isinstance(inputs, Mapping) or isinstance(labels, Mapping):
            raise DataError("give either one .npz or a pair of .npy files")
        place = source[0] if isinstance(source[0], str | os.PathLike) else "the arrays"
        return from_numpy(inputs, labels, str(place)), None
    loaded = _load(users_path(source))
    if not isinstance(loaded, Mapping):
        raise DataError(f"{source} holds one array; give a pair: the inputs and the labels")
    for inputs_name, labels_name, test_inputs, test_labels in _NPZ_NAMES:
        if inputs_name in loaded and labels_name in loaded:
            test = None
            if test_inputs in loaded and test_labels in loaded:
                test = from_numpy(loaded[test_inputs], loaded[test_labels], f"{source}, test")
            return from_numpy(loaded[inputs_name], loaded[labels_name], str(source)), test
    raise DataError(
        f"{source} holds {', '.join(sorted(loaded)) or 'nothing'}; expected inputs and labels, "
        f"and perhaps test_inputs and test_labels"
    )


def _as_array(source: AnyPath | Array) -> Any:
    if isinstance(source, str | os.PathLike):
        return _load(users_path(source))
    if isinstance(source, torch.Tensor):
        source = source.detach().cpu()  # numpy has fewer kinds of floats
        source = (source.float() if source.is_floating_point() else source).numpy()
    return np.array(source)  # a copy: the benchmark stays what it is when the caller's changes


def _load(path: Path) -> Any:
    """Load an array, or a dict of arrays; arrays of objects, which are in pickle, are refused."""
    try:
        with durable.open_regular(path) as stream:
            if stream.peek(4)[:4] == b"PK\x03\x04":
                _check_sizes(path, stream)
                with np.load(stream, allow_pickle=False) as loaded:
                    return {name: loaded[name] for name in loaded.files}
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except _UNREADABLE as error:
        if "allow_pickle" in str(error) or "pickled" in str(error):
            raise DataError(
                f"{path} is in pickle or holds Python objects, and loading such can run any code. "
                f"Save plain numbers: np.save(file, array.astype(np.float32)), np.uint8 for pixels"
            ) from error
        raise DataError(f"cannot read {path}: {error}") from error


def _check_sizes(path: Path, stream: BufferedReader) -> None:
    """Refuse arrays that declare more than the file has, or more than there is memory."""
    total = 0
    with zipfile.ZipFile(stream) as archive:
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                continue
            with archive.open(member) as content:
                version = np.lib.format.read_magic(content)
                read_header = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = read_header(content)
                declared = math.prod(shape) * dtype.itemsize
                if not dtype.hasobject and declared != member.file_size - content.tell():
                    raise DataError(
                        f"{path} is damaged: its {member.filename} declares {declared:,} bytes and "
                        f"has {member.file_size - content.tell():,}"
                    )
                total += declared
    stream.seek(0)
    require_room(total, f"loading {path}")


def _read_dataset(dataset: Dataset[Any], part: str) -> Part:
    try:
        count = len(dataset)  # type: ignore[arg-type]
    except TypeError as error:
        raise DataError(f"the {part} dataset has no length, so it cannot be loaded") from error
    inputs: npt.NDArray[Any] | None = None
    labels = []
    for row in range(count):
        item, label = dataset[row]
        what = f"{part} input {row}"
        image = as_bytes_or_floats(item_to_array(item, what), what)
        if inputs is None:
            inputs = np.empty((count, *image.shape), dtype=image.dtype)
        if image.dtype != inputs.dtype:
            raise DataError(
                f"{part} inputs differ in type: {inputs.dtype} at first, {image.dtype} at {row}. "
                f"Make them all bytes or all floats in the dataset's transform."
            )
        if image.shape != inputs.shape[1:]:
            raise DataError(
                f"{part} inputs differ in shape: {list(inputs.shape[1:])} at first, "
                f"{list(image.shape)} at {row}. Resize them in the dataset's transform."
            )
        inputs[row] = image
        labels.append(int(label))
    if inputs is None:
        raise DataError(f"the {part} dataset is empty")
    return from_numpy(inputs, np.array(labels), f"the {part} dataset")
