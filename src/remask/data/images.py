"""Decode image files with Pillow, which is an optional extra."""

import importlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from remask.data.downloads import WrongContentsError
from remask.errors import DataError

_MODES = {1: "L", 3: "RGB"}
_DRAFT = 2  # a JPEG is decoded at no less than this multiple of the size it is resized to
_HEIC = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
_AVIF = (b"avif", b"avis")


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
    resized to that (height, width), as by `PIL.ImageOps.fit(image, (width, height), BILINEAR)`; a
    JPEG of four times that size or more is decoded at a fraction of its size, which is much faster.
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
        image.load()  # which applies the orientation of a TIFF and removes the tag
        _rotate_upright(image)
        pixels = _to_mode(image, _MODES[channels], name)
        if fit is not None and fit != (pixels.height, pixels.width):
            ops = importlib.import_module("PIL.ImageOps")
            pixels = ops.fit(pixels, fit[::-1], image_module.Resampling.BILINEAR)
        array = np.asarray(pixels, dtype=np.uint8)
    return np.ascontiguousarray(array.reshape(*array.shape[:2], channels).transpose(2, 0, 1))


def is_grey(data: bytes, name: str, *, formats: Sequence[str]) -> bool:
    """Whether an image has no colours, by its header. Raises UnreadableImageError."""
    with _opened(data, name, formats) as image:
        return image.mode in ("1", "L", "LA") or image.mode.startswith("I")


def user_formats() -> list[str]:
    """Return Pillow's names of the formats of users' images that can be read here."""
    features = importlib.import_module("PIL.features")
    found = ["PNG", "JPEG", "GIF", "BMP", "TIFF"]
    found += [name for name in ("WEBP", "AVIF") if features.check(name.lower())]
    try:
        importlib.import_module("pillow_heif").register_heif_opener()
    except ImportError:
        return found
    return [*found, "HEIF"]


@contextmanager
def _opened(data: bytes, name: str, formats: Sequence[str]) -> Iterator[Any]:
    """Open an image, and convert what Pillow raises to UnreadableImageError."""
    image_module = pillow()
    too_large = (image_module.DecompressionBombError, image_module.DecompressionBombWarning)
    if not data:
        raise UnreadableImageError(name, "the file is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # damaged metadata does not matter
            # Pillow warns of an image that takes a GB, and refuses twice that.
            warnings.simplefilter("error", image_module.DecompressionBombWarning)
            if "PNG" in formats and data.startswith(b"\x89PNG"):
                # Pillow decodes a PNG without its checksums, and may miss a truncated end.
                with image_module.open(BytesIO(data), formats=["PNG"]) as image:
                    image.verify()
            with image_module.open(BytesIO(data), formats=list(formats)) as image:
                yield image
    except (UnreadableImageError, MemoryError):
        raise
    except too_large as error:
        raise UnreadableImageError(name, f"too large to be decoded: {error}") from error
    except image_module.UnidentifiedImageError as error:
        raise UnreadableImageError(name, _why_unidentified(data, formats)) from error
    except Exception as error:  # a damaged file can make Pillow raise almost anything
        reason = str(error) or type(error).__name__
        reason = "truncated" if "truncated" in reason.lower() else f"damaged: {reason}"
        raise UnreadableImageError(name, reason) from error


def _why_unidentified(data: bytes, formats: Sequence[str]) -> str:
    brand = data[8:12] if data[4:8] == b"ftyp" else b""
    if brand in _HEIC and "HEIF" not in formats:
        return "a HEIC image: convert it to JPEG, or run `pip install pillow-heif` to read it"
    if brand in _AVIF and "AVIF" not in formats:
        return "an AVIF image: convert it to JPEG, or run `pip install 'pillow>=11.3'` to read it"
    kinds = " or ".join([", ".join(formats[:-1]), formats[-1]] if len(formats) > 1 else formats)
    return f"not a {kinds} image, or damaged"


def _rotate_upright(image: Any) -> None:
    """Apply the EXIF orientation in place."""
    try:
        importlib.import_module("PIL.ImageOps").exif_transpose(image, in_place=True)
    except MemoryError:
        raise
    except Exception:  # damaged EXIF data: the pixels may still be correct
        return


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
