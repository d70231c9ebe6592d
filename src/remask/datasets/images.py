"""Decoding PNG and JPEG files with Pillow, which is an optional extra."""

import importlib
import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from remask.datasets.files import DataError, WrongContentsError

_MODES = {1: "L", 3: "RGB"}


def pillow() -> Any:
    """Import PIL.Image, or say how to get it."""
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
    resize: tuple[int, int] | None = None,
) -> npt.NDArray[np.uint8]:
    """Decode an image to uint8 [channels, H, W]; grey ones become colour if `channels` is 3.

    `size` is the (height, width) that it must have, checked before its pixels take memory;
    `resize` the one that it is brought to. Raises WrongContentsError that names the file.
    """
    image_module = pillow()
    broken = (OSError, ValueError, SyntaxError, EOFError)  # the third for a broken PNG
    too_large = (image_module.DecompressionBombError, image_module.DecompressionBombWarning)
    try:
        with warnings.catch_warnings():
            # Pillow warns of what takes a GB once it is decoded, and refuses twice that.
            warnings.simplefilter("error", image_module.DecompressionBombWarning)
            if "PNG" in formats and data.startswith(b"\x89PNG"):
                # Pillow decodes a PNG without looking at its checksums, and may miss a lost end.
                with image_module.open(BytesIO(data), formats=["PNG"]) as image:
                    image.verify()
            with image_module.open(BytesIO(data), formats=list(formats)) as image:
                found = (image.height, image.width)
                if size is not None and found != size:
                    raise WrongContentsError(
                        f"{name} has {found[0]} x {found[1]} pixels, expected {size[0]} x {size[1]}"
                    )
                pixels = image.convert(_MODES[channels])
            if resize is not None and resize != found:
                pixels = pixels.resize((resize[1], resize[0]), image_module.Resampling.BILINEAR)
            array = np.asarray(pixels, dtype=np.uint8)
    except too_large as error:
        raise WrongContentsError(f"{name} is too large to be decoded: {error}") from error
    except image_module.UnidentifiedImageError as error:
        raise WrongContentsError(
            f"{name} is not a whole image: it is no {' or '.join(formats)}"
        ) from error
    except broken as error:
        raise WrongContentsError(f"{name} is not a whole image: {error}") from error
    return np.ascontiguousarray(array.reshape(*array.shape[:2], channels).transpose(2, 0, 1))
