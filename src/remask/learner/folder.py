"""The folder of a learner: whole files are read, and new ones are written beside them."""

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

from remask.durable import (
    DurabilityError,
    is_temporary,
    make_folder,
    open_regular,
    remove_tree,
    write_atomically,
)
from remask.learner import staging
from remask.learner.errors import LearnerError, damaged
from remask.learner.manifest import MANIFEST, FileNote, Manifest, read_manifest, write_manifest
from remask.learner.state import check_state
from remask.locks import Lock, LockHeldError

_OURS = re.compile(r"(state|given|samples|statistics)-[0-9]{6,12}\.(safetensors|npy)")
_LOCK = "learner.lock"
_LOCK_FILES = (_LOCK, f"{_LOCK}.owner.json")


class LearnerFolder:
    """The files of a learner, and its manifest when it was last read or written.

    Reading needs no lock. Whatever changes the learner happens within `writing()`.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def create(
        cls, path: Path, manifest: Manifest, given: Mapping[str, Tensor], lock_seconds: float
    ) -> "LearnerFolder":
        """Create a learner in a folder that is empty or not there. Raises LearnerError."""
        make_folder(path)
        with Lock(path / _LOCK, timeout=lock_seconds):
            others = [p.name for p in path.iterdir() if not p.name.startswith((_LOCK, "."))]
            if MANIFEST in others:
                raise LearnerError(f"{path} has a learner already: open it with Learner.open")
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
                f"{self.path} is not the learner that was opened: it was replaced meanwhile. Open "
                f"it again."
            )
        self.manifest = newest

    def commit(self, manifest: Manifest) -> list[Path]:
        """Make a manifest the valid one, and remove files that it does not name.

        Returns what could not be removed.
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
                if path.name == staging.VISIT:
                    staging.discard(path)
                else:
                    remove_tree(path)
        return self._leftovers()

    def _leftovers(self) -> list[Path]:
        named = {note.name for note in self.manifest.files}
        names: list[str] = []
        with suppress(OSError):  # who may not list the folder may still predict
            names = os.listdir(self.path)  # noqa: PTH208 - unlike iterdir it is complete
        found = [
            self.path / name
            for name in names
            if is_temporary(name) or (_OURS.fullmatch(name) and name not in named)
        ]
        visit = self.path / staging.VISIT
        if staging.is_stale(visit, self.manifest.generation):
            found.append(visit)
        return found

    def _warn(self, left: list[Path]) -> None:
        if left:
            warnings.warn(
                f"{left[0]} is left over from an interrupted change of the learner, and may hold "
                f"samples of a class that was forgotten. It cannot be removed: fix the "
                f"permissions, then open the learner again.",
                stacklevel=4,
            )

    def other_files(self) -> list[Path]:
        """Every file below the folder that is not the manifest and that it does not name."""
        own = {MANIFEST, *_LOCK_FILES, *(note.name for note in self.manifest.files)}

        def refuse(error: OSError) -> None:
            raise LearnerError(f"{error.filename} cannot be listed: {error.strerror}")

        found = [
            Path(root, name)
            for root, folders, files in os.walk(self.path, onerror=refuse)
            for name in (*files, *(name for name in folders if Path(root, name).is_symlink()))
        ]
        return [path for path in found if path.parent != self.path or path.name not in own]

    def new_name(self, kind: str, ending: str) -> str:
        """A name that no file of this or the next generation has."""
        return f"{kind}-{self.manifest.generation + 1:06d}.{ending}"

    def write_tensors(
        self, kind: str, tensors: Mapping[str, Tensor], *, private: bool = False
    ) -> FileNote:
        """Write a safetensors file that the next manifest may name."""
        plain = {  # copies, since safetensors takes neither views of one tensor nor other layouts
            name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, tensor in tensors.items()
        }
        data = safetensors.torch.save(plain)
        return self.write(self.new_name(kind, "safetensors"), [data], private=private)

    def write(self, name: str, pieces: Iterable[bytes], *, private: bool = False) -> FileNote:
        """Write a file that the next manifest may name. Only its owner reads a private one."""
        digest, size = hashlib.sha256(), 0

        def counted() -> Iterable[bytes]:
            nonlocal size
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                yield piece

        write_atomically(self.path / name, counted(), private=private)
        return FileNote(name=name, sha256=digest.hexdigest(), size=size)

    def read_state(self) -> dict[str, Tensor]:
        """The state, once it proves to fit the manifest. Raises LearnerError."""
        note = self.manifest.state
        if note is None:
            raise LearnerError(f"{self.path} has not learnt anything yet")
        tensors = self.read_tensors(note)
        try:
            check_state(self.manifest, tensors)
        except ValueError as error:
            raise damaged(self.path / note.name, str(error)) from None
        return tensors

    def read_tensors(self, note: FileNote) -> dict[str, Tensor]:
        """Read a safetensors file of the manifest. Raises LearnerError if it is damaged."""
        path = self.path / note.name
        try:
            with open_regular(path) as stream:
                if os.fstat(stream.fileno()).st_size != note.size:
                    raise damaged(path, "its size is wrong")
                data = stream.read(note.size + 1)
        except OSError as error:
            raise self._unreadable(path, error) from error
        if len(data) != note.size or hashlib.sha256(data).hexdigest() != note.sha256:
            raise damaged(path, "its checksum is wrong")
        try:
            return safetensors.torch.load(data)
        except Exception as error:  # the parser's own, and whatever torch makes of odd values
            raise damaged(path, "it is not a safetensors file") from error

    def check(self, note: FileNote) -> Path:
        """The path of a file, once it proves to be as it was written. Raises LearnerError."""
        path = self.path / note.name
        try:
            with open_regular(path) as stream:
                if os.fstat(stream.fileno()).st_size != note.size:
                    raise damaged(path, "its size is wrong")
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise self._unreadable(path, error) from error
        if digest != note.sha256:
            raise damaged(path, "its checksum is wrong")
        return path

    def _unreadable(self, path: Path, error: OSError) -> LearnerError:
        return LearnerError(
            f"{path} cannot be read: {error.strerror}. Fix the permissions, or restore a copy of "
            f"the learner's folder."
        )
