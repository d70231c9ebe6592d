"""A visit that has begun: its samples in the folder `visit/`, as the learner will learn them.

`visit.json` is written last, so a folder without it is a leftover. The samples stay until the visit
is finished or given up, so that after a crash the same call goes on with it. Only the owner of the
files can read them. Symbolic links in the folder are refused, never followed.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field

from remask.durable import make_folder, open_regular, read_limited, remove_tree, write_atomically
from remask.learner.encoding import PARTS, Encoding
from remask.learner.errors import LearnerError, damaged
from remask.learner.manifest import DataNote, Manifest, Seen
from remask.learner.names import StoredName
from remask.learner.npy import mapped, npy_pieces
from remask.learner.sealed import seal, unseal
from remask.memory import MappedRows, StoredRows
from remask.user_data import InputFormat, SampleReader, sample_bytes

VISIT = "visit"
_NOTE, _INPUTS, _REJECTED = "visit.json", "inputs.npy", "rejected"
_LEARN_AGAIN = "Learn the visit again from its beginning with discard=True (--discard)."
_LARGEST_NOTE = 64 << 20
_ROWS_AT_ONCE = 256
_HELD_OUT_SHARE = 0.1
_MOST_HELD_OUT = 100  # of a class in one visit


class VisitNote(BaseModel):
    """A visit that has begun."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: StoredName
    fingerprint: str = Field(pattern="^[0-9a-f]{64}$")
    generation: int = Field(ge=0)
    """Of the learner that it began with."""
    began: str = Field(max_length=40)
    classes: tuple[StoredName | None, ...]
    """Of the learner, with the visit's new ones behind."""
    labels: tuple[int, ...]
    """The output of each sample's class."""
    aside: tuple[Annotated[int, Field(ge=0)], ...]
    """Numbers of the samples that are held out."""
    keys: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...]
    """Their keys, which decide which of them stay held out."""
    data: DataNote
    rows_sha256: str

    def problem(self, manifest: Manifest) -> str | None:
        """Why a learner cannot go on with this visit, if it cannot."""
        outputs = {number for number, name in enumerate(self.classes) if name is not None}
        if self.classes[: len(manifest.classes)] != manifest.classes:
            return "its classes are not those of the learner"
        if len(new := self.classes[len(manifest.classes) :]) != len({*new} - {*manifest.classes}):
            return "its new classes are not new"
        if not self.labels or not outputs.issuperset(self.labels):
            return "its labels are not of its classes"
        rows = {*self.aside}
        if len(rows) != len(self.aside) or len(rows) != len(self.keys):
            return "its held-out samples do not fit their keys"
        if rows and max(rows) >= len(self.labels):
            return "its held-out samples are not among its samples"
        if manifest.data not in (None, self.data):
            return "its samples are not like those of the learner"
        return None


@dataclass(frozen=True, eq=False)
class Staged:
    """The samples of a visit, on disk."""

    note: VisitNote
    inputs: MappedRows
    """[N, *shape] of what is kept."""
    labels: torch.Tensor
    """int64 [N]: outputs."""


@dataclass(frozen=True, eq=False)
class Read:
    """The samples of a visit when all of them have been read."""

    fingerprint: str
    rows: StoredRows
    """What is kept of them."""
    names: list[str]
    keys: list[int]


def fingerprint_of(source: SampleReader, form: InputFormat) -> str:
    """Read all samples; what they are, and their classes, as one number."""
    fingerprint = _Fingerprint()
    for sample in source.samples(form):
        fingerprint.add(sample)
    return fingerprint.digest(source, form)


def stage(
    folder: Path,
    source: SampleReader,
    form: InputFormat,
    encoding: Encoding | None,
    describe: Callable[[Read], VisitNote],
    seed: int,
) -> Staged:
    """Read all samples and write what is learnt from into the folder. Raises LearnerError.

    `describe` makes the note. What was encoded stays if this is interrupted, and is used again.
    """
    discard(folder, keep_parts=encoding is not None)
    make_folder(folder, private=True)
    fingerprint = _Fingerprint()
    keys: list[int] = []
    try:
        rows = _rows(source, form, encoding, fingerprint, keys, seed)
        first = next(rows)
        shape = (source.count, *first.shape[1:])
        path = folder / _INPUTS
        digest = hashlib.sha256()

        def pieces() -> Iterator[bytes]:
            def every() -> Iterator[npt.NDArray[Any]]:
                yield first
                yield from rows

            for piece in npy_pieces(shape, str(first.dtype), every()):
                digest.update(piece)
                yield piece

        write_atomically(path, pieces(), private=True)
        assert source.names is not None
        found = fingerprint.digest(source, form)
        note = describe(Read(found, MappedRows(path), source.names, keys))
        note = note.model_copy(update={"rows_sha256": digest.hexdigest()})
        write_atomically(folder / _NOTE, seal(VISIT, note), private=True)
        remove_tree(folder / PARTS)
    except BaseException:
        with suppress(OSError):  # the next call removes the rest
            discard(folder, keep_parts=encoding is not None)
        raise
    return _staged(folder, note)


def unfinished(folder: Path) -> VisitNote | None:
    """The visit that has begun and is not finished, if there is one.

    Raises LearnerError if its note is damaged.
    """
    refuse_links(folder)
    path = folder / _NOTE
    try:
        data = read_limited(path, _LARGEST_NOTE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise damaged(path, f"it cannot be read, {error.strerror}", _LEARN_AGAIN) from error
    return unseal(path, data, VISIT, VisitNote, _LEARN_AGAIN)


def take_up(folder: Path, note: VisitNote, manifest: Manifest) -> Staged:
    """Go on with a visit that has begun. Raises LearnerError if its files are damaged."""
    if problem := note.problem(manifest):
        raise damaged(folder / _NOTE, problem, _LEARN_AGAIN)
    path = folder / _INPUTS
    try:
        with open_regular(path) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise damaged(path, f"it cannot be read, {error.strerror}", _LEARN_AGAIN) from error
    if digest != note.rows_sha256:
        raise damaged(path, "its checksum is wrong", _LEARN_AGAIN)
    return _staged(folder, note)


def discard(folder: Path, *, keep_parts: bool = False) -> None:
    """Give up what a visit has begun. Its note goes first, so that half of it is nothing.

    With `keep_parts`, features that were computed stay. Raises DurabilityError if a file cannot be
    removed.
    """
    if not folder.is_symlink():  # the link itself goes below, not what it points to
        remove_tree(folder / _NOTE)
        if keep_parts and (folder / PARTS).is_dir() and not (folder / PARTS).is_symlink():
            for path in folder.iterdir():
                if path.name != PARTS:
                    remove_tree(path)
            return
    remove_tree(folder)


def reject(folder: Path) -> None:
    """Note that a visit is not good enough: it is kept only for being forced."""
    write_atomically(folder / _REJECTED, b"", private=True)


def is_rejected(folder: Path) -> bool:
    """Whether the visit in the folder ended without being good enough."""
    return (folder / _REJECTED).is_file()


def is_stale(folder: Path, generation: int) -> bool:
    """Whether no visit can go on with the folder: half-written, or begun with another state."""
    if not os.path.lexists(folder):
        return False
    try:
        begun = unfinished(folder)
    except LearnerError:  # the next visit reports it, and `forget` removes it
        return False
    if begun is None:
        return not (folder / PARTS).is_dir()  # of features that the next call can use
    return begun.generation != generation


def refuse_links(folder: Path) -> None:
    """Refuse a folder that is a symbolic link, or has one in it. Raises LearnerError."""
    found = [folder] if folder.is_symlink() else []
    for root, folders, files in os.walk(folder):
        found += [Path(root, name) for name in (*folders, *files) if Path(root, name).is_symlink()]
    if found:
        raise LearnerError(
            f"{found[0]} is a symbolic link, which a learner does not follow. Remove the link, "
            f"then try again."
        )


def held_out(labels: Sequence[int], keys: Sequence[int]) -> list[int]:
    """The numbers of the samples that are never learnt from: a tenth of each class, at most 100.

    They are those with the smallest keys, so the choice depends on nothing but the class's own
    samples and the seed. Of two samples of a class one is held out, of a single one none.
    """
    by_class: dict[int, list[int]] = {}
    for row in sorted(range(len(labels)), key=lambda row: (keys[row], row)):
        by_class.setdefault(labels[row], []).append(row)
    chosen: list[int] = []
    for rows in by_class.values():
        share = max(round(_HELD_OUT_SHARE * len(rows)), 1)
        chosen += rows[: min(share, len(rows) - 1, _MOST_HELD_OUT)]
    return sorted(chosen)


def moments(inputs: StoredRows, rows: npt.NDArray[np.int64], scale: float) -> Seen:
    """Mean and standard deviation of each channel, or for features one deviation for all.

    Features keep their geometry: they are centred and divided by one number, so that their mean
    squared length is 100, about that of the digits for which the learning rates are meant.
    """
    axes = (0, *range(2, len(inputs.shape)))
    count, total, squares = 0, 0.0, 0.0
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = inputs.read(rows[start : start + _ROWS_AT_ONCE]).astype(np.float64) * scale
        count += part.size // part.shape[1]
        total, squares = total + part.sum(axes), squares + np.square(part).sum(axes)
    mean = np.asarray(total) / count
    variance = np.maximum(np.asarray(squares) / count - np.square(mean), 0.0)
    if len(inputs.shape) == 2:
        variance = np.full_like(variance, variance.sum() / 100)
    std = np.sqrt(np.where(variance > 1e-12, variance, 1.0))
    # As float32, which is what tensors are made of.
    mean32, std32 = mean.astype(np.float32).tolist(), std.astype(np.float32).tolist()
    return Seen(scale=scale, mean=tuple(mean32), std=tuple(std32))


class _Fingerprint:
    def __init__(self) -> None:
        self._samples = hashlib.sha256()

    def add(self, sample: Any) -> None:
        self._samples.update(sample_bytes(sample))

    def digest(self, source: SampleReader, form: InputFormat) -> str:
        text = json.dumps([form.model_dump(), source.names, self._samples.hexdigest()])
        return hashlib.sha256(text.encode()).hexdigest()


def sample_key(sample: Any, seed: int) -> int:
    """A number that depends on the bytes of a sample and on the seed."""
    digest = hashlib.sha256(seed.to_bytes(8, "little") + sample_bytes(sample)).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def _rows(
    source: SampleReader,
    form: InputFormat,
    encoding: Encoding | None,
    fingerprint: _Fingerprint,
    keys: list[int],
    seed: int,
) -> Iterator[npt.NDArray[Any]]:
    """What is kept of the samples, in groups of rows."""
    samples = source.samples(form)
    while group := list(islice(samples, _ROWS_AT_ONCE)):
        for sample in group:
            fingerprint.add(sample)
            keys.append(sample_key(sample, seed))
        yield np.stack(group) if encoding is None else encoding.encode(group, source.count)


def _staged(folder: Path, note: VisitNote) -> Staged:
    shape = (len(note.labels), *note.data.kept.shape)
    inputs = mapped(folder / _INPUTS, shape, note.data.kept.dtype, _LEARN_AGAIN)
    return Staged(note, inputs, torch.tensor(note.labels, dtype=torch.int64))
