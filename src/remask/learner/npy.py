"""Arrays as .npy files, written piece by piece."""

import io
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

_PIECE = 1 << 20


def npy_pieces(
    shape: tuple[int, ...], dtype: str, rows: Iterable[npt.NDArray[Any]]
) -> Iterator[bytes]:
    """The file of an array [N, ...] whose rows, or groups of rows, come one after the other."""
    header = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(
        header, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    waiting = bytearray(header.getvalue())
    for row in rows:
        waiting += row.tobytes()
        if len(waiting) >= _PIECE:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)
