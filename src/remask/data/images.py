"""Image files: finding those of users in folders, and decoding them with Pillow."""

import importlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remask import files
from remask.data.classes import checked_name
from remask.data.readers import InputFormat, SampleReader, Unreadable, unreadable_error
from remask.data.sources import WrongContentsError
from remask.errors import DataError

_MODES = {1: "L", 3: "RGB"}
_DRAFT = 2  # a JPEG is decoded at no less than this multiple of the size it is resized to


class UnreadableImageError(WrongContentsError):
    """An image file that cannot be decoded."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.reason = reason


def pillow() -> Any:
    """Import PIL.Image. Raises DataError if it is not installed."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise DataError(
            "reading images needs Pillow, which is not installed: "
            "run `pip install pillow`, then try again."
        ) from error


def decode(
    data: bytes,
    name: str,
    *,
    formats: Sequence[str],
    channels: int = 3,
    size: tuple[int, int] | None = None,
    fit: tuple[int, int] | None = None,
) -> npt.NDArray[np.uint8]:
    """Decode an image to uint8 [channels, H, W].

    The EXIF orientation is applied, transparent pixels are blended with white, and of 16 bits the
    upper 8 are kept. `size` is the required (height, width). With `fit` the image is cropped and
    resized to that (height, width) as by `PIL.ImageOps.fit`; a large JPEG is decoded at a fraction.
    Raises UnreadableImageError.
    """
    image_module = pillow()
    with _opened(data, name, formats) as image:
        found = (image.height, image.width)
        if size is not None and found != size:
            raise UnreadableImageError(
                name, f"has {found[0]} x {found[1]} pixels, expected {size[0]} x {size[1]}"
            )
        if fit is not None and image.format in ("JPEG", "MPO"):
            image.draft(image.mode, (_DRAFT * max(fit), _DRAFT * max(fit)))
        image.load()  # which applies the orientation of a TIFF; Pillow 10.0 leaves the tag there
        ops = importlib.import_module("PIL.ImageOps")
        if image.format != "TIFF":
            with suppress(Exception):  # damaged EXIF data: the pixels may still be correct
                ops.exif_transpose(image, in_place=True)
        pixels = _to_mode(image, _MODES[channels], name)
        if fit is not None and fit != (pixels.height, pixels.width):
            pixels = ops.fit(pixels, fit[::-1], image_module.Resampling.BILINEAR)
        array = np.asarray(pixels, dtype=np.uint8)
    return np.ascontiguousarray(array.reshape(*array.shape[:2], channels).transpose(2, 0, 1))


def user_formats() -> list[str]:
    """Return Pillow's names of the formats of users' images that can be read here."""
    features = importlib.import_module("PIL.features")
    found = ["PNG", "JPEG", "GIF", "BMP", "TIFF"]
    for name in ("WEBP", "AVIF"):
        if name.lower() in features.modules and features.check(name.lower()):  # else it warns
            found.append(name)
    try:
        importlib.import_module("pillow_heif").register_heif_opener()
    except ImportError:
        return found
    return [*found, "HEIF"]


@contextmanager
def _opened(data: bytes, name: str, formats: Sequence[str]) -> Iterator[Any]:
    """Open an image, and convert what Pillow raises to UnreadableImageError."""
    image_module = pillow()
    if not data:
        raise UnreadableImageError(name, "the file is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # damaged metadata does not matter
            # Pillow warns of an image that takes a GB, and refuses twice that.
            warnings.simplefilter("error", image_module.DecompressionBombWarning)
            if data.startswith(b"\x89PNG"):
                # Pillow decodes a PNG without its checksums, and may miss a truncated end.
                with image_module.open(BytesIO(data), formats=formats) as image:
                    image.verify()
            with image_module.open(BytesIO(data), formats=formats) as image:
                yield image
    except (UnreadableImageError, MemoryError):
        raise
    except image_module.UnidentifiedImageError as error:
        raise UnreadableImageError(name, _why_unidentified(data, formats)) from error
    except Exception as error:  # a damaged file can make Pillow raise almost anything
        reason = f"damaged: {str(error) or type(error).__name__}"
        if type(error).__name__.startswith("DecompressionBomb"):
            reason = f"too large to be decoded: {error}"
        elif "truncated" in reason.lower():
            reason = "truncated"
        raise UnreadableImageError(name, reason) from error


def _why_unidentified(data: bytes, formats: Sequence[str]) -> str:
    brand = data[8:12] if data[4:8] == b"ftyp" else b""
    if brand[:2] in (b"he", b"mi", b"ms") and "HEIF" not in formats:
        return "a HEIC image: convert it to JPEG, or run `pip install pillow-heif` to read it"
    if brand[:3] == b"avi" and "AVIF" not in formats:
        return "an AVIF image: convert it to JPEG, or run `pip install 'pillow>=11.3'` to read it"
    return f"not a {', '.join(formats)} image, or damaged"


def _to_mode(image: Any, mode: str, name: str) -> Any:
    """Convert any mode to L or RGB."""
    image_module = pillow()
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        # Of 16 bits: Pillow's `convert` would clip them. It reads colour PNGs by the upper 8, too.
        pixels = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
        return image_module.fromarray(pixels).convert(mode)
    if image.mode in ("I", "F"):
        raise UnreadableImageError(
            name, "has 32 bits per pixel, whose range is unknown: convert it to 8 or 16 bits"
        )
    if image.mode in ("LA", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = image_module.new("RGBA", image.size, "white")
        return image_module.alpha_composite(white, image).convert(mode)
    return image.convert(mode)


ENDINGS = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    *(".heic", ".heif", ".hif", ".avif"),
)
"""The file name endings of images; other files are ignored."""
LARGEST_SIDE = 64
"""The default height and width if the first image is larger."""
_LARGEST_FILE = 256 << 20


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


def list_images(path: Path, *, labelled: bool) -> Listing:
    """Find CLASS/NAME.png, sorted by name; without labels also NAME.png. Raises DataError."""
    if path.is_file() and not labelled:
        return Listing([path])
    if not path.is_dir():
        found = "is not a folder" if path.exists() else "does not exist"
        wanted = "an image, or a folder of images"
        if labelled:
            wanted = "a folder with a folder per class, CLASS/NAME.png"
        raise DataError(f"{path} {found}: expected {wanted}")
    listing, entries = Listing(root=path), _entries(path)
    folders = [entry for entry in entries if entry.is_dir()]
    if labelled and not folders:
        raise DataError(f"{path} has no folders: expected a folder per class, CLASS/NAME.png")
    if folders:
        listing.ignored += [entry.name for entry in entries if not entry.is_dir()]
    for folder in folders or [path]:
        entries = _entries(folder)
        images = [entry for entry in entries if entry.suffix.lower() in ENDINGS]
        if not images:
            wanted = f"expected files that end in {', '.join(ENDINGS)}"
            if any(entry.is_dir() for entry in entries):
                wanted = f"are its folders the classes? Then give {folder} instead of {path}"
            raise DataError(f"{folder} has no images: {wanted}")
        listing.files += images
        others = (entry for entry in entries if entry.suffix.lower() not in ENDINGS)
        listing.ignored += [str(entry.relative_to(path)) for entry in others]
        if folders:
            name = folder.name.encode(errors="backslashreplace").decode()
            listing.classes += [checked_name(name, "a class")] * len(images)
    return listing


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
        self._files, self._formats, self._root = list(listing.files), user_formats(), listing.root
        self._size, self._channels = size, channels
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
            step = -(-len(self._files) // 32)  # check at most 32 images
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
        readable = []
        for number, file in enumerate(self._files):
            try:
                self._decode(file, form)
                readable.append(number)
            except UnreadableImageError as error:
                name = str(file if self._root is None else file.relative_to(self._root))
                self.skipped.unreadable.append(Unreadable(name, error.reason))
        if not readable:
            raise unreadable_error(self.skipped.unreadable, self.count)
        self._files = [self._files[number] for number in readable]
        self.sources = [str(file) for file in self._files]
        self.count, self._checked = len(readable), form
        if self.names is not None:
            lost = {*self.names}
            self.names = [self.names[number] for number in readable]
            if lost := lost - {*self.names}:
                raise DataError(
                    f"no image of class {min(lost)} can be read: {self.skipped.unreadable_line}"
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
                height, width = decode(_contents(file), str(file), formats=self._formats).shape[1:]
                return height, width
            except UnreadableImageError as error:
                unreadable.append(Unreadable(str(file), error.reason))
        raise unreadable_error(unreadable, self.count)

    def _may_be_grey(self, file: Path) -> bool:
        """Whether an image has no colours, by its header, or cannot be read."""
        try:
            with _opened(_contents(file), str(file), self._formats) as image:
                return image.mode in ("1", "L", "LA") or image.mode.startswith("I")
        except UnreadableImageError:
            return True


def _contents(file: Path) -> bytes:
    """Read an image file of a limited size. Pipes, devices and folders are refused."""
    try:
        return files.read_limited(file, _LARGEST_FILE)
    except OSError as error:
        reason = error.strerror or str(error)
        if isinstance(error, FileNotFoundError) and file.is_symlink():
            reason = "a symbolic link to a file that does not exist"
        raise UnreadableImageError(str(file), reason) from error
