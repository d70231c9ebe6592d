"""The file of a checkpoint: how a state is written, sealed, read back and checked.

A checkpoint is one safetensors file, so that one renaming puts all of it in place. Its header
carries one line of metadata: two SHA-256 digests and a JSON note of everything but the tensors.

    {"__metadata__":{"remask":"<of the header><of the tensors>{...}"}, "net/0.weight":{...}, ...}

The first digest is of all of the file up to the tensors, except its own digits; the second, which
the first thus covers, is of the rest. So every byte is checked, and the header's before anything
in it is believed. Nothing that is read can run code.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path

import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from torch import Tensor

from remask.durable import open_regular
from remask.engine.fitting import bytes_of, is_like, kinds
from remask.errors import RemaskError

_FORMAT = 1
_MARK = b'"__metadata__":{"remask":"'
_DIGITS = hashlib.sha256().digest_size * 2
_LENGTH_BYTES = 8
_MAX_HEADER = 4 << 20
_MOST_GROWTH = 1 << 30


class CheckpointError(RemaskError):
    """Checkpoints are there, but this run cannot go on from them; the message says what to do."""


class DamagedError(Exception):
    """One file is not the checkpoint that was written; the one before may be."""


class _Format(BaseModel):
    """What the note of every format, past and future, says."""

    format: int = Field(ge=1, lt=1000)


class Note(BaseModel):
    """All that a checkpoint says beside its tensors."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    identity: str
    tensors: dict[str, str]
    position: dict[str, int]
    extra: dict[str, JsonValue]


def damage_of(path: Path) -> str | None:
    """What is wrong with the file of a checkpoint, by its checksums; None: nothing."""
    try:
        with open_regular(path) as stream:
            header = _read_header(stream, os.fstat(stream.fileno()).st_size)
            _, digest = _open_note(path, header)
            if hashlib.file_digest(stream, "sha256").hexdigest().encode() != digest:
                return "the checksum of its tensors is wrong"
    except FileNotFoundError:  # its run has gone on meanwhile
        return None
    except (DamagedError, CheckpointError) as error:
        return str(error)
    except OSError as error:
        return f"cannot be read, {error.strerror}"
    return None


def encode(
    identity: str,
    tensors: Mapping[str, Tensor],
    position: Mapping[str, int],
    extra: Mapping[str, JsonValue],
) -> tuple[bytes, memoryview]:
    """Make the file, in two parts: up to the tensors, and the rest."""
    note = {
        "format": _FORMAT,
        "identity": identity,
        "tensors": kinds(tensors),
        "position": dict(position),
        "extra": dict(extra),
    }
    text = json.dumps(note, sort_keys=True, separators=(",", ":"), allow_nan=False)
    if Note.model_validate_json(text).model_dump() != note:
        raise ValueError("position and extra must be plain JSON that reads back as it is")
    # Copies, since safetensors takes neither views of one tensor nor other layouts.
    plain = {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    try:
        return _seal(safetensors.torch.save(plain, {"remask": "0" * 2 * _DIGITS + text}))
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # the library's way to run out of memory
            raise MemoryError(f"a checkpoint could not be put together: {error}") from error
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


def decode(
    path: Path,
    identity: str,
    expected: Mapping[str, Tensor],
    growing: tuple[str, ...],
    optional: tuple[str, ...],
) -> tuple[Note, dict[str, Tensor]]:
    """Read one file; what is cheap and decides is checked before what is large."""
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            header = _read_header(stream, size)
            note, digest = _open_note(path, header)
            missing = {name for name in expected.keys() - note.tensors if name.startswith(optional)}
            expected = {name: expected[name] for name in expected if name not in missing}
            _check_ours(path, note, identity, expected, growing)
            tensor_bytes = sum(
                bytes_of(note.tensors[name], tensor) for name, tensor in expected.items()
            )
            if size != len(header) + tensor_bytes:
                raise DamagedError(
                    f"its tensors have {size - len(header)}, not {tensor_bytes} bytes"
                )
            stream.seek(0)
            data = stream.read(size)
    except OSError as error:
        raise DamagedError(f"cannot be read, {error.strerror}") from error
    if hashlib.sha256(memoryview(data)[len(header) :]).hexdigest().encode() != digest:
        raise DamagedError("the checksum of its tensors is wrong")
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:  # the parser's own, and whatever torch makes of odd values
        raise DamagedError(f"not a safetensors file, {error}") from error
    if kinds(tensors) != note.tensors:
        raise DamagedError("its tensors are not those that it announces")
    return note, tensors


def _read_header(stream: BufferedReader, size: int) -> bytes:
    """All of the file up to the tensors, including the length that it begins with."""
    length = stream.read(_LENGTH_BYTES)
    start = _LENGTH_BYTES + int.from_bytes(length, "little")
    if start > min(size, _MAX_HEADER):
        raise DamagedError(f"its {size} bytes are no checkpoint, or not all of one")
    return length + stream.read(start - _LENGTH_BYTES)


def _open_note(path: Path, header: bytes) -> tuple[Note, bytes]:
    """Give the note and the digest of the tensors, once the header proves to be as written."""
    at = header.find(_MARK) + len(_MARK)
    outer, inner = header[at : at + _DIGITS], header[at + _DIGITS : at + 2 * _DIGITS]
    sealed = header[:at] + header[at + _DIGITS :]
    if _MARK not in header or hashlib.sha256(sealed).hexdigest().encode() != outer:
        raise DamagedError("the checksum of its header is wrong")
    try:
        # Only this one string, whatever else the header may hold; `at` is behind its quote.
        line, _ = json.JSONDecoder().raw_decode(header[at - 1 :].decode())
        text = str(line)[2 * _DIGITS :]
        written_format = _Format.model_validate_json(text).format
        if written_format > _FORMAT:
            raise CheckpointError(
                f"{path} was written by a newer remask (format {written_format}, this one reads "
                f"up to {_FORMAT}). Update remask, or remove it to start from the beginning."
            )
        return Note.model_validate_json(text), inner
    except ValueError as error:  # pydantic's are among them
        raise DamagedError("its note makes no sense") from error


def _check_ours(
    path: Path,
    note: Note,
    identity: str,
    expected: Mapping[str, Tensor],
    growing: tuple[str, ...],
) -> None:
    if note.identity != identity:
        raise CheckpointError(
            f"{path} belongs to another run: it is of {_shown(note.identity)}, this is "
            f"{identity!r}. Choose another folder, or remove it to start from the beginning."
        )
    ours, theirs, grown = kinds(expected), dict(note.tensors), 0
    for name, tensor in expected.items():
        if name.startswith(growing) and is_like(theirs.get(name, ""), tensor):
            grown += bytes_of(theirs[name], tensor) - tensor.nbytes
            theirs[name] = ours[name]
    if grown > _MOST_GROWTH:
        raise CheckpointError(
            f"{path} does not fit this run: it has {grown} bytes more than this run has now, and "
            f"may have {_MOST_GROWTH}. Choose another folder, or remove it to start from the "
            f"beginning."
        )
    if theirs != ours:
        odd = min(ours.items() ^ theirs.items())[0]
        raise CheckpointError(
            f"{path} does not fit this run: {_shown(odd)} is {_shown(note.tensors.get(odd))}, "
            f"this run's is {_shown(ours.get(odd))}. Choose another folder, or remove it to start "
            f"from the beginning."
        )


def _shown(text: str | None) -> str:
    """Quote what a file says, so that it can neither steer a terminal nor fill it."""
    return "not there" if text is None else repr(text[:200])
