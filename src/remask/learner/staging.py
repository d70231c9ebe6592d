"""A visit that has begun: its samples in the folder `visit/`, as the learner will learn them.

`visit.json` is written last, so a folder without it is a leftover. The samples stay until the visit
is finished or given up, so that after a crash the same call goes on with it. Only the owner of the
files can read them. Symbolic links in the folder are refused, never followed.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field

from remask.durable import make_folder, open_regular, read_limited, remove_tree, write_atomically
from remask.learner.errors import LearnerError, damaged
from remask.learner.manifest import DataNote, Manifest, Seen
from remask.learner.names import StoredName
from remask.learner.npy import mapped, npy_pieces
from remask.learner.sealed import seal, unseal
from remask.memory import MappedRows, StoredRows
from remask.randomness import generator
from remask.user_data import InputFormat, Source, sample_bytes

VISIT = "visit"
_NOTE, _INPUTS = "visit.json", "inputs.npy"
_LEARN_AGAIN = "Learn the visit again from its beginning with discard=True (--discard)."
_LARGEST_NOTE = 64 << 20
_ROWS_AT_ONCE = 256
_HELD_OUT_SHARE = 0.1
_MOST_HELD_OUT = 100  # of a class in one visit
Featurise = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""[n, *shape] as they are read -> [n, F], what a frozen backbone makes of them."""


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


def fingerprint_of(source: Source, form: InputFormat) -> str:
    """Read all samples; what they are, and their classes, as one number."""
    fingerprint = _Fingerprint()
    for sample in source.samples(form):
        fingerprint.add(sample)
    return fingerprint.digest(source, form)


def stage(
    folder: Path,
    source: Source,
    form: InputFormat,
    featurise: Featurise | None,
    describe: Callable[[str, StoredRows, list[str]], VisitNote],
) -> Staged:
    """Read all samples and write what is learnt from into the folder. Raises LearnerError.

    `describe` makes the note, from the fingerprint, what was written, and the names of the classes.
    """
    discard(folder)
    make_folder(folder, private=True)
    fingerprint = _Fingerprint()
    try:
        rows = _rows(source, form, featurise, fingerprint)
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
        note = describe(found, MappedRows(path), source.names)
        note = note.model_copy(update={"rows_sha256": digest.hexdigest()})
        write_atomically(folder / _NOTE, seal(VISIT, note), private=True)
    except BaseException:
        with suppress(OSError):  # the next call removes the rest
            discard(folder)
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


def discard(folder: Path) -> None:
    """Give up what a visit has begun. Its note goes first, so that half of it is nothing.

    Raises DurabilityError if a file cannot be removed.
    """
    if not folder.is_symlink():  # the link itself goes below, not what it points to
        remove_tree(folder / _NOTE)
    remove_tree(folder)


def is_stale(folder: Path, generation: int) -> bool:
    """Whether no visit can go on with the folder: half-written, or begun with another state."""
    if not os.path.lexists(folder):
        return False
    try:
        begun = unfinished(folder)
    except LearnerError:  # the next visit reports it, and `forget` removes it
        return False
    return begun is None or begun.generation != generation


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


def held_out(labels: torch.Tensor, seed: int, visit: int) -> torch.Tensor:
    """Which samples of a visit are never learnt from, bool [N]: a tenth of each class, at most 100.

    Of two samples of a class one is held out; of a single one none is.
    """
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for label in sorted(set(labels.tolist())):
        rows = (labels == label).nonzero().squeeze(-1)
        count = min(max(round(_HELD_OUT_SHARE * len(rows)), 1), len(rows) - 1, _MOST_HELD_OUT)
        order = generator(seed, "held-out memory", visit, label).permutation(len(rows))
        chosen[rows[torch.from_numpy(order[:count])]] = True
    return chosen


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

    def digest(self, source: Source, form: InputFormat) -> str:
        text = json.dumps([form.model_dump(), source.names, self._samples.hexdigest()])
        return hashlib.sha256(text.encode()).hexdigest()


def _rows(
    source: Source, form: InputFormat, featurise: Featurise | None, fingerprint: _Fingerprint
) -> Iterator[npt.NDArray[Any]]:
    """What is kept of the samples, in groups of rows."""
    waiting: list[Any] = []
    for sample in source.samples(form):
        fingerprint.add(sample)
        waiting.append(sample)
        if len(waiting) == _ROWS_AT_ONCE:
            yield np.stack(waiting) if featurise is None else featurise(np.stack(waiting))
            waiting = []
    if waiting:
        yield np.stack(waiting) if featurise is None else featurise(np.stack(waiting))


def _staged(folder: Path, note: VisitNote) -> Staged:
    shape = (len(note.labels), *note.data.kept.shape)
    inputs = mapped(folder / _INPUTS, shape, note.data.kept.dtype, _LEARN_AGAIN)
    return Staged(note, inputs, torch.tensor(note.labels, dtype=torch.int64))
