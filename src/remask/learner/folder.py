"""The folder of a learner: its files are read whole and checked, new ones are written beside them.

The state has the tensors of the net or head, and the numbers of the samples that are in the memory
or held out. The samples themselves are rows of one file.
"""

import hashlib
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from remask.files import (
    DurabilityError,
    Lock,
    LockHeldError,
    is_temporary,
    make_folder,
    open_regular,
    remove_tree,
    write_atomically,
)
from remask.learner.manifest import FILE_NAME, MANIFEST, FileNote, Manifest, read_manifest
from remask.learner.settings import RESTORE, LearnerError, damaged
from remask.learner.staging import VISIT, VisitFolder, npy_pieces
from remask.memory import EMPTY, JoinedRows, MappedRows, StoredRows

HELD_SOURCES, HELD_LABELS, HELD_KEYS = "held_out/sources", "held_out/labels", "held_out/keys"
MEMORY_SOURCES, MEMORY_LABELS, MEMORY_LOGITS = "memory/sources", "memory/labels", "memory/logits"
HEAD_WEIGHT, HEAD_BIAS = "head/weight", "head/bias"
COUNTS = "stream/counts"
_OURS = re.compile(FILE_NAME)
_LOCK = "learner.lock"
_ROWS_AT_ONCE = 64  # more would leave the processor's cache
Tensors = dict[str, Tensor]


class LearnerFolder:
    """The files of a learner, and its manifest when it was last read or written.

    Reading needs no lock. Changes happen within `writing()`.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.visit = VisitFolder(path / VISIT)

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
            for name in others:
                if not _OURS.fullmatch(name):
                    raise LearnerError(
                        f"{path} is not empty: it has {name}. Choose a new folder for the learner."
                    )
            folder = cls(path, manifest)
            note = folder.write_tensors("given", given) if given else None
            folder.commit(manifest.model_copy(update={"given": note}))
        return folder

    @classmethod
    def open(cls, path: Path) -> "LearnerFolder":
        """Open a learner. Raises LearnerError.

        If a change was interrupted between its commit and its clean-up, the clean-up is finished
        here, or a warning names the files if this process may not remove them.
        """
        folder = cls(path, read_manifest(path))
        if folder._leftovers():
            try:
                with folder.writing(seconds=0):
                    pass
            except LockHeldError:  # its holder removes them
                pass
            except DurabilityError:
                folder._warn(folder._leftovers())
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
        manifest = manifest.model_copy(update={"generation": self.manifest.generation + 1})
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
            if is_temporary(name) or (_OURS.fullmatch(name) and name not in named)
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
        return self._write(kind, f"{suffix}.safetensors", data, private=private)

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
            groups = (rows.read(part.numpy()) for part in used.split(_ROWS_AT_ONCE))
            dtype = str(rows.dtype).removeprefix("torch.")
            pieces = npy_pieces((len(used), *rows.shape[1:]), dtype, groups)
            file = self._write("samples", ".npy", pieces, private=True)
            samples = file.model_copy(update={"rows": len(used)})
        state = self.write_tensors("state", {**tensors, **changed}, private=private)
        return {"state": state, "samples": samples}

    def _write(self, kind: str, ending: str, pieces: Iterable[bytes], *, private: bool) -> FileNote:
        """Write a file, which only its owner can read if it is private."""
        name, digest = f"{kind}-{self.manifest.generation + 1:06d}{ending}", hashlib.sha256()

        def hashed() -> Iterator[bytes]:
            for piece in pieces:
                digest.update(piece)
                yield piece

        write_atomically(self.path / name, hashed(), private=private)
        return FileNote(name=name, sha256=digest.hexdigest())

    def read_state(self) -> Tensors:
        """Return the tensors of the state. Raises LearnerError."""
        note = self.manifest.state
        if note is None:
            raise LearnerError(f"{self.path} has not learnt anything yet")
        tensors = self.read_tensors(note)
        try:
            _check_numbers(self.manifest, tensors)
        except ValueError as error:
            raise damaged(self.path / note.name, str(error)) from None
        return tensors

    def read_tensors(self, note: FileNote) -> Tensors:
        """Read a safetensors file of the manifest. Raises LearnerError if it is damaged."""
        self._verify(note)
        try:
            return safetensors.torch.load((self.path / note.name).read_bytes())
        except Exception as error:  # the parser's own, and those of torch for odd values
            raise damaged(self.path / note.name, "it is not a safetensors file") from error

    def samples(self) -> StoredRows:
        """Return the samples that are kept; there may be none. Raises LearnerError."""
        data, note = self.manifest.data, self.manifest.samples
        assert data is not None
        if note is None:
            return JoinedRows([torch.zeros(0, *data.kept.shape, dtype=data.kept.tensor_type)])
        self._verify(note)
        try:
            rows = MappedRows(self.path / note.name)
        except Exception as error:  # numpy raises anything while it parses the header
            raise damaged(self.path / note.name, "it is not an array of samples") from error
        if (rows.shape, rows.dtype) != ((note.rows, *data.kept.shape), data.kept.tensor_type):
            raise damaged(self.path / note.name, f"it has {rows.dtype} {list(rows.shape)}")
        return rows

    def _verify(self, note: FileNote) -> None:
        """Raise LearnerError if a file is not the one that was written."""
        path = self.path / note.name
        try:
            with open_regular(path) as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise LearnerError(f"{path} cannot be read: {error.strerror}. {RESTORE}") from error
        if digest != note.sha256:
            raise damaged(path, "its checksum is wrong")


def _check_numbers(manifest: Manifest, tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError if samples or classes are out of range, since they are used as indices."""
    rows = (manifest.samples.rows or 0) if manifest.samples else 0
    last = len(manifest.classes) - 1
    ranges = {
        HELD_SOURCES: (0, rows - 1),
        HELD_LABELS: (0, last),
        MEMORY_SOURCES: (0, max(rows - 1, 0)),
        MEMORY_LABELS: (EMPTY, last),
        "stream/kept_labels": (EMPTY, last),
    }
    for name, (low, high) in ranges.items():
        tensor = tensors.get(name)
        if tensor is None or not tensor.numel():
            continue
        if not low <= int(tensor.min()) <= int(tensor.max()) <= high:
            raise ValueError(f"{name} has values outside of {low} to {high}")


def memory_of(tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the sources [n] and labels [n] of the samples in the memory of a state."""
    none = torch.zeros(0, dtype=torch.int64)
    labels = tensors.get(MEMORY_LABELS, none).cpu()
    filled = labels != EMPTY
    return tensors.get(MEMORY_SOURCES, none).cpu()[filled], labels[filled]
