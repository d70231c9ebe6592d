"""The folder of a learner: reading files that are whole, and writing new ones beside them."""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from remask.durable import (
    make_folder,
    open_regular,
    remove_quietly,
    remove_stale_temporaries,
    write_atomically,
)
from remask.learner.errors import LearnerError
from remask.learner.manifest import MANIFEST, FileNote, Manifest, read_manifest, write_manifest
from remask.locks import Lock

_OURS = re.compile(r"(state|given|samples)-[0-9]{6,12}\.(safetensors|npy)")
_LOCK = "learner.lock"
_CHUNK = 1 << 20


class LearnerFolder:
    """The files of a learner, and what its manifest said when it was read or written last."""

    def __init__(self, path: Path, manifest: Manifest, lock: Lock | None) -> None:
        self.path = path
        self.manifest = manifest
        self._lock = lock

    @classmethod
    def create(cls, path: Path, manifest: Manifest, given: Mapping[str, Tensor]) -> "LearnerFolder":
        """Make a learner in a folder that is empty or not there. Raises LearnerError."""
        make_folder(path)
        lock = Lock(path / _LOCK)
        lock.__enter__()
        try:
            others = [p.name for p in path.iterdir() if not p.name.startswith((_LOCK, "."))]
            if MANIFEST in others:
                raise LearnerError(f"{path} has a learner already: open it with Learner.open")
            others = [name for name in others if not _OURS.fullmatch(name)]
            if others:
                raise LearnerError(
                    f"{path} is not empty: it has {sorted(others)[0]}. Choose a new folder for "
                    f"the learner."
                )
            folder = cls(path, manifest, lock)
            note = folder.write_tensors("given", given) if given else None
            folder.commit(manifest.model_copy(update={"given": note}))
        except BaseException:
            lock.__exit__(None, None, None)
            raise
        return folder

    @classmethod
    def open(cls, path: Path, *, read_only: bool) -> "LearnerFolder":
        """Open a learner that is there; for writing, as the only one. Raises LearnerError."""
        read_manifest(path)  # nothing is made where no learner is
        if read_only:
            return cls(path, read_manifest(path), None)
        lock = Lock(path / _LOCK)
        lock.__enter__()
        try:
            folder = cls(path, read_manifest(path), lock)
            folder.remove_leftovers()
        except BaseException:
            lock.__exit__(None, None, None)
            raise
        return folder

    @property
    def writable(self) -> bool:
        """Whether the learner may be changed."""
        return self._lock is not None

    def close(self) -> None:
        """Let another process write."""
        if self._lock is not None:
            self._lock.__exit__(None, None, None)
            self._lock = None

    def commit(self, manifest: Manifest) -> None:
        """Make a manifest the truth, and remove what it no longer names."""
        manifest = manifest.model_copy(update={"generation": self.manifest.generation + 1})
        write_manifest(self.path, manifest)
        self.manifest = manifest
        self.remove_leftovers()

    def remove_leftovers(self) -> None:
        """Remove files that an earlier state had, or that a process left that died."""
        named = {note.name for note in self.manifest.files}
        remove_stale_temporaries(self.path)
        for name in os.listdir(self.path):  # noqa: PTH208 - unlike iterdir it cannot fail later
            if _OURS.fullmatch(name) and name not in named:
                remove_quietly(self.path / name)

    def new_name(self, kind: str, ending: str) -> str:
        """A name that no file of this or the next generation has."""
        return f"{kind}-{self.manifest.generation + 1:06d}.{ending}"

    def write_tensors(self, kind: str, tensors: Mapping[str, Tensor]) -> FileNote:
        """Write a safetensors file that the next manifest may name."""
        plain = {  # copies, since safetensors takes neither views of one tensor nor other layouts
            name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, tensor in tensors.items()
        }
        data = safetensors.torch.save(plain)
        return self.write(self.new_name(kind, "safetensors"), [data])

    def write(self, name: str, pieces: Iterable[bytes]) -> FileNote:
        """Write a file that the next manifest may name."""
        digest, size = hashlib.sha256(), 0

        def counted() -> Iterable[bytes]:
            nonlocal size
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                yield piece

        write_atomically(self.path / name, counted())
        return FileNote(name=name, sha256=digest.hexdigest(), size=size)

    def read_tensors(self, note: FileNote) -> dict[str, Tensor]:
        """Read a safetensors file of the manifest. Raises LearnerError if it is not as written."""
        path = self.path / note.name
        try:
            with open_regular(path) as stream:
                data = stream.read(note.size + 1)
        except OSError as error:
            raise self._unreadable(path, error) from error
        if len(data) != note.size or hashlib.sha256(data).hexdigest() != note.sha256:
            raise _damaged(path)
        try:
            return safetensors.torch.load(data)
        except Exception as error:  # the parser's own, and whatever torch makes of odd values
            raise _damaged(path) from error

    def check(self, note: FileNote) -> Path:
        """The path of a file, once it proves to be as it was written. Raises LearnerError."""
        path = self.path / note.name
        digest = hashlib.sha256()
        try:
            with open_regular(path) as stream:
                if os.fstat(stream.fileno()).st_size != note.size:
                    raise _damaged(path)
                while piece := stream.read(_CHUNK):
                    digest.update(piece)
        except OSError as error:
            raise self._unreadable(path, error) from error
        if digest.hexdigest() != note.sha256:
            raise _damaged(path)
        return path

    def _unreadable(self, path: Path, error: OSError) -> LearnerError:
        if isinstance(error, FileNotFoundError) and not self.writable:
            return LearnerError(
                f"{path} is gone: another process has changed the learner since it was opened. "
                f"Open it again."
            )
        return LearnerError(f"{path} cannot be read: {error.strerror}. Bring back a copy.")


def _damaged(path: Path) -> LearnerError:
    return LearnerError(
        f"{path} is damaged: it is not what was written. Nothing was changed. Bring back a copy of "
        f"the learner's folder."
    )
