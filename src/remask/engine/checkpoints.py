"""Checkpoints: the state of a running stack on disk, complete or absent.

A checkpoint is one safetensors file, so one rename puts all of it in place. Its metadata has one
entry: the SHA-256 digest of the file, computed with zeros in place of the digest, and a JSON note.
Nothing that is read can run code.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, JsonValue
from torch import Tensor

from remask.errors import RemaskError
from remask.files import (
    make_folder,
    read_limited,
    refusal,
    remove_quietly,
    remove_stale_temporaries,
    write_atomically,
)

_NAME = re.compile(r"checkpoint-([0-9]{8,18})\.safetensors")
_FORMAT = 1
_MARK = b'{"__metadata__":{"remask":"'
_LENGTH_BYTES = 8  # of the header, at the beginning
_AT = _LENGTH_BYTES + len(_MARK)  # the place of the digest
_ZEROS = b"0" * 64
_MOST_BYTES = 1 << 50
_MOST_GROWTH = 1 << 30  # bytes of a file beyond the tensors that are expected
_REMEDY = "Choose another folder, or remove it to start from the beginning."


class CheckpointError(RemaskError):
    """Checkpoints exist, but this run cannot resume from them."""


class _DamagedError(Exception):
    """A file is not the checkpoint that was written; the previous one may be intact."""


class _Note(BaseModel):
    """Everything in a checkpoint but the tensors."""

    model_config = ConfigDict(strict=True)

    format: int
    identity: str
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
        self._folder, self._identity = folder, identity
        self._latest: Path | None = None  # the one that was saved or loaded last

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
        if older and self._latest is None:
            raise CheckpointError(
                f"{self._folder} holds checkpoints that were not loaded. Choose another folder, "
                f"or remove them."
            )
        number = max(older, default=0) + 1
        path = self._folder / f"checkpoint-{number:08d}.safetensors"
        write_atomically(path, data, private=True)  # it holds samples
        for old in older.values():
            if old != self._latest:  # newer ones are damaged
                remove_quietly(old)
        self._latest = path
        return number

    def load(
        self,
        expected: Mapping[str, Tensor],
        *,
        growing: tuple[str, ...] = (),
        optional: tuple[str, ...] = (),
    ) -> Checkpoint | None:
        """Load the newest intact state; None if none was ever saved.

        The saved tensors must fit `expected`, see `check_fit`; those whose names begin with
        `optional` are not checked. A file that is more than 1 GiB larger than `expected` is not
        read. Raises CheckpointError if all are damaged, or if the newest intact one belongs to
        another run or a newer remask. Deletes nothing.
        """
        limit = sum(tensor.nbytes for tensor in expected.values()) + _MOST_GROWTH
        damages = []
        for number, path in reversed(checkpoints_in(self._folder).items()):
            try:
                note, tensors = _decode(_read(path, limit))
                _check_run(note, self._identity)
                own, saved = (
                    {name: value for name, value in named.items() if not name.startswith(optional)}
                    for named in (expected, tensors)
                )
                check_fit(saved, own, "this run", growing)
            except _DamagedError as error:
                damages.append(f"{path} is damaged: {error}.")
                continue
            except ValueError as error:
                problem = f"{path} does not fit this run: {error!s:.500}. {_REMEDY}"
                raise CheckpointError(" ".join([*damages, problem])) from error
            self._latest = path
            return Checkpoint(tensors, note.position, note.extra, number, tuple(damages))
        if damages:
            raise CheckpointError(
                f"no checkpoint can be read. {' '.join(damages)} Nothing was deleted. Restore a "
                f"copy, or remove them to start from the beginning."
            )
        return None


def check_fit(
    saved: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    owner: str,
    growing: tuple[str, ...] = (),
) -> None:
    """Raise ValueError unless saved tensors have the names, shapes and types of the owner's.

    Tensors whose names begin with `growing` only need the same number of axes.
    """
    if odd := sorted(saved.keys() ^ own.keys()):
        raise ValueError(f"{owner} has other tensors than were saved: {_shown(', '.join(odd[:5]))}")
    for name, tensor in own.items():
        found = saved[name]
        may_grow = name.startswith(growing)
        fits = found.ndim == tensor.ndim if may_grow else found.shape == tensor.shape
        if not fits or found.dtype != tensor.dtype:
            raise ValueError(
                f"the saved {name} is {found.dtype} {list(found.shape)}, that of {owner} is "
                f"{tensor.dtype} {list(tensor.shape)}"
            )


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
        raise refusal("list", folder, error) from error
    matches = (_NAME.fullmatch(name) for name in names)
    return dict(sorted((int(match[1]), folder / match[0]) for match in matches if match))


def damage_of(path: Path) -> str | None:
    """What is wrong with a checkpoint according to its checksum; None if nothing is."""
    try:
        _read(path, _MOST_BYTES)
    except _DamagedError as error:
        # Unless its run has saved newer ones meanwhile.
        return str(error) if path.exists() else None
    return None


def _encode(
    identity: str,
    tensors: Mapping[str, Tensor],
    position: Mapping[str, int],
    extra: Mapping[str, JsonValue],
) -> tuple[bytes, bytes, memoryview]:
    """The file in three parts, of which the second is the digest."""
    note = {"format": _FORMAT, "identity": identity, "position": {**position}, "extra": {**extra}}
    text = json.dumps(note, sort_keys=True, separators=(",", ":"), allow_nan=False)
    if _Note.model_validate_json(text).model_dump() != note:
        raise ValueError("position and extra must survive a round trip through JSON")
    # Copies, since safetensors accepts neither views of one tensor nor other layouts.
    plain = {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    data = safetensors.torch.save(plain, {"remask": _ZEROS.decode() + text})
    return data[:_AT], _digest(data), memoryview(data)[_AT + len(_ZEROS) :]


def _digest(data: bytes) -> bytes:
    """The digest of a file with zeros in its place, in hex."""
    digest = hashlib.sha256(data[:_AT] + _ZEROS)
    digest.update(memoryview(data)[_AT + len(_ZEROS) :])
    return digest.hexdigest().encode()


def _read(path: Path, most_bytes: int) -> bytes:
    """Read a file whose digest is right."""
    try:
        data = read_limited(path, most_bytes)
    except OSError as error:
        raise _DamagedError(f"cannot be read, {error.strerror}") from error
    if data[_LENGTH_BYTES:_AT] != _MARK or data[_AT : _AT + len(_ZEROS)] != _digest(data):
        raise _DamagedError("its checksum is wrong")
    return data


def _decode(data: bytes) -> tuple[_Note, dict[str, Tensor]]:
    try:
        tensors = safetensors.torch.load(data)
        length = int.from_bytes(data[:_LENGTH_BYTES], "little")
        header = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + length])
        return _Note.model_validate_json(header["__metadata__"]["remask"][len(_ZEROS) :]), tensors
    except Exception as error:  # the parser has its own, and odd values make torch raise others
        raise _DamagedError(f"not a checkpoint, {_shown(error)}") from error


def _check_run(note: _Note, identity: str) -> None:
    if note.format > _FORMAT:
        raise ValueError(
            f"it was written by a newer remask (format {note.format}, this one reads up to "
            f"{_FORMAT}): update remask"
        )
    if note.identity != identity:
        raise ValueError(f"it belongs to another run, {_shown(note.identity)}, not to {identity!r}")


def _shown(text: object) -> str:
    """Quote text from a file: shortened, and without control characters."""
    return repr(str(text)[:200])
