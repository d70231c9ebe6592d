"""The folder of a learner: its files are read whole and checked, new ones are written beside them.

The state has the tensors of the net or head, and says which samples are in the memory and which
are held out. The samples themselves are in one file, as rows.
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
    read_limited,
    remove_tree,
)
from remask.learner.manifest import (
    FILE_NAME,
    MANIFEST,
    FileNote,
    Learnt,
    Manifest,
    SamplesNote,
    mapped,
    npy_pieces,
    read_manifest,
    write_hashed,
)
from remask.learner.settings import LearnerError, damaged, reading
from remask.learner.staging import VISIT, VisitFolder
from remask.memory import EMPTY, JoinedRows, StoredRows

HELD_SOURCES, HELD_LABELS, HELD_KEYS = "held_out/sources", "held_out/labels", "held_out/keys"
MEMORY_SOURCES, MEMORY_LABELS, MEMORY_LOGITS = "memory/sources", "memory/labels", "memory/logits"
HEAD_WEIGHT, HEAD_BIAS = "head/weight", "head/bias"
COUNTS = "stream/counts"
_STEPS, _OFFERED = "stream/steps", "memory/offered"
_KEPT_LABELS, _KEPT_INPUTS = "stream/kept_labels", "stream/kept_inputs"
_LARGEST = 1 << 53
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
            others = [p.name for p in path.iterdir() if not p.name.startswith((_LOCK, "."))]
            if MANIFEST in others:
                raise LearnerError(f"{path} already has a learner: open it with Learner.open")
            others = [name for name in others if not _OURS.fullmatch(name)]
            if others:
                raise LearnerError(
                    f"{path} is not empty: it has {sorted(others)[0]}. Choose a new folder for "
                    f"the learner."
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
                if path == self.visit.path:
                    self.visit.discard()
                else:
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

    def other_files(self) -> list[Path]:
        """Return every file below the folder that does not belong to the learner."""
        own = {MANIFEST, _LOCK, f"{_LOCK}.owner.json", *(note.name for note in self.manifest.files)}

        def refuse(error: OSError) -> None:
            raise LearnerError(f"{error.filename} cannot be listed: {error.strerror}")

        found = [
            Path(root, name)
            for root, folders, files in os.walk(self.path, onerror=refuse)
            for name in (*files, *(name for name in folders if Path(root, name).is_symlink()))
        ]
        return [path for path in found if path.parent != self.path or path.name not in own]

    def write_tensors(
        self, kind: str, tensors: Mapping[str, Tensor], *, private: bool = False
    ) -> FileNote:
        """Write a safetensors file that the next manifest may name, KIND-NUMBER.safetensors.

        Only its owner can read a private one.
        """
        plain = {  # copies, since safetensors takes neither views of one tensor nor other layouts
            name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, tensor in tensors.items()
        }
        kind, _, output = kind.partition("-")
        ending = f"-{output}.safetensors" if output else ".safetensors"
        return self._write(kind + "-", ending, [safetensors.torch.save(plain)], private=private)

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
            file = self._write("samples-", ".npy", pieces, private=True)
            samples = SamplesNote(**file.model_dump(), rows=len(used))
        state = self.write_tensors("state", {**tensors, **changed}, private=private)
        return {"state": state, "samples": samples}

    def _write(
        self, prefix: str, ending: str, pieces: Iterable[bytes], *, private: bool
    ) -> FileNote:
        name = f"{prefix}{self.manifest.generation + 1:06d}{ending}"
        sha256, size = write_hashed(self.path / name, pieces, private=private)
        return FileNote(name=name, sha256=sha256, size=size)

    def read_state(self) -> Tensors:
        """Return the tensors of the state, checked against the manifest. Raises LearnerError."""
        note = self.manifest.state
        if note is None:
            raise LearnerError(f"{self.path} has not learnt anything yet")
        tensors = self.read_tensors(note)
        try:
            _check_state(self.manifest, tensors)
        except ValueError as error:
            raise damaged(self.path / note.name, str(error)) from None
        return tensors

    def read_tensors(self, note: FileNote) -> Tensors:
        """Read a safetensors file of the manifest. Raises LearnerError if it is damaged."""
        path = self.path / note.name
        with reading(path):
            data = read_limited(path, note.size)
        if hashlib.sha256(data).hexdigest() != note.sha256:
            raise damaged(path, "its checksum is wrong")
        try:
            return safetensors.torch.load(data)
        except Exception as error:  # the parser's own, and those of torch for odd values
            raise damaged(path, "it is not a safetensors file") from error

    def samples(self) -> StoredRows:
        """Return the samples that are kept; there may be none. Raises LearnerError."""
        data, note = self.manifest.data, self.manifest.samples
        assert data is not None
        if note is None:
            return JoinedRows([torch.zeros(0, *data.kept.shape, dtype=data.kept.tensor_type)])
        return mapped(self.path / note.name, note.sha256, note.rows, data.kept)


def _check_state(learnt: Learnt, tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless a state fits the manifest: wrong numbers would index other rows."""
    rows = 0 if learnt.samples is None else learnt.samples.rows
    known = torch.tensor([name is not None for name in learnt.classes])
    last = len(known) - 1
    limits = {  # of int64 tensors: axes, lowest, highest
        HELD_SOURCES: (1, 0, rows - 1),
        HELD_LABELS: (1, 0, last),
        HELD_KEYS: (1, 0, 2**63 - 1),
        COUNTS: (2, 0, _LARGEST),
        _STEPS: (1, 0, _LARGEST),
        MEMORY_LABELS: (1, EMPTY, last if rows else EMPTY),
        MEMORY_SOURCES: (1, 0, max(rows - 1, 0)),
        _OFFERED: (2, 0, _LARGEST),
        _KEPT_LABELS: (2, EMPTY, last),
    }
    groups: list[tuple[str, ...]] = [(HELD_SOURCES, HELD_LABELS, HELD_KEYS)]
    if learnt.head == "net" or COUNTS in tensors:
        groups.append((COUNTS, _STEPS))
    if {MEMORY_LABELS, MEMORY_SOURCES} & tensors.keys():
        groups.append((MEMORY_LABELS, MEMORY_SOURCES))
    for name in {*(name for group in groups for name in group), *(limits.keys() & tensors.keys())}:
        _check_integers(name, tensors.get(name), *limits[name])
    if any(len({len(tensors[name]) for name in group}) > 1 for group in groups):
        raise ValueError("tensors of the same samples have different lengths")
    if COUNTS in tensors and tensors[COUNTS].shape != (learnt.tasks, learnt.outputs):
        raise ValueError(f"{COUNTS} is {list(tensors[COUNTS].shape)}")
    labels = torch.cat([tensors[HELD_LABELS], memory_of(tensors)[1]])
    if not bool(known[labels].all()):
        raise ValueError("it has samples of a class that was forgotten")
    kept, most = tensors.get(_KEPT_LABELS), _LARGEST
    if kept is not None:
        inputs, most = tensors.get(_KEPT_INPUTS), kept.shape[1]
        if inputs is None or inputs.shape[:2] != kept.shape:
            raise ValueError(f"{_KEPT_INPUTS} does not fit {_KEPT_LABELS}")
    for name in (name for name in tensors if name.startswith("method/")):
        if not tensors[name].ndim or len(tensors[name]) != 1:
            raise ValueError(f"{name} is {list(tensors[name].shape)}, not of one net")
        if tensors[name].dtype == torch.int64:  # of a method's own samples, or a count
            _check_integers(name, tensors[name], tensors[name].ndim, EMPTY, most)
    if learnt.head != "net":
        if learnt.data is None or learnt.data.features is None:
            raise ValueError(f"the head is {learnt.head}, which needs features")
        size = learnt.data.kept.shape[0]
        shapes = {HEAD_WEIGHT: (learnt.outputs, size), HEAD_BIAS: (learnt.outputs,)}
        for name, shape in shapes.items():
            head = tensors.get(name)
            if head is None or head.dtype != torch.float32 or tuple(head.shape) != shape:
                raise ValueError(f"{name} is missing, or not float32 {list(shape)}")


def _check_integers(name: str, tensor: Tensor | None, axes: int, low: int, high: int) -> None:
    if tensor is None or tensor.dtype != torch.int64 or tensor.ndim != axes:
        raise ValueError(f"{name} is missing, or not int64 with {axes} axes")
    if tensor.numel() and not (low <= int(tensor.min()) and int(tensor.max()) <= high):
        raise ValueError(f"{name} has values outside of {low} to {high}")


def memory_of(tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the sources [n] and labels [n] of the samples in the memory of a state."""
    none = torch.zeros(0, dtype=torch.int64)
    labels = tensors.get(MEMORY_LABELS, none).cpu()
    filled = labels != EMPTY
    return tensors.get(MEMORY_SOURCES, none).cpu()[filled], labels[filled]
