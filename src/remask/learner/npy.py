"""Arrays as .npy files: written piece by piece, and mapped into memory."""

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from remask.learner.errors import RESTORE, damaged
from remask.memory import MappedRows

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


def mapped(path: Path, shape: tuple[int, ...], dtype: str, advice: str = RESTORE) -> MappedRows:
    """The rows of a file, once its shape and type are as expected. Raises LearnerError."""
    try:
        rows = MappedRows(path)
    except Exception as error:  # numpy parses the header, and raises whatever it runs into
        raise damaged(path, "it is not an array of samples", advice) from error
    if rows.shape != shape or rows.dtype != getattr(torch, dtype):
        found = f"{rows.dtype} {list(rows.shape)}"
        raise damaged(path, f"it has {found}, not {dtype} {list(shape)}", advice)
    return rows
