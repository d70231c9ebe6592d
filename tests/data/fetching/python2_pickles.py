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
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, bytes):
        return (b"U" + bytes([len(value)]) if len(value) < 256 else _long(value)) + value
    if isinstance(value, tuple):
        return b"(" + b"".join(map(written, value)) + b"t"
    if isinstance(value, list):  # a thousand at a time, each but the numbers put into the memo
        parts = [value[start : start + 1000] for start in range(0, len(value), 1000)]
        return b"]q\x01" + b"".join(b"(" + b"".join(map(_kept, part)) + b"e" for part in parts)
    if isinstance(value, dict):
        items = b"".join(_kept(key) + written(content) for key, content in value.items())
        return b"}q\x02(" + items + b"u"
    return matrix(value)


def matrix(array: npt.NDArray[np.uint8], *, by_column: bool = False) -> bytes:
    content = array.tobytes(order="F" if by_column else "C")
    return filled(array.shape, BYTES, by_column, _long(content) + content)


def filled(shape: tuple[Any, ...], kind: bytes, by_column: Any, content: bytes) -> bytes:
    """An array that is announced, then filled; none of it need make sense."""
    return (
        EMPTY_ARRAY + b"(K\x01" + written(shape) + kind + written(by_column) + content + b"t" + b"b"
    )


def _kept(value: Any) -> bytes:
    if isinstance(value, int):
        return written(value)
    return written(value) + b"r" + struct.pack("<I", 300)


def _integer(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def _long(content: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(content))
