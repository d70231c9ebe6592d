"""The IDX format of MNIST and its relatives: big-endian header, then raw bytes."""

import math
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remask.datasets.files import DataError

_UNSIGNED_BYTE = 0x08


def map_idx(path: Path, ndim: int) -> npt.NDArray[np.uint8]:
    """Map an IDX file of unsigned bytes into memory; uint8 of the `ndim` axes it declares.

    The header is checked against the length of the file before any memory is taken. The pages
    are those of the file, so processes that map the same file share one copy. Mode "c" (copy on
    write) keeps the file safe from writes and still gives torch the writable array it asks for.
    """
    header_size = 4 + 4 * ndim
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            header = stream.read(header_size)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if len(header) < header_size:
        raise DataError(f"{path} is not an IDX file: its header is cut short")
    magic = bytes([0, 0, _UNSIGNED_BYTE, ndim])
    if header[:4] != magic:
        raise DataError(
            f"{path} is not an IDX file of unsigned bytes with {ndim} axes: it begins with "
            f"{header[:4].hex()}, expected {magic.hex()}"
        )
    shape = struct.unpack(f">{ndim}I", header[4:])
    promised = math.prod(shape)
    if promised == 0 or promised != size - header_size:
        raise DataError(
            f"{path} promises {' x '.join(map(str, shape))} = {promised} bytes of data, "
            f"but holds {size - header_size}"
        )
    return np.memmap(path, dtype=np.uint8, mode="c", offset=header_size, shape=shape)
