"""Pickles as Python 2's cPickle wrote them in protocol 2, made by hand; strings are bytes there."""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

PROTOCOL, STOP = b"\x80\x02", b"."
RECONSTRUCT, NDARRAY = b"cnumpy.core.multiarray\n_reconstruct\n", b"cnumpy\nndarray\n"
EMPTY_ARRAY = RECONSTRUCT + NDARRAY + b"K\x00\x85U\x01b\x87R"
BYTES = (
    b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
)


def pickled(value: Any) -> bytes:
    """A whole file."""
    return PROTOCOL + written(value) + STOP


def written(value: Any) -> bytes:
    """The instructions that leave a value on the stack."""
    match value:
        case int():
            return b"J" + struct.pack("<i", value)
        case bytes():
            return b"T" + struct.pack("<i", len(value)) + value
        case tuple():
            return b"(" + b"".join(map(written, value)) + b"t"
        case list():
            return b"](" + b"".join(map(written, value)) + b"e"
        case dict():
            items = (written(key) + written(content) for key, content in value.items())
            return b"}(" + b"".join(items) + b"u"
    return matrix(value)


def matrix(array: npt.NDArray[np.uint8]) -> bytes:
    return filled(array.shape, BYTES, written(array.tobytes()))


def filled(shape: tuple[int, ...], kind: bytes, content: bytes) -> bytes:
    """An array that is announced, then filled; none of it need make sense."""
    return EMPTY_ARRAY + b"(K\x01" + written(shape) + kind + b"\x89" + content + b"tb"
