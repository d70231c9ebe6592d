"""Reading a pickle of plain values and matrices of bytes, which cannot run code.

A pickle can import and call anything, unless `find_class` forbids it. Here it returns a stand-in
for the three names that Python 2 wrote a NumPy matrix with, and raises for all others: nothing is
imported, and only the stand-ins can be called.
"""

import io
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt

from remask.data.originals import WrongContentsError

_NAMES = {"numpy.core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype"}


class _ByteType:
    """Stands for the type of bytes, which has one state only."""

    def __setstate__(self, state: Any) -> None:
        pass


class _Matrix:
    """Stands for a matrix, which is created first and filled later."""

    array: npt.NDArray[np.uint8] | None = None

    def __setstate__(self, state: Any) -> None:
        match state:
            case (1, (int(rows), int(columns)), _ByteType(), bool(by_column), bytes(content)) if (
                min(rows, columns) >= 0 and rows * columns == len(content)
            ):
                flat = np.frombuffer(content, np.uint8)
                self.array = flat.reshape(rows, columns, order="F" if by_column else "C")
            case _:
                raise pickle.UnpicklingError("its matrix is not one of bytes")


class _Name:
    """Stands for a function or class of NumPy."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any) -> _Matrix | _ByteType:
        match self.name, arguments:
            case "numpy.core.multiarray._reconstruct", (_Name(name="numpy.ndarray"), (0,), b"b"):
                return _Matrix()
            case "numpy.dtype", (b"u1", 0, 1):
                return _ByteType()
        raise pickle.UnpicklingError("it creates something other than a matrix of bytes")


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> _Name:
        if f"{module}.{name}" not in _NAMES:
            raise pickle.UnpicklingError(f"the name {module}.{name} is not allowed")
        return _Name(f"{module}.{name}")


def plain_data(data: bytes) -> dict[str, Any]:
    """Read a dict of plain values; strings are bytes, matrices uint8 [N, D].

    A malicious pickle can still fill the memory, so check its checksum first. Raises
    WrongContentsError.
    """
    try:
        values = _PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
        return {
            key.decode("ascii"): value.array if isinstance(value, _Matrix) else value
            for key, value in values.items()
        }
    except Exception as error:  # a damaged pickle can raise almost anything
        reason = repr(str(error)[:150])
        raise WrongContentsError(f"not a pickle of plain data: {reason}") from error
