"""Checkpoints: the state of a running stack on disk, complete or not there."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue
from torch import Tensor

from remask.durable import (
    DurabilityError,
    make_folder,
    remove_quietly,
    remove_stale_temporaries,
    write_atomically,
)
from remask.engine.checkpoint_files import CheckpointError, DamagedError, decode, encode

_NAME = re.compile(r"checkpoint-([0-9]{8,18})\.safetensors")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A state that was saved."""

    tensors: dict[str, Tensor]
    position: dict[str, int]
    extra: dict[str, JsonValue]
    number: int
    """Counts the checkpoints of a folder, from 1."""
    warnings: tuple[str, ...]
    """One for each newer checkpoint that could not be read."""


class CheckpointFolder:
    """The last two checkpoints of one run, `identity`, in a folder of their own.

    Two processes must not use a folder at the same time: hold a `remask.locks.Lock`.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._folder = folder
        self._identity = identity
        self._last_good: Path | None = None
        self._loaded = False

    def save(
        self,
        tensors: Mapping[str, Tensor],
        position: Mapping[str, int],
        extra: Mapping[str, JsonValue],
    ) -> int:
        """Save a state and give its number. What was saved before goes once this is safe.

        Raises DurabilityError if the disk refuses, and ValueError or TypeError if `position` or
        `extra` would not read back from JSON as they are.
        """
        data = encode(self._identity, tensors, position, extra)
        make_folder(self._folder)
        remove_stale_temporaries(self._folder)
        older = checkpoints_in(self._folder)
        if older and not self._loaded:
            raise CheckpointError(
                f"{self._folder} holds checkpoints that were not loaded. Choose another folder, "
                f"or remove them."
            )
        number = max(older, default=0) + 1
        path = self._folder / f"checkpoint-{number:08d}.safetensors"
        write_atomically(path, data, private=True)  # it holds samples
        # A damaged one must not take the place of the one that was good.
        kept = self._last_good or older.get(number - 1)
        for old in older.values():
            if old != kept:
                remove_quietly(old)
        self._last_good, self._loaded = path, True
        return number

    def load(
        self,
        expected: Mapping[str, Tensor],
        *,
        growing: tuple[str, ...] = (),
        optional: tuple[str, ...] = (),
    ) -> Checkpoint | None:
        """Load the newest state that is whole, or None if none was ever saved.

        `expected` are tensors like those that were saved; anything else is refused before memory
        is taken for it. Those whose names begin with `growing` need only have as many axes, and in
        all they may take 1 GiB more than expected (`TrialStack.growing` says which grow with the
        tasks of an open stream). Those whose names begin with `optional` need not have been saved.
        Raises CheckpointError if all are damaged, or the newest whole one
        is another run's or a newer remask's. Deletes nothing.
        """
        damages = []
        for number, path in reversed(checkpoints_in(self._folder).items()):
            try:
                note, tensors = decode(path, self._identity, expected, growing, optional)
            except DamagedError as error:
                damages.append(f"{path} is damaged: {error}.")
                continue
            except CheckpointError as error:
                raise CheckpointError(" ".join([*damages, str(error)])) from error
            self._last_good, self._loaded = path, True
            return Checkpoint(tensors, note.position, note.extra, number, tuple(damages))
        if damages:
            raise CheckpointError(
                f"no checkpoint can be read. {' '.join(damages)} Nothing was deleted. Bring back "
                f"a copy, or remove them to start from the beginning."
            )
        self._loaded = True
        return None


def is_checkpoint(name: str) -> bool:
    """Whether a file of this name is a checkpoint."""
    return _NAME.fullmatch(name) is not None


def checkpoints_in(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by their number, oldest first; none if there is no folder."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - unlike iterdir it cannot fail later
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DurabilityError(
            f"cannot list {folder}: {error.strerror}. Fix its permissions, or choose another "
            f"folder."
        ) from error
    matches = (_NAME.fullmatch(name) for name in names)
    found = {int(match[1]): folder / match[0] for match in matches if match}
    return dict(sorted(found.items()))
