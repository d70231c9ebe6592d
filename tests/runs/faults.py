"""A disk that fails, dies or loses power at a chosen point.

With it go states that show whether they are whole, and ways to damage a file.

`FaultyDisk` stands between `remask.files` and the real disk. It counts the operations and makes
one of them fail; it also knows what has been synced, so that it can take away the rest.
"""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
import torch

from remask import files
from remask.engine.checkpoints import Checkpoint, CheckpointFolder

OPERATIONS = (
    "_create",
    "_write",
    "_sync_file",
    "_rename",
    "_sync_folder",
    "_make_folder",
    "_remove",
    "_remove_folder",
)


class CrashError(BaseException):
    """The process is gone: no handler for ordinary errors may see this."""


def die_at_once() -> BaseException:
    """Kill this process, in the place of an error."""
    os.kill(os.getpid(), signal.SIGKILL)
    return CrashError()


@dataclass
class FaultyDisk:
    """Fails with `error` at operation number `at`, counted from 0; never, if that is not reached.

    `late` lets the operation happen before it fails; otherwise a write still happens by half.
    `lasting` lets every later operation fail too, which is what a crash always does.
    """

    at: int | None = None
    error: Callable[[], BaseException] = CrashError
    late: bool = False
    lasting: bool = False
    log: list[str] = field(default_factory=list)
    unsynced: set[Path] = field(default_factory=set)
    renamed: list[tuple[Path, Path]] = field(default_factory=list)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in OPERATIONS:
            monkeypatch.setattr(files, name, self._wrap(name, getattr(files, name)))

    @property
    def reached(self) -> bool:
        """Whether the chosen operation was tried."""
        return self.at is not None and len(self.log) > self.at

    def cut_power(self, *, renames_are_lost: bool) -> None:
        """Take away what was not synced: the contents of files and, if so chosen, new names."""
        for path in self.unsynced:
            if path.exists():
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        for source, target in reversed(self.renamed if renames_are_lost else []):
            if target.exists():
                target.rename(source)

    def _wrap(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            number = len(self.log)
            self.log.append(name)
            lasting = self.lasting or self.error is CrashError
            if self.at is None or number < self.at or (number > self.at and not lasting):
                result = operation(*arguments)
                self._note(name, *arguments)
                return result
            if self.late and number == self.at:
                result = operation(*arguments)
                self._note(name, *arguments)
                if name == "_create":
                    result.close()
            elif name == "_write" and number == self.at:
                stream, piece = arguments
                operation(stream, piece[: len(piece) // 2])
            raise self.error()

        return wrapped

    def _note(self, name: str, *arguments: Any) -> None:
        match name, arguments:
            case "_create", (Path() as path, _):
                self.unsynced.add(path)
            case "_sync_file", (FileIO() as stream,):
                self.unsynced.discard(Path(str(stream.name)))
            case "_rename", (source, target):
                self.renamed.append((source, target))
                if source in self.unsynced:
                    self.unsynced.add(target)
            case "_sync_folder", _:
                self.renamed.clear()


def state(version: int) -> dict[str, torch.Tensor]:
    """Tensors that all tell which version they belong to."""
    return {
        "net/weight": torch.full((3, 2), float(version)),
        "memory/inputs": torch.full((7,), version, dtype=torch.uint8),
    }


def save(folder: CheckpointFolder, version: int) -> int:
    return folder.save(state(version), {"step": version}, {"version": version})


def version_of(checkpoint: Checkpoint | None) -> int:
    """The version, having checked that every part is of the same."""
    assert checkpoint is not None
    version = checkpoint.position["step"]
    assert checkpoint.extra == {"version": version}
    for name, tensor in state(version).items():
        assert torch.equal(checkpoint.tensors[name], tensor)
    return version


def reopened(path: Path) -> CheckpointFolder:
    return CheckpointFolder(path, "run")


def filled(path: Path, versions: int = 3) -> CheckpointFolder:
    """A folder after `versions` saves, of which the last two are there."""
    folder = reopened(path)
    folder.load(state(0))
    for version in range(1, versions + 1):
        save(folder, version)
    return folder


def damaged_versions(data: bytes, bits: tuple[int, ...]) -> Iterator[bytes]:
    """The file cut at every length, with every byte changed, and with something behind it."""
    yield from (data[:length] for length in range(len(data)))
    for position in range(len(data)):
        for bit in bits:
            yield data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :]
    yield data + b"\0"
