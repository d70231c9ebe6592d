"""Reading a folder of images, and saying which of them cannot be read."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remask import durable
from remask.benchmarks.inputs_and_labels import Part, from_numpy
from remask.datasets.files import DataError, WrongContentsError
from remask.datasets.images import decode

_ENDINGS = (".png", ".jpg", ".jpeg")
_LARGEST_IMAGE = 64 << 20
_SHOWN = 10


SKIP_UNREADABLE = "REMASK_SKIP_UNREADABLE"
"""In the environment, because it has to reach a user's own function, in every worker process."""


class UnreadableImageWarning(UserWarning):
    """Images were left out because they cannot be read; the message names them."""


@dataclass(frozen=True, eq=False)
class FolderOfImages:
    """What could be read of CLASS/NAME.png, and what could not."""

    path: Path
    classes: list[str]
    """In the order of their names, which is that of their labels."""
    inputs: npt.NDArray[np.uint8]
    """[N, channels, height, width]"""
    labels: list[int]
    unreadable: list[str]
    """The reason for each image that could not be read, with its name."""

    def part(self) -> Part:
        """Give what could be read. Raises DataError if that is nothing of some class."""
        left = set(self.labels)
        for label, name in enumerate(self.classes):
            if label not in left:
                raise DataError(f"{self.path / name} has no image that can be read")
        return from_numpy(self.inputs, np.array(self.labels), str(self.path))


def read_folder(path: Path, size: tuple[int, int] | None, channels: int) -> FolderOfImages:
    """Read all images, resized to `size` if it is given. Raises DataError."""
    classes = class_folders(path)
    files = [(label, file) for label, folder in enumerate(classes) for file in images_in(folder)]
    inputs = np.empty((0, channels, 0, 0), dtype=np.uint8)
    labels: list[int] = []
    unreadable: list[str] = []
    first = path
    for label, file in files:
        try:
            image = decode_file(file, size, channels)
        except DataError as error:
            unreadable.append(str(error))
            continue
        if not labels:  # the first image says how much memory all will take
            first, inputs = file, np.empty((len(files), *image.shape), dtype=np.uint8)
        if image.shape != inputs.shape[1:]:
            wanted, found = inputs.shape[2:], image.shape[1:]
            raise DataError(
                f"images differ in size: {first} has {wanted[0]} x {wanted[1]} pixels, {file} "
                f"{found[0]} x {found[1]}. Give size=(height, width) to resize them all."
            )
        inputs[len(labels)] = image
        labels.append(label)
    names = [folder.name for folder in classes]
    return FolderOfImages(path, names, inputs[: len(labels)], labels, unreadable)


def report_unreadable(reasons: Sequence[str], *, skip: bool, stacklevel: int) -> None:
    """Refuse images that cannot be read, naming the first few; if they may be skipped, warn of all.

    `stacklevel` is that of `warnings.warn`, for the caller of this function. Raises DataError.
    """
    if not reasons:
        return
    count = f"{len(reasons)} image{'s' if len(reasons) > 1 else ''}"
    if skip:
        named = "\n  ".join(reasons)
        message = f"{count} that cannot be read left out:\n  {named}"
        warnings.warn(message, UnreadableImageWarning, stacklevel=stacklevel + 1)
        return
    named = "\n  ".join(reasons[:_SHOWN])
    if len(reasons) > _SHOWN:
        named += f"\n  and {len(reasons) - _SHOWN} more"
    raise DataError(
        f"{count} cannot be read:\n  {named}\n"
        f"Replace or remove what is named, or leave it out with --skip-unreadable\n"
        f"(in Python, skip_unreadable=True)."
    )


def class_folders(path: Path) -> list[Path]:
    """The folders of the classes, in the order of their names. Raises DataError."""
    try:
        folders = sorted(folder for folder in path.iterdir() if folder.is_dir())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    folders = [folder for folder in folders if not folder.name.startswith(".")]
    if not folders:
        raise DataError(f"{path} has no images: expected a folder per class, CLASS/NAME.png")
    return folders


def images_in(folder: Path) -> list[Path]:
    """The images of a folder, in the order of their names. Raises DataError."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix.lower() in _ENDINGS)
    except OSError as error:
        raise DataError(f"cannot read {folder}: {error.strerror}") from error
    if not files:
        raise DataError(f"{folder} has no images: expected files that end in {', '.join(_ENDINGS)}")
    return files


def decode_file(file: Path, size: tuple[int, int] | None, channels: int) -> npt.NDArray[np.uint8]:
    """An image as uint8 [channels, height, width], resized to `size` if given. Raises DataError."""
    try:
        data = durable.read_limited(file, _LARGEST_IMAGE)
        return decode(data, str(file), formats=["PNG", "JPEG"], channels=channels, resize=size)
    except WrongContentsError as error:
        raise DataError(str(error)) from error
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}") from error
