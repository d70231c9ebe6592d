"""The folder of a learner: files are read whole and checked, new ones are written beside them."""

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

from remask.errors import RemaskError
from remask.files import (
    DurabilityError,
    Lock,
    LockHeldError,
    is_temporary,
    make_folder,
    read_limited,
    remove_tree,
)
from remask.learner.errors import LearnerError, damaged
from remask.learner.files import reading, write_hashed
from remask.learner.manifest import (
    FILE_NAME,
    MANIFEST,
    FileNote,
    Learnt,
    Manifest,
    read_manifest,
    write_manifest,
)
from remask.learner.visit_files import VISIT, VisitFolder
from remask.memory import EMPTY

HELD_SOURCES, HELD_LABELS, HELD_KEYS = "held_out/sources", "held_out/labels", "held_out/keys"
MEMORY_SOURCES, MEMORY_LABELS, MEMORY_LOGITS = "memory/sources", "memory/labels", "memory/logits"
HEAD_WEIGHT, HEAD_BIAS = "head/weight", "head/bias"
COUNTS = "stream/counts"
_STEPS, _OFFERED = "stream/steps", "memory/offered"
_KEPT_LABELS, _KEPT_INPUTS = "stream/kept_labels", "stream/kept_inputs"
_LARGEST = 1 << 53
MISFITS = (
    ValueError,
    RuntimeError,
    LookupError,
    TypeError,
    AssertionError,
    ArithmeticError,
    RemaskError,
)
"""Errors that are raised where tensors are put into a net or an engine that they do not fit."""
_OURS = re.compile(FILE_NAME)
_LOCK = "learner.lock"


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
        cls, path: Path, manifest: Manifest, given: Mapping[str, Tensor], lock_seconds: float
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
        write_manifest(self.path, manifest)
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
        if left:
            warnings.warn(
                f"{left[0]} is left over from an interrupted change of the learner, and may hold "
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
        self,
        kind: str,
        tensors: Mapping[str, Tensor],
        *,
        output: int | None = None,
        private: bool = False,
    ) -> FileNote:
        """Write a safetensors file that the next manifest may name; `output` is that of a class."""
        plain = {  # copies, since safetensors takes neither views of one tensor nor other layouts
            name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, tensor in tensors.items()
        }
        ending = ".safetensors" if output is None else f"-{output}.safetensors"
        return self.write(kind, ending, [safetensors.torch.save(plain)], private=private)

    def write(
        self, kind: str, ending: str, pieces: Iterable[bytes], *, private: bool = False
    ) -> FileNote:
        """Write a file that the next manifest may name. Only its owner can read a private one."""
        name = f"{kind}-{self.manifest.generation + 1:06d}{ending}"
        sha256, size = write_hashed(self.path / name, pieces, private=private)
        return FileNote(name=name, sha256=sha256, size=size)

    def read_state(self) -> dict[str, Tensor]:
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

    def read_tensors(self, note: FileNote) -> dict[str, Tensor]:
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


def _check_state(learnt: Learnt, tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless a state fits the manifest: wrong numbers would index other rows."""
    rows = sum(segment.rows for segment in learnt.segments)
    known = torch.tensor([name is not None for name in learnt.classes])
    last = len(known) - 1
    limits = {  # of int64 tensors: axes, lowest, highest
        HELD_SOURCES: (1, 0, rows - 1),
        HELD_LABELS: (1, 0, last),
        HELD_KEYS: (1, 0, 2**63 - 1),
        COUNTS: (2, 0, _LARGEST),
        _STEPS: (1, 0, _LARGEST),
        MEMORY_LABELS: (1, EMPTY, last),
        MEMORY_SOURCES: (1, 0, max(rows - 1, 0)),
        _OFFERED: (2, 0, _LARGEST),
        _KEPT_LABELS: (2, EMPTY, last),
    }
    groups: list[tuple[str, ...]] = [(HELD_SOURCES, HELD_LABELS, HELD_KEYS)]
    if learnt.head == "net" or COUNTS in tensors:
        groups.append((COUNTS, _STEPS))
    if {MEMORY_LABELS, MEMORY_SOURCES} & tensors.keys():
        groups.append((MEMORY_LABELS, MEMORY_SOURCES))
        limits[MEMORY_LABELS] = (1, EMPTY, last if rows else EMPTY)
    for name in {*(name for group in groups for name in group), *(limits.keys() & tensors.keys())}:
        _check_integers(name, tensors.get(name), *limits[name])
    if any(len({len(tensors[name]) for name in group}) > 1 for group in groups):
        raise ValueError("tensors of the same samples have different lengths")
    if COUNTS in tensors and tensors[COUNTS].shape != (learnt.tasks, learnt.outputs):
        raise ValueError(f"{COUNTS} is {list(tensors[COUNTS].shape)}")
    labels = [tensors[name].flatten() for name in (HELD_LABELS, MEMORY_LABELS) if name in tensors]
    labels = [own[own != EMPTY] for own in labels]
    if not bool(known[torch.cat(labels)].all()):
        raise ValueError("it has samples of a class that was forgotten")
    kept = tensors.get(_KEPT_LABELS)
    if kept is not None:
        inputs = tensors.get(_KEPT_INPUTS)
        if inputs is None or inputs.shape[:2] != kept.shape:
            raise ValueError(f"{_KEPT_INPUTS} does not fit {_KEPT_LABELS}")
    most = _LARGEST if kept is None else kept.shape[1]
    for name, tensor in tensors.items():
        if name.startswith("method/"):
            if not tensor.ndim or len(tensor) != 1:
                raise ValueError(f"{name} is {list(tensor.shape)}, not of one net")
            if tensor.dtype == torch.int64:  # of a method's own samples, or a count
                _check_integers(name, tensor, tensor.ndim, EMPTY, most)
    if learnt.head != "net":
        assert learnt.data is not None
        size = learnt.data.kept.shape[0]
        shapes = {HEAD_WEIGHT: (learnt.outputs, size), HEAD_BIAS: (learnt.outputs,)}
        for name, shape in shapes.items():
            head = tensors.get(name)
            if head is None or head.dtype != torch.float32 or tuple(head.shape) != shape:
                raise ValueError(f"{name} is missing, or not float32 {list(shape)}")
        if learnt.data.features is None:
            raise ValueError(f"the head is {learnt.head}, which needs features")


def _check_integers(name: str, tensor: Tensor | None, axes: int, low: int, high: int) -> None:
    if tensor is None or tensor.dtype != torch.int64 or tensor.ndim != axes:
        raise ValueError(f"{name} is missing, or not int64 with {axes} axes")
    if tensor.numel() and not (low <= int(tensor.min()) and int(tensor.max()) <= high):
        raise ValueError(f"{name} has values outside of {low} to {high}")
