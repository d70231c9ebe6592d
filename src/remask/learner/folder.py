"""The folder of a learner: its files are read whole and checked, new ones are written beside them.

The state has the tensors of the net or head, and the numbers of the samples that are in the memory
or held out. The samples themselves are rows of one file. `visit/` has the samples and checkpoints
of a visit until it is committed or discarded.
"""

import hashlib
import io
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from pydantic import Field
from torch import Tensor

from remask.engine.checkpoints import CheckpointFolder
from remask.files import (
    DurabilityError,
    Lock,
    LockHeldError,
    is_temporary,
    make_folder,
    open_regular,
    read_limited,
    remove_tree,
    write_atomically,
)
from remask.learner.manifest import (
    FILE_NAME,
    MANIFEST,
    FileNote,
    Manifest,
    read_manifest,
    seal,
    unseal,
)
from remask.learner.results import Record, StoredName
from remask.learner.settings import RESTORE, LearnerError, damaged
from remask.memory import EMPTY, JoinedRows, MappedRows, StoredRows

HELD_SOURCES, HELD_LABELS, HELD_KEYS = "held_out/sources", "held_out/labels", "held_out/keys"
MEMORY_SOURCES, MEMORY_LABELS, MEMORY_LOGITS = "memory/sources", "memory/labels", "memory/logits"
COUNTS = "stream/counts"
ROWS_AT_ONCE = 64
"""Samples per pass: more would leave the processor's cache."""
_LEARN_AGAIN = "Learn the visit again from its beginning with discard=True (--discard)."
_LARGEST_NOTE = 1 << 20
_LOCK = "learner.lock"
Tensors = dict[str, Tensor]


class VisitNote(Record):
    """A visit that has started."""

    name: StoredName
    fingerprint: str
    generation: int = Field(description="of the learner when the visit started")
    began: str
    rejected: bool = Field(False, description="whether it is kept only to be forced")


class VisitFolder:
    """The samples, features and checkpoints of a visit, which only their owner can read.

    `visit.json` is written when all samples have been read. A folder without it is a leftover,
    unless it has features, which the next call can use.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.features, self._note = path, path / "parts", path / "visit.json"

    def note(self) -> VisitNote | None:
        """Return the note of an unfinished visit, or None. Raises LearnerError if it is damaged."""
        try:
            data = read_limited(self._note, _LARGEST_NOTE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            reason = f"it cannot be read, {error.strerror}"
            raise damaged(self._note, reason, _LEARN_AGAIN) from error
        return unseal(self._note, data, VisitNote, _LEARN_AGAIN)

    def write_note(self, note: VisitNote) -> None:
        """Write the note of a visit, after which the visit has started."""
        write_atomically(self._note, seal(note), private=True)

    def checkpoints(self, note: VisitNote) -> CheckpointFolder:
        """Return the checkpoints of a visit."""
        path = self.path / f"checkpoints-{note.fingerprint[:16]}"
        return CheckpointFolder(path, note.fingerprint)

    def discard(self, *, keep_features: bool = False) -> None:
        """Remove the visit. Raises DurabilityError if a file cannot be removed."""
        if keep_features and self.features.is_dir() and not self.path.is_symlink():
            for path in self.path.iterdir():
                if path != self.features:
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
        return not self.features.is_dir() if note is None else note.generation != generation


class LearnerFolder:
    """The files of a learner, and its manifest when it was last read or written.

    Reading needs no lock. Changes happen within `writing()`.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.visit = VisitFolder(path / "visit")

    @classmethod
    def create(
        cls, path: Path, manifest: Manifest, given: Tensors, lock_seconds: float
    ) -> "LearnerFolder":
        """Create a learner in a folder that is empty or does not exist. Raises LearnerError."""
        make_folder(path)
        with Lock(path / _LOCK, timeout=lock_seconds):
            others = sorted(p.name for p in path.iterdir() if not p.name.startswith((_LOCK, ".")))
            if MANIFEST in others:
                raise LearnerError(f"{path} already has a learner: open it with Learner.open")
            if foreign := [name for name in others if not re.fullmatch(FILE_NAME, name)]:
                found = f"{path} is not empty: it has {foreign[0]}"
                raise LearnerError(f"{found}. Choose a new folder for the learner.")
            folder = cls(path, manifest)
            note = folder.write_tensors("given", given) if given else None
            folder.commit(manifest.changed(given=note))
        return folder

    @classmethod
    def open(cls, path: Path) -> "LearnerFolder":
        """Open a learner. Raises LearnerError.

        If a change was interrupted between its commit and its clean-up, the clean-up is finished
        here, or a warning names the files if this process may not remove them.
        """
        folder = cls(path, read_manifest(path))
        if leftovers := folder._leftovers():
            try:
                with suppress(LockHeldError), folder.writing(seconds=0):  # else its holder does it
                    pass
            except DurabilityError:
                folder._warn(leftovers)
        return folder

    @contextmanager
    def writing(self, seconds: float) -> Iterator[None]:
        """Hold the lock, with the newest manifest, and without leftovers of a dead process.

        Waits for the lock for at most `seconds`, then raises LockHeldError.
        """
        with Lock(self.path / _LOCK, timeout=seconds):
            self.refresh()
            self._warn(self.remove_leftovers())
            yield

    def refresh(self) -> None:
        """Read the manifest again. Raises LearnerError if it is another learner's."""
        newest, own = read_manifest(self.path), self.manifest
        same = (newest.settings, newest.given) == (own.settings, own.given)
        if not same or newest.generation < own.generation:
            raise LearnerError(
                f"{self.path} now contains another learner: it was replaced. Open it again."
            )
        self.manifest = newest

    def commit(self, manifest: Manifest) -> list[Path]:
        """Make a manifest the valid one, and remove files that it does not name.

        Returns the files that could not be removed.
        """
        manifest = manifest.changed(generation=self.manifest.generation + 1)
        manifest.write(self.path)
        self.manifest = manifest
        return self.remove_leftovers()

    def remove_leftovers(self) -> list[Path]:
        """Remove files of dropped generations and of dead processes; return those that stay.

        The lock must be held: then no living process writes, so every temporary file can go.
        """
        for path in self._leftovers():
            with suppress(DurabilityError):
                remove_tree(path)
        return self._leftovers()

    def _leftovers(self) -> list[Path]:
        named = {note.name for note in self.manifest.files}
        names: list[str] = []
        with suppress(OSError):  # predicting does not need the permission to list the folder
            names = os.listdir(self.path)  # noqa: PTH208 - unlike iterdir it is complete
        found = [
            self.path / name
            for name in names
            if is_temporary(name) or (re.fullmatch(FILE_NAME, name) and name not in named)
        ]
        return [*found, *[self.visit.path] * self.visit.is_stale(self.manifest.generation)]

    def _warn(self, left: list[Path]) -> None:
        for path in left[:1]:
            warnings.warn(
                f"{path} is left over from an interrupted change of the learner, and may hold "
                f"samples of a class that was forgotten. It cannot be removed: fix the "
                f"permissions, then open the learner again.",
                stacklevel=4,
            )

    def write_tensors(
        self, kind: str, tensors: Mapping[str, Tensor], *, private: bool = False, suffix: str = ""
    ) -> FileNote:
        """Write KIND-NUMBER[SUFFIX].safetensors, which the next manifest may name."""
        plain = {  # copies, since safetensors takes neither views of one tensor nor other layouts
            name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, tensor in tensors.items()
        }
        data = [safetensors.torch.save(plain)]
        return self._write(f"{kind}-", f"{suffix}.safetensors", data, private=private)

    def save(
        self, tensors: Tensors, rows: StoredRows, *, private: bool = False
    ) -> dict[str, FileNote | None]:
        """Write a state, and the samples that it uses of `rows`; return both for a manifest."""
        memory, _ = memory_of(tensors)
        sources = torch.cat([tensors[HELD_SOURCES], memory])
        used, numbers = torch.unique(sources, return_inverse=True)
        held, replayed = numbers.split([len(tensors[HELD_SOURCES]), len(memory)])
        changed = {HELD_SOURCES: held}
        if MEMORY_SOURCES in tensors:
            filled = tensors[MEMORY_LABELS].cpu() != EMPTY
            changed[MEMORY_SOURCES] = torch.zeros(len(filled), dtype=torch.int64)
            changed[MEMORY_SOURCES][filled] = replayed
        samples = None
        if len(used):
            groups = (rows.read(part.numpy()) for part in used.split(ROWS_AT_ONCE))
            dtype = str(rows.dtype).removeprefix("torch.")
            pieces = npy_pieces((len(used), *rows.shape[1:]), dtype, groups)
            file = self._write("samples-", ".npy", pieces, private=True)
            samples = file.changed(rows=len(used))
        state = self.write_tensors("state", {**tensors, **changed}, private=private)
        return {"state": state, "samples": samples}

    def _write(self, start: str, end: str, pieces: Iterable[bytes], *, private: bool) -> FileNote:
        name, digest = f"{start}{self.manifest.generation + 1:06d}{end}", hashlib.sha256()

        def hashed() -> Iterator[bytes]:
            for piece in pieces:
                digest.update(piece)
                yield piece

        write_atomically(self.path / name, hashed(), private=private)
        return FileNote(name=name, sha256=digest.hexdigest())

    def read_state(self) -> Tensors:
        """Return the tensors of the state, after the first visit. Raises LearnerError."""
        assert self.manifest.state is not None
        return self.read_tensors(self.manifest.state)

    def read_tensors(self, note: FileNote) -> Tensors:
        """Read a safetensors file of the manifest. Raises LearnerError if it is damaged."""
        self._verify(note)
        try:
            return safetensors.torch.load((self.path / note.name).read_bytes())
        except Exception as error:  # the parser's own, and those of torch for odd values
            raise damaged(self.path / note.name, "it is not a safetensors file") from error

    def samples(self) -> StoredRows:
        """Return the samples that are kept; there may be none. Raises LearnerError."""
        form, note = self.manifest.data_note.kept, self.manifest.samples
        if note is None:
            return JoinedRows([torch.zeros(0, *form.shape, dtype=form.tensor_type)])
        self._verify(note)
        try:
            rows = MappedRows(self.path / note.name)
        except Exception as error:  # numpy raises anything while it parses the header
            raise damaged(self.path / note.name, "it is not an array of samples") from error
        if (rows.shape, rows.dtype) != ((note.rows, *form.shape), form.tensor_type):
            raise damaged(self.path / note.name, f"it has {rows.dtype} {list(rows.shape)}")
        return rows

    def _verify(self, note: FileNote) -> None:
        path = self.path / note.name
        try:
            with open_regular(path) as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise LearnerError(f"{path} cannot be read: {error.strerror}. {RESTORE}") from error
        if digest != note.sha256:
            raise damaged(path, "its checksum is wrong")


def memory_of(tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the sources [n] and labels [n] of the samples in the memory of a state."""
    none = torch.zeros(0, dtype=torch.int64)
    labels = tensors.get(MEMORY_LABELS, none).cpu()
    filled = labels != EMPTY
    return tensors.get(MEMORY_SOURCES, none).cpu()[filled], labels[filled]


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
