"""Files of a learner: JSON with a checksum, and arrays that are written piece by piece."""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ValidationError

from remask.errors import printable
from remask.files import open_regular, write_atomically
from remask.learner.errors import RESTORE, LearnerError, damaged
from remask.memory import MappedRows

_FORMAT = 3
_PIECE = 1 << 20
_Content = TypeVar("_Content", bound=BaseModel)


def seal(name: str, content: BaseModel) -> bytes:
    """Return a JSON file with a checksum, `{"format": ..., "sha256": ..., NAME: {...}}`."""
    plain = content.model_dump(mode="json")
    type(content).model_validate(plain)
    sealed = {"format": _FORMAT, "sha256": _digest(plain), name: plain}
    return json.dumps(sealed, indent=1, allow_nan=False).encode() + b"\n"


def unseal(path: Path, data: bytes, name: str, kind: type[_Content], advice: str) -> _Content:
    """Return the content of a file that `seal` made. Raises LearnerError if it is damaged."""
    try:
        sealed = json.loads(data)
        written = sealed.get("format") if isinstance(sealed, dict) else None
        if type(written) is not int:
            raise damaged(path, f"it is not the JSON of a {name}", advice)
        if written != _FORMAT:
            newer = written > _FORMAT
            raise LearnerError(
                f"{path} was written by {'a newer' if newer else 'an older'} remask (format "
                f"{written:.20g}; this version reads format {_FORMAT}). "
                f"{'Update remask' if newer else 'Create the learner again'}."
            )
        if sealed.keys() != {"format", "sha256", name}:
            raise damaged(path, f"it is not the JSON of a {name}", advice)
        if sealed["sha256"] != _digest(sealed[name]):
            raise damaged(path, "its checksum is wrong", advice)
        return kind.model_validate(sealed[name])
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = printable(".".join(map(str, problem["loc"]))[:100]) or "the file"
        raise damaged(path, f"{where}: {problem['msg']:.200}", advice) from None
    except (ValueError, RecursionError, OverflowError) as error:  # numbers that JSON cannot carry
        raise damaged(path, printable(f"{error!s:.200}"), advice) from None


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def reading(path: Path, advice: str = RESTORE) -> Iterator[None]:
    """Report a file that cannot be read as LearnerError."""
    try:
        yield
    except OSError as error:
        raise LearnerError(f"{path} cannot be read: {error.strerror}. {advice}") from error


def check_sha256(path: Path, sha256: str, advice: str = RESTORE) -> None:
    """Raise LearnerError unless a file has this checksum."""
    with reading(path, advice), open_regular(path) as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise damaged(path, "its checksum is wrong", advice)


def write_hashed(path: Path, pieces: Iterable[bytes], *, private: bool) -> tuple[str, int]:
    """Write a file; return its SHA-256 and its size. Only its owner can read a private one."""
    digest, size = hashlib.sha256(), 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
            yield piece

    write_atomically(path, counted(), private=private)
    return digest.hexdigest(), size


def npy_pieces(
    shape: tuple[int, ...], dtype: str, groups: Iterable[npt.NDArray[Any]]
) -> Iterator[bytes]:
    """Yield the bytes of an .npy file of an array [N, ...], given groups of its rows."""
    header = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(
        header, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    waiting = bytearray(header.getvalue())
    for group in groups:
        waiting += group.tobytes()
        if len(waiting) >= _PIECE:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)


def mapped(path: Path, shape: tuple[int, ...], dtype: str, advice: str = RESTORE) -> MappedRows:
    """Map an .npy file with this shape and type into memory. Raises LearnerError."""
    try:
        rows = MappedRows(path)
    except Exception as error:  # numpy raises anything while it parses the header
        raise damaged(path, "it is not an array of samples", advice) from error
    if rows.shape != shape or rows.dtype != getattr(torch, dtype):
        found = f"{rows.dtype} {list(rows.shape)}"
        raise damaged(path, f"it has {found}, not {dtype} {list(shape)}", advice)
    return rows
