"""Image files of users: finding them in folders, checking and decoding them."""

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remask import files
from remask.data.images import UnreadableImageError, decode, is_grey, pillow, user_formats
from remask.data.readers import (
    InputFormat,
    SampleReader,
    Unreadable,
    checked_name,
    unreadable_error,
)
from remask.errors import DataError

ENDINGS = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    *(".heic", ".heif", ".hif", ".avif"),
)
"""The file name endings of images; other files are ignored."""
LARGEST_SIDE = 64
"""The default height and width if the first image is larger."""
_LARGEST_FILE = 256 << 20
_CHECKED_FOR_COLOUR = 32  # images


@dataclass
class Listing:
    """The images of a folder."""

    files: list[Path] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    """The name of each file's folder; empty if all images are in one folder."""
    ignored: list[str] = field(default_factory=list)
    """Other files and folders."""
    root: Path | None = None
    """The folder that was listed; None for a list of files."""


def list_classes(path: Path) -> Listing:
    """Find CLASS/NAME.png, sorted by their names. Raises DataError."""
    found = Listing(root=path)
    for entry in _entries(path):
        if not entry.is_dir():
            found.ignored.append(entry.name)
            continue
        images = list_images(entry)
        name = checked_name(entry.name.encode(errors="backslashreplace").decode(), "a class")
        found.files += images.files
        found.classes += [name] * len(images.files)
        found.ignored += [f"{entry.name}/{each}" for each in images.ignored]
    if not found.files:
        raise DataError(f"{path} has no images: expected a folder per class, CLASS/NAME.png")
    return found


def list_images(folder: Path) -> Listing:
    """Find the images of one folder, sorted by their names. Raises DataError."""
    found = Listing(root=folder)
    for entry in _entries(folder):
        if entry.suffix.lower() in ENDINGS:
            found.files.append(entry)
        else:
            found.ignored.append(entry.name)
    if not found.files:
        raise DataError(f"{folder} has no images: expected files that end in {', '.join(ENDINGS)}")
    return found


def has_classes(path: Path) -> bool:
    """Whether a folder contains folders of classes. Raises DataError."""
    return any(entry.is_dir() for entry in _entries(path))


def _entries(folder: Path) -> list[Path]:
    """List a folder, sorted, without hidden files."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"cannot read {folder}: {error.strerror}") from error
    # macOS adds __MACOSX to ZIP files.
    return [e for e in entries if not e.name.startswith(".") and e.name != "__MACOSX"]


class ImageReader(SampleReader):
    """Image files, decoded one by one.

    They are cropped and resized to `size`; without it, to the size of the first readable one, but
    at most LARGEST_SIDE. `channels` is 1 for grey, 3 for colour; without it, images are grey if
    the first ones are. With `same_size` nothing is resized unless `size` is given, and images of
    different sizes are refused.
    """

    def __init__(
        self,
        listing: Listing,
        *,
        size: tuple[int, int] | None = None,
        channels: int | None = None,
        skip_unreadable: bool = False,
        same_size: bool = False,
        labelled: bool = True,
    ) -> None:
        pillow()
        names = list(listing.classes) if labelled else None
        super().__init__(len(listing.files), names, [str(file) for file in listing.files])
        self._files, self._formats = list(listing.files), user_formats()
        self._root, self._size, self._channels = listing.root, size, channels
        self._skip, self._same_size = skip_unreadable, same_size
        self._checked: InputFormat | None = None
        self.skipped.ignored += listing.ignored

    def format(self) -> InputFormat:
        """Return the format for the size and the colours of the images."""
        height, width = self.first_size()
        if self._size is not None:
            height, width = self._size
        elif not self._same_size and max(height, width) > LARGEST_SIDE:
            height = width = LARGEST_SIDE
        channels = self._channels
        if channels is None:
            step = -(-len(self._files) // _CHECKED_FOR_COLOUR)
            channels = 1 if all(map(self._may_be_grey, self._files[::step])) else 3
        return InputFormat(shape=(channels, height, width), dtype="uint8")

    def samples(self, form: InputFormat) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the images. Raises DataError if one cannot be read, unless those are skipped."""
        if not form.is_image or form.dtype != "uint8":
            raise DataError(f"the model has learnt from {form}, and {self._files[0]} is an image")
        if self._skip and self._checked != form:
            self._leave_out(form)
        unreadable = []
        for file in self._files:
            try:
                sample = self._decode(file, form)
            except UnreadableImageError as error:
                unreadable.append(Unreadable(str(file), error.reason))
                continue
            if not unreadable:
                yield sample
        if unreadable:
            raise unreadable_error(unreadable, self.count)

    def _leave_out(self, form: InputFormat) -> None:
        """Drop the files that cannot be read, so that `count` is known from the first sample."""
        whole = []
        for number, file in enumerate(self._files):
            try:
                self._decode(file, form)
                whole.append(number)
            except UnreadableImageError as error:
                name = str(file if self._root is None else file.relative_to(self._root))
                self.skipped.unreadable.append(Unreadable(name, error.reason))
        if not whole:
            raise unreadable_error(self.skipped.unreadable, self.count)
        names = self.names
        self._files = [self._files[number] for number in whole]
        self.sources = [str(file) for file in self._files]
        self.names = None if names is None else [names[number] for number in whole]
        self.count, self._checked = len(whole), form
        if names is not None and (lost := sorted(set(names) - set(self.names or ()))):
            raise DataError(
                f"no image of class {lost[0]} can be read: {self.skipped.unreadable_line}"
            )

    def _decode(self, file: Path, form: InputFormat) -> npt.NDArray[np.uint8]:
        channels, height, width = form.shape
        fit = None if self._same_size and self._size is None else (height, width)
        sample = decode(
            _contents(file), str(file), formats=self._formats, channels=channels, fit=fit
        )
        if sample.shape != form.shape:
            raise DataError(
                f"images differ in size: {file} has {sample.shape[1]} x {sample.shape[2]} pixels, "
                f"earlier ones {height} x {width}. Pass size=(height, width) to resize them all."
            )
        return sample

    def first_size(self) -> tuple[int, int]:
        """Return height and width of the first image that can be read. Raises DataError."""
        unreadable = []
        for file in self._files:
            try:
                sample = decode(_contents(file), str(file), formats=self._formats)
            except UnreadableImageError as error:
                unreadable.append(Unreadable(str(file), error.reason))
                continue
            return sample.shape[1], sample.shape[2]
        raise unreadable_error(unreadable, self.count)

    def _may_be_grey(self, file: Path) -> bool:
        try:
            return is_grey(_contents(file), str(file), formats=self._formats)
        except UnreadableImageError:
            return True


def _contents(file: Path) -> bytes:
    """Read an image file of a limited size. Pipes, devices and folders are refused."""
    try:
        return files.read_limited(file, _LARGEST_FILE)
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.ENOENT and file.is_symlink():
            reason = "a symbolic link to a file that does not exist"
        raise UnreadableImageError(str(file), reason) from error
