"""The folder `visit/`: the samples of a visit that has started, until it is committed or discarded.

`visit.json` is written last, so a folder without it is a leftover. After a crash, the same call
continues with the samples and checkpoints in the folder. Only the owner of the files can read them.
Symbolic links in the folder are refused, never followed.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field

from remask.data.readers import InputFormat, SampleReader, sample_bytes
from remask.files import make_folder, open_regular, read_limited, remove_tree, write_atomically
from remask.learner.manifest import (
    DataNote,
    Manifest,
    mapped,
    npy_pieces,
    seal,
    unseal,
    write_hashed,
)
from remask.learner.model import Features
from remask.learner.results import Progress, Record, StoredName
from remask.learner.settings import LearnerError, damaged
from remask.memory import MappedRows

VISIT = "visit"
_NOTE, _INPUTS, _REJECTED, _PARTS = "visit.json", "inputs.npy", "rejected", "parts"
_LEARN_AGAIN = "Learn the visit again from its beginning with discard=True (--discard)."
_LARGEST_NOTE = 64 << 20
_ROWS_AT_ONCE = 256
_HELD_OUT_SHARE = 0.1
_MOST_HELD_OUT = 100  # samples of a class in one visit
_KEEP_SECONDS = 2.0  # features that are computed faster are not worth a file
OnProgress = Callable[[Progress], None]


class VisitNote(Record):
    """A visit that has started."""

    name: StoredName
    fingerprint: str = Field(pattern="^[0-9a-f]{64}$")
    generation: int = Field(ge=0, description="of the learner when the visit started")
    began: str = Field(max_length=40)
    classes: tuple[StoredName | None, ...] = Field(
        description="of the learner, followed by the new ones of the visit"
    )
    labels: tuple[int, ...] = Field(description="the output of each sample's class")
    held_out: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        description="numbers of the samples that are held out"
    )
    keys: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = Field(
        description="their keys, which decide which of them stay held out"
    )
    data: DataNote
    rows_sha256: str

    def problem(self, manifest: Manifest) -> str | None:
        """Return why a learner cannot continue this visit, or None."""
        known, new = manifest.classes, self.classes[len(manifest.classes) :]
        outputs = {number for number, name in enumerate(self.classes) if name is not None}
        rows = {*self.held_out}
        checks = {
            "its classes are not those of the learner": self.classes[: len(known)] == known,
            "its new classes are not new": len(new) == len({*new} - {*known}),
            "its labels are not of its classes": self.labels and outputs.issuperset(self.labels),
            "its held-out samples do not fit": len(rows) == len(self.held_out) == len(self.keys)
            and max(rows, default=0) < len(self.labels),
            "its samples have another format than those of the learner": manifest.data
            in (None, self.data),
        }
        return next((problem for problem, fine in checks.items() if not fine), None)


@dataclass(frozen=True, eq=False)
class Staged:
    """The samples of a visit, on disk."""

    note: VisitNote
    inputs: MappedRows
    """[N, *shape] as they are kept: features, or inputs."""
    labels: torch.Tensor
    """int64 [N]: outputs."""


class VisitFolder:
    """The folder of a visit that has started."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self) -> VisitNote | None:
        """Return the note of an unfinished visit, or None. Raises LearnerError if it is damaged."""
        self._refuse_links()
        path = self.path / _NOTE
        try:
            data = read_limited(path, _LARGEST_NOTE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise damaged(path, f"it cannot be read, {error.strerror}", _LEARN_AGAIN) from error
        return unseal(path, data, VISIT, VisitNote, _LEARN_AGAIN)

    def stage(
        self,
        source: SampleReader,
        data: DataNote,
        features: Features | None,
        make_note: Callable[["ReadSamples"], VisitNote],
        seed: int,
        on_progress: OnProgress | None,
    ) -> Staged:
        """Read all samples and write them to the folder. Raises LearnerError.

        If this is interrupted, computed features stay, and the next call uses them.
        """
        self.discard(keep_features=features is not None)
        make_folder(self.path, private=True)
        cache = None
        if features is not None:
            cache = _FeatureCache(features, self.path / _PARTS, on_progress)
        found = ReadSamples(source, data.inputs, seed)
        try:
            groups = (
                np.stack(group) if cache is None else cache.encode(group, source.count)
                for group in found.groups()
            )
            first = next(groups)  # if unreadable samples are skipped, the count is final from here
            path, shape = self.path / _INPUTS, (source.count, *data.kept.shape)
            pieces = npy_pieces(shape, data.kept.dtype, chain([first], groups))
            sha256, _ = write_hashed(path, pieces, private=True)
            found.rows = MappedRows(path)
            note = make_note(found).model_copy(update={"rows_sha256": sha256})
            write_atomically(self.path / _NOTE, seal(VISIT, note), private=True)
            remove_tree(self.path / _PARTS)
        except BaseException:
            with suppress(OSError):  # the next call removes the rest
                self.discard(keep_features=features is not None)
            raise
        return self._staged(note)

    def resume(self, note: VisitNote, manifest: Manifest) -> Staged:
        """Continue a visit. Raises LearnerError if its files are damaged."""
        if problem := note.problem(manifest):
            raise damaged(self.path / _NOTE, problem, _LEARN_AGAIN)
        return self._staged(note)

    def _staged(self, note: VisitNote) -> Staged:
        count, kept = len(note.labels), note.data.kept
        inputs = mapped(self.path / _INPUTS, note.rows_sha256, count, kept, _LEARN_AGAIN)
        return Staged(note, inputs, torch.tensor(note.labels, dtype=torch.int64))

    def checkpoints(self, attempt: int) -> Path:
        """Return the folder for the checkpoints of an attempt, counted from 0."""
        return self.path / (f"checkpoints-{attempt}" if attempt else "checkpoints")

    def discard(self, *, keep_features: bool = False) -> None:
        """Remove the visit. Its note goes first, so that half of it counts as nothing.

        Raises DurabilityError if a file cannot be removed.
        """
        if not self.path.is_symlink():  # only the link itself is removed below
            remove_tree(self.path / _NOTE)
            parts = self.path / _PARTS
            if keep_features and parts.is_dir() and not parts.is_symlink():
                for path in self.path.iterdir():
                    if path != parts:
                        remove_tree(path)
                return
        remove_tree(self.path)

    def reject(self) -> None:
        """Mark the visit as rejected: it is kept only to be forced."""
        write_atomically(self.path / _REJECTED, b"", private=True)

    def is_rejected(self) -> bool:
        """Whether the visit was rejected."""
        return (self.path / _REJECTED).is_file()

    def is_stale(self, generation: int) -> bool:
        """Whether the folder is useless: incomplete, or started with another generation."""
        if not os.path.lexists(self.path):
            return False
        try:
            note = self.note()
        except LearnerError:  # the next visit reports it, and `forget` removes it
            return False
        if note is None:
            return not (self.path / _PARTS).is_dir()  # of features that the next call can use
        return note.generation != generation

    def _refuse_links(self) -> None:
        found = [self.path] if self.path.is_symlink() else []
        for root, folders, files in os.walk(self.path):
            paths = (Path(root, name) for name in (*folders, *files))
            found += [path for path in paths if path.is_symlink()]
        if found:
            raise LearnerError(
                f"{found[0]} is a symbolic link, which a learner does not follow. Remove the link, "
                f"then try again."
            )


class ReadSamples:
    """Samples while they are read: their fingerprint and keys."""

    rows: MappedRows
    """What is kept of them, once all have been read."""

    def __init__(self, source: SampleReader, form: InputFormat, seed: int) -> None:
        self._source, self._form, self._seed = source, form, seed
        self._digest = hashlib.sha256()
        self.keys: list[int] = []

    def groups(self) -> Iterator[list[Any]]:
        """Yield all samples in groups."""
        samples = self._source.samples(self._form)
        while group := list(islice(samples, _ROWS_AT_ONCE)):
            for sample in group:
                self._digest.update(sample_bytes(sample))
                self.keys.append(sample_key(sample, self._seed))
            yield group

    @property
    def names(self) -> list[str]:
        """The class of each sample."""
        assert self._source.names is not None
        return self._source.names

    def fingerprint(self) -> str:
        """Return the SHA-256 of the samples that have been read and of their classes."""
        text = json.dumps([self._form.model_dump(), self.names, self._digest.hexdigest()])
        return hashlib.sha256(text.encode()).hexdigest()


def fingerprint_of(source: SampleReader, form: InputFormat) -> str:
    """Read all samples; return the SHA-256 of them and of their classes."""
    found = ReadSamples(source, form, 0)
    for _ in found.groups():
        pass
    return found.fingerprint()


def sample_key(sample: Any, seed: int) -> int:
    """Return a number that depends on the bytes of a sample and on the seed."""
    digest = hashlib.sha256(seed.to_bytes(8, "little") + sample_bytes(sample)).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def choose_held_out(labels: Sequence[int], keys: Sequence[int]) -> list[int]:
    """Choose the samples that are never learnt from: a tenth of each class, at most 100.

    They have the smallest keys, so the choice depends only on the class's own samples and the
    seed. One of two samples of a class is held out, and none of a single one.
    """
    by_class: dict[int, list[int]] = {}
    for row in sorted(range(len(labels)), key=lambda row: (keys[row], row)):
        by_class.setdefault(labels[row], []).append(row)
    chosen: list[int] = []
    for rows in by_class.values():
        share = max(round(_HELD_OUT_SHARE * len(rows)), 1)
        chosen += rows[: min(share, len(rows) - 1, _MOST_HELD_OUT)]
    return sorted(chosen)


class _FeatureCache:
    """Computes features group by group, and stores them in files until all are computed."""

    def __init__(self, features: Features, folder: Path, on_progress: OnProgress | None) -> None:
        self._features, self._folder, self._on_progress = features, folder, on_progress
        self._done, self._reused = 0, False

    def encode(self, group: Sequence[Any], count: int) -> npt.NDArray[np.float32]:
        """Return the features [n, D] of some of `count` samples."""
        path = self._path(group)
        found = self._read(path, (len(group), self._features.encoder.features))
        if found is not None:
            self._reused = True
            self._advance(len(group), count)
            return found
        began = time.monotonic()
        computed = self._features.encode(group, lambda done: self._advance(done, count))
        rows: npt.NDArray[np.float32] = computed.numpy()
        if time.monotonic() - began >= _KEEP_SECONDS or self._folder.is_dir():
            make_folder(self._folder, private=True)
            data = rows.tobytes()
            write_atomically(path, [hashlib.sha256(data).digest(), data], private=True)
        return rows

    def _advance(self, done: int, count: int) -> None:
        self._done += done
        if self._on_progress is not None:
            self._on_progress(Progress(self._done, count, 0, self._reused, "encoding"))

    def _path(self, group: Sequence[Any]) -> Path:
        digest = hashlib.sha256(self._features.encoder.fingerprint.encode())
        digest.update(str(getattr(group[0], "shape", "")).encode())
        for sample in group:
            digest.update(sample_bytes(sample))
        return self._folder / digest.hexdigest()

    @staticmethod
    def _read(path: Path, shape: tuple[int, int]) -> npt.NDArray[np.float32] | None:
        """Return what an earlier call wrote, if the file is whole."""
        try:
            with open_regular(path) as stream:
                digest, data = stream.read(32), stream.read(4 * shape[0] * shape[1] + 1)
        except OSError:
            return None
        if hashlib.sha256(data).digest() != digest or len(data) != 4 * shape[0] * shape[1]:
            return None
        return np.frombuffer(data, dtype=np.float32).reshape(shape)
