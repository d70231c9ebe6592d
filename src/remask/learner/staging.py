"""The folder `visit/`: the samples and checkpoints of a visit until it is committed or discarded.

To continue a visit, its samples are read again. `visit.json` is written when all have been read, so
a folder without it is a leftover. Only the owner of the files can read them.
"""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field
from torch import Tensor

from remask.data.readers import SampleReader, sample_bytes
from remask.engine.checkpoints import CheckpointFolder
from remask.files import make_folder, read_limited, remove_tree, write_atomically
from remask.learner.manifest import DataNote, seal, unseal
from remask.learner.model import Features
from remask.learner.results import Progress, Record, StoredName
from remask.learner.settings import LearnerError, damaged
from remask.memory import MappedRows

VISIT = "visit"
LEARN_AGAIN = "Learn the visit again from its beginning with discard=True (--discard)."
_LARGEST_NOTE = 1 << 20
_ROWS_AT_ONCE = 256
_HELD_OUT_SHARE = 0.1
_MOST_HELD_OUT = 100  # samples of a class in one visit
OnProgress = Callable[[Progress], None]


class VisitNote(Record):
    """A visit that has started."""

    name: StoredName
    fingerprint: str
    generation: int = Field(description="of the learner when the visit started")
    began: str
    rejected: bool = Field(False, description="whether it is kept only to be forced")


@dataclass(frozen=True, eq=False)
class Staged:
    """The samples of a visit, on disk."""

    note: VisitNote
    data: DataNote
    classes: tuple[str | None, ...]
    """Of the learner, followed by the new ones."""
    inputs: MappedRows
    """[N, *shape] as they are kept: features, or inputs."""
    labels: Tensor
    """int64 [N]: outputs."""
    held_out: Tensor
    """int64 [n]: rows that are never learnt from."""
    keys: Tensor
    """int64 [n]: decide which of them stay held out."""


class VisitFolder:
    """The folder of a visit that has started."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._note, self._parts = path / "visit.json", path / "parts"

    def note(self) -> VisitNote | None:
        """Return the note of an unfinished visit, or None. Raises LearnerError if it is damaged."""
        try:
            data = read_limited(self._note, _LARGEST_NOTE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            reason = f"it cannot be read, {error.strerror}"
            raise damaged(self._note, reason, LEARN_AGAIN) from error
        return unseal(self._note, data, VisitNote, LEARN_AGAIN)

    def begin(self, name: str, fingerprint: str, generation: int) -> VisitNote:
        """Write the note of a visit, unless it is the one that has started already."""
        begun = self.note()
        if begun is None or (begun.name, begun.fingerprint) != (name, fingerprint):
            began = datetime.now(UTC).isoformat(timespec="seconds")
            begun = VisitNote(
                name=name, fingerprint=fingerprint, generation=generation, began=began
            )
            self._write(begun)
        return begun

    def reject(self, note: VisitNote) -> None:
        """Mark the visit as rejected."""
        self._write(note.model_copy(update={"rejected": True}))

    def _write(self, note: VisitNote) -> None:
        write_atomically(self._note, seal(note), private=True)

    def write_inputs(self, samples: "ReadSamples") -> MappedRows:
        """Read all samples, and write what is kept of them. Raises LearnerError and DataError."""
        make_folder(self.path, private=True)
        groups = samples.rows(self._parts)
        first = next(groups)  # if unreadable samples are skipped, the count is final from here
        shape, path = (samples.source.count, *first.shape[1:]), self.path / "inputs.npy"
        pieces = npy_pieces(shape, str(first.dtype), chain([first], groups))
        write_atomically(path, pieces, private=True)
        return MappedRows(path)

    def checkpoints(self, note: VisitNote) -> CheckpointFolder:
        """Return the checkpoints of a visit."""
        path = self.path / f"checkpoints-{note.fingerprint[:16]}"
        return CheckpointFolder(path, note.fingerprint)

    def discard(self, *, keep_features: bool = False) -> None:
        """Remove the visit. Raises DurabilityError if a file cannot be removed."""
        if keep_features and self._parts.is_dir() and not self.path.is_symlink():
            for path in self.path.iterdir():
                if path != self._parts:
                    remove_tree(path)
        else:
            remove_tree(self.path)

    def is_stale(self, generation: int) -> bool:
        """Whether the folder is useless: incomplete, or started with another generation."""
        if not os.path.lexists(self.path):
            return False
        try:
            note = self.note()
        except LearnerError:  # the next visit reports it, and `forget` removes it
            return False
        if note is None:
            return not self._parts.is_dir()  # of features that the next call can use
        return note.generation != generation


class ReadSamples:
    """Samples while they are read: their fingerprint, their keys, and what is kept of them."""

    def __init__(
        self,
        source: SampleReader,
        data: DataNote,
        seed: int = 0,
        features: Features | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.source = source
        self._data, self._seed, self._features = data, seed, features
        self._on_progress, self._done, self._reused = on_progress, 0, False
        self._digest = hashlib.sha256()
        self.keys: list[int] = []

    def groups(self) -> Iterator[list[Any]]:
        """Yield all samples in groups."""
        samples = self.source.samples(self._data.inputs)
        while group := list(islice(samples, _ROWS_AT_ONCE)):
            for sample in group:
                self._digest.update(sample_bytes(sample))
                self.keys.append(sample_key(sample, self._seed))
            yield group

    def rows(self, parts: Path) -> Iterator[npt.NDArray[Any]]:
        """Yield all samples as they are kept; features are also stored in the folder `parts`."""
        for group in self.groups():
            yield np.stack(group) if self._features is None else self._encoded(group, parts)

    @property
    def names(self) -> list[str]:
        """The class of each sample."""
        assert self.source.names is not None
        return self.source.names

    def fingerprint(self) -> str:
        """Return the SHA-256 of the samples that have been read and of their classes."""
        encoder = self._data.encoder and self._data.encoder.fingerprint
        form = self._data.inputs.model_dump()
        text = json.dumps([form, encoder, self._data.net, self.names, self._digest.hexdigest()])
        return hashlib.sha256(text.encode()).hexdigest()

    def _encoded(self, group: Sequence[Any], parts: Path) -> npt.NDArray[np.float32]:
        """Return the features [n, D] of a group: stored by an earlier call, or computed."""
        assert self._features is not None
        encoder = self._features.encoder
        digest = hashlib.sha256(encoder.fingerprint.encode())
        for sample in group:
            digest.update(sample_bytes(sample))
        path, size = parts / digest.hexdigest(), 4 * len(group) * encoder.features
        if path.is_file() and path.stat().st_size == size:
            self._reused = True
            self._advance(len(group))
            return np.frombuffer(path.read_bytes(), np.float32).reshape(len(group), -1)
        rows: npt.NDArray[np.float32] = self._features.encode(group, self._advance).numpy()
        make_folder(parts, private=True)
        write_atomically(path, rows.tobytes(), private=True)
        return rows

    def _advance(self, done: int) -> None:
        self._done += done
        if self._on_progress is not None:
            count = self.source.count
            self._on_progress(Progress(self._done, count, 0, self._reused, "encoding"))


def fingerprint_of(source: SampleReader, data: DataNote) -> str:
    """Read all samples; return the SHA-256 of them and of their classes."""
    found = ReadSamples(source, data)
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


def npy_pieces(
    shape: tuple[int, ...], dtype: str, groups: Iterable[npt.NDArray[Any]]
) -> Iterator[bytes]:
    """Yield the bytes of an .npy file of an array [N, ...], given groups of its rows."""
    header, descr = io.BytesIO(), np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(
        header, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    yield header.getvalue()
    for group in groups:
        yield group.tobytes()
