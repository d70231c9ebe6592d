"""Checkpoints: the state of a running stack on disk, complete or absent.

A checkpoint is one safetensors file, so one rename puts all of it in place. Its header has one
entry of metadata: two SHA-256 digests and a JSON note.

    {"__metadata__":{"remask":"<of the header><of the tensors>{...}"}, "net/0.weight":{...}, ...}

The first digest covers the file up to the tensors, except its own digits; the second one covers the
rest. So every byte is checked, and the header before anything in it is used. Nothing that is read
can run code.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from torch import Tensor

from remask.errors import RemaskError
from remask.files import (
    DurabilityError,
    make_folder,
    open_regular,
    remove_quietly,
    remove_stale_temporaries,
    write_atomically,
)

_NAME = re.compile(r"checkpoint-([0-9]{8,18})\.safetensors")
_FORMAT = 1
_MARK = b'"__metadata__":{"remask":"'
_DIGITS = hashlib.sha256().digest_size * 2
_LENGTH_BYTES = 8
_MAX_HEADER = 4 << 20
_MOST_GROWTH = 1 << 30
_SIZE = "(0|[1-9][0-9]{0,14})"
_SHAPE = re.compile(rf"\[({_SIZE}(, {_SIZE}){{0,15}})?\]")
_REMEDY = "Choose another folder, or remove it to start from the beginning."


class CheckpointError(RemaskError):
    """Checkpoints exist, but this run cannot resume from them."""


class _DamagedError(Exception):
    """A file is not the checkpoint that was written; the previous one may be intact."""


class _Format(BaseModel):
    """The part of the note that all formats share."""

    format: int = Field(ge=1, lt=1000)


class _Note(BaseModel):
    """Everything in a checkpoint but the tensors."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    identity: str
    tensors: dict[str, str]
    position: dict[str, int]
    extra: dict[str, JsonValue]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A state that was saved."""

    tensors: dict[str, Tensor]
    position: dict[str, int]
    extra: dict[str, JsonValue]
    number: int
    """Counts the checkpoints of a folder, from 1."""
    warnings: tuple[str, ...]
    """One for each newer checkpoint that could not be read."""


class CheckpointFolder:
    """The last two checkpoints of one run, `identity`, in a folder of their own.

    Two processes must not use a folder at the same time: hold a `remask.files.Lock`.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._folder = folder
        self._identity = identity
        self._last_good: Path | None = None
        self._loaded = False

    def save(
        self,
        tensors: Mapping[str, Tensor],
        position: Mapping[str, int],
        extra: Mapping[str, JsonValue],
    ) -> int:
        """Save a state, then delete all but the previous one; returns its number.

        Raises DurabilityError if writing fails, and ValueError or TypeError if `position` or
        `extra` do not survive a round trip through JSON.
        """
        data = _encode(self._identity, tensors, position, extra)
        make_folder(self._folder)
        remove_stale_temporaries(self._folder)
        older = checkpoints_in(self._folder)
        if older and not self._loaded:
            raise CheckpointError(
                f"{self._folder} holds checkpoints that were not loaded. Choose another folder, "
                f"or remove them."
            )
        number = max(older, default=0) + 1
        path = self._folder / f"checkpoint-{number:08d}.safetensors"
        write_atomically(path, data, private=True)  # it holds samples
        # A damaged one must not replace the last good one.
        kept = self._last_good or older.get(number - 1)
        for old in older.values():
            if old != kept:
                remove_quietly(old)
        self._last_good, self._loaded = path, True
        return number

    def load(
        self,
        expected: Mapping[str, Tensor],
        *,
        growing: tuple[str, ...] = (),
        optional: tuple[str, ...] = (),
    ) -> Checkpoint | None:
        """Load the newest intact state; None if none was ever saved.

        The saved tensors must have the names, types and shapes of `expected`, which is checked
        before memory is allocated. Tensors whose names begin with `growing` may have another shape
        with as many axes, and take up to 1 GiB more in total (see `TrialStack.growing`). Tensors
        whose names begin with `optional` may be missing. Raises CheckpointError if all are damaged,
        or if the newest intact one belongs to another run or a newer remask. Deletes nothing.
        """
        damages = []
        for number, path in reversed(checkpoints_in(self._folder).items()):
            try:
                note, tensors = _decode(path, self._identity, expected, growing, optional)
            except _DamagedError as error:
                damages.append(f"{path} is damaged: {error}.")
                continue
            except CheckpointError as error:
                raise CheckpointError(" ".join([*damages, str(error)])) from error
            self._last_good, self._loaded = path, True
            return Checkpoint(tensors, note.position, note.extra, number, tuple(damages))
        if damages:
            raise CheckpointError(
                f"no checkpoint can be read. {' '.join(damages)} Nothing was deleted. Restore a "
                f"copy, or remove them to start from the beginning."
            )
        self._loaded = True
        return None


def is_checkpoint(name: str) -> bool:
    """Whether a file of this name is a checkpoint."""
    return _NAME.fullmatch(name) is not None


def checkpoints_in(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by number, oldest first; empty if the folder does not exist."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - unlike iterdir it cannot fail later
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DurabilityError(
            f"cannot list {folder}: {error.strerror}. Fix its permissions, or choose another "
            f"folder."
        ) from error
    matches = (_NAME.fullmatch(name) for name in names)
    found = {int(match[1]): folder / match[0] for match in matches if match}
    return dict(sorted(found.items()))


def damage_of(path: Path) -> str | None:
    """What is wrong with a checkpoint according to its checksums; None if nothing is."""
    try:
        with open_regular(path) as stream:
            header = _read_header(stream, os.fstat(stream.fileno()).st_size)
            _, digest = _open_note(path, header)
            if hashlib.file_digest(stream, "sha256").hexdigest().encode() != digest:
                return "the checksum of its tensors is wrong"
    except FileNotFoundError:  # its run has saved newer ones meanwhile
        return None
    except (_DamagedError, CheckpointError) as error:
        return str(error)
    except OSError as error:
        return f"cannot be read, {error.strerror}"
    return None


def _encode(
    identity: str,
    tensors: Mapping[str, Tensor],
    position: Mapping[str, int],
    extra: Mapping[str, JsonValue],
) -> tuple[bytes, memoryview]:
    """The file in two parts: up to the tensors, and the rest."""
    note = {
        "format": _FORMAT,
        "identity": identity,
        "tensors": _kinds(tensors),
        "position": dict(position),
        "extra": dict(extra),
    }
    text = json.dumps(note, sort_keys=True, separators=(",", ":"), allow_nan=False)
    if _Note.model_validate_json(text).model_dump() != note:
        raise ValueError("position and extra must survive a round trip through JSON")
    # Copies, since safetensors accepts neither views of one tensor nor other layouts.
    plain = {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    try:
        return _seal(safetensors.torch.save(plain, {"remask": "0" * 2 * _DIGITS + text}))
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # safetensors is out of memory
            raise MemoryError(f"not enough memory to build a checkpoint: {error}") from error
        raise


def _seal(data: bytes) -> tuple[bytes, memoryview]:
    """Fill in the digests of a safetensors file."""
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    if start > _MAX_HEADER:
        raise ValueError(f"extra is too large: the header would have {start} bytes")
    rest = memoryview(data)[start:]
    at = data.index(_MARK, 0, start) + len(_MARK)
    before, after = data[:at], data[at + 2 * _DIGITS : start]
    inner = hashlib.sha256(rest).hexdigest().encode()
    outer = hashlib.sha256(before + inner + after).hexdigest().encode()
    return before + outer + inner + after, rest


def _decode(
    path: Path,
    identity: str,
    expected: Mapping[str, Tensor],
    growing: tuple[str, ...],
    optional: tuple[str, ...],
) -> tuple[_Note, dict[str, Tensor]]:
    """Read one file, checking the header before the tensors."""
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            header = _read_header(stream, size)
            note, digest = _open_note(path, header)
            expected = {
                name: tensor
                for name, tensor in expected.items()
                if name in note.tensors or not name.startswith(optional)
            }
            _check_fits(path, note, identity, expected, growing)
            nbytes = sum(_bytes_of(note.tensors[n], tensor) for n, tensor in expected.items())
            if size != len(header) + nbytes:
                raise _DamagedError(f"its tensors have {size - len(header)}, not {nbytes} bytes")
            stream.seek(0)
            data = stream.read(size)
    except OSError as error:
        raise _DamagedError(f"cannot be read, {error.strerror}") from error
    if hashlib.sha256(memoryview(data)[len(header) :]).hexdigest().encode() != digest:
        raise _DamagedError("the checksum of its tensors is wrong")
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:  # the parser has its own, and odd values make torch raise others
        raise _DamagedError(f"not a safetensors file, {error}") from error
    if _kinds(tensors) != note.tensors:
        raise _DamagedError("its tensors are not those in its note")
    return note, tensors


def _read_header(stream: BufferedReader, size: int) -> bytes:
    """The file up to the tensors, including the length at its beginning."""
    length = stream.read(_LENGTH_BYTES)
    start = _LENGTH_BYTES + int.from_bytes(length, "little")
    if start > min(size, _MAX_HEADER):
        raise _DamagedError(f"its {size} bytes are not a complete checkpoint")
    return length + stream.read(start - _LENGTH_BYTES)


def _open_note(path: Path, header: bytes) -> tuple[_Note, bytes]:
    """The note and the digest of the tensors, after checking the digest of the header."""
    at = header.find(_MARK) + len(_MARK)
    outer, inner = header[at : at + _DIGITS], header[at + _DIGITS : at + 2 * _DIGITS]
    sealed = header[:at] + header[at + _DIGITS :]
    if _MARK not in header or hashlib.sha256(sealed).hexdigest().encode() != outer:
        raise _DamagedError("the checksum of its header is wrong")
    try:
        # Parse this one string only; `at` is behind its opening quote.
        line, _ = json.JSONDecoder().raw_decode(header[at - 1 :].decode())
        text = str(line)[2 * _DIGITS :]
        written_format = _Format.model_validate_json(text).format
        if written_format > _FORMAT:
            raise CheckpointError(
                f"{path} was written by a newer remask (format {written_format}, this one reads "
                f"up to {_FORMAT}). Update remask, or remove it to start from the beginning."
            )
        return _Note.model_validate_json(text), inner
    except ValueError as error:  # includes pydantic's
        raise _DamagedError("its note is invalid") from error


def _check_fits(
    path: Path,
    note: _Note,
    identity: str,
    expected: Mapping[str, Tensor],
    growing: tuple[str, ...],
) -> None:
    if note.identity != identity:
        raise CheckpointError(
            f"{path} belongs to another run: it is of {_shown(note.identity)}, this is "
            f"{identity!r}. {_REMEDY}"
        )
    ours, theirs, grown = _kinds(expected), dict(note.tensors), 0
    for name, tensor in expected.items():
        kind = theirs.get(name, "")
        if name.startswith(growing) and _same_type_and_axes(kind, tensor):
            grown += _bytes_of(kind, tensor) - tensor.nbytes
            theirs[name] = ours[name]
    if grown > _MOST_GROWTH:
        raise CheckpointError(
            f"{path} does not fit this run: it is {grown} bytes larger than this run's state; at "
            f"most {_MOST_GROWTH} are allowed. {_REMEDY}"
        )
    if theirs != ours:
        odd = min(ours.items() ^ theirs.items())[0]
        raise CheckpointError(
            f"{path} does not fit this run: {_shown(odd)} is {_shown(note.tensors.get(odd))}, "
            f"this run's is {_shown(ours.get(odd))}. {_REMEDY}"
        )


def _kinds(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Type and shape of each tensor as text: `torch.float32 [10, 784]`."""
    return {name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in tensors.items()}


def _same_type_and_axes(kind: str, tensor: Tensor) -> bool:
    dtype, _, shape = kind.partition(" ")
    return (
        dtype == str(tensor.dtype)
        and _SHAPE.fullmatch(shape) is not None
        and len(json.loads(shape)) == tensor.ndim
    )


def _bytes_of(kind: str, tensor: Tensor) -> int:
    """The size of a tensor of this kind, which has the type of `tensor`."""
    shape: list[int] = json.loads(kind.partition(" ")[2])
    return math.prod(shape) * tensor.element_size()


def _shown(text: str | None) -> str:
    """Quote text from a file: shortened, and without control characters."""
    return "missing" if text is None else repr(text[:200])
