"""Encoding the samples of a visit: features are computed once, and survive an interruption."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from remask.durable import make_folder, open_regular, write_atomically
from remask.learner.features import Features
from remask.user_data import sample_bytes

PARTS = "parts"
_DIGEST = 32  # bytes
_KEEP_SECONDS = 2.0  # what is computed faster is not worth a file


@dataclass(frozen=True)
class Progress:
    """How far a visit has come; `on_progress` is called with it after every step."""

    step: int
    steps: int
    """How many there will be at most."""
    epoch: int
    """Counted from 1; 0 while features are computed."""
    resumed: bool
    """Whether the visit was begun by an earlier call."""
    phase: Literal["encoding", "training"] = "training"
    """While encoding, steps are samples."""


OnProgress = Callable[[Progress], None]


@dataclass(eq=False)
class Encoding:
    """Computes features group by group, and keeps them in files until all are computed."""

    features: Features
    folder: Path
    """Of the visit."""
    on_progress: OnProgress | None = None
    _done: int = field(default=0, init=False)
    _reused: bool = field(default=False, init=False)

    def encode(self, group: Sequence[Any], count: int) -> npt.NDArray[np.float32]:
        """The features [n, D] of some of `count` samples."""
        name = self._name(group)
        found = self._read(name, len(group))
        if found is not None:
            self._reused = True
            self._advance(len(group), count)
            return found
        began = time.monotonic()
        computed = self.features.encode(group, lambda done: self._advance(done, count))
        rows: npt.NDArray[np.float32] = computed.numpy()
        if time.monotonic() - began >= _KEEP_SECONDS or (self.folder / PARTS).is_dir():
            self._write(name, rows)
        return rows

    def _advance(self, done: int, count: int) -> None:
        self._done += done
        if self.on_progress is not None:
            self.on_progress(Progress(self._done, count, 0, self._reused, "encoding"))

    def _name(self, group: Sequence[Any]) -> str:
        digest = hashlib.sha256(self.features.encoder.fingerprint.encode())
        digest.update(str(getattr(group[0], "shape", "")).encode())
        for sample in group:
            digest.update(sample_bytes(sample))
        return digest.hexdigest()

    def _write(self, name: str, rows: npt.NDArray[np.float32]) -> None:
        """Write the digest of the rows, then the rows."""
        make_folder(self.folder / PARTS, private=True)
        data = rows.tobytes()
        write_atomically(
            self.folder / PARTS / name, [hashlib.sha256(data).digest(), data], private=True
        )

    def _read(self, name: str, count: int) -> npt.NDArray[np.float32] | None:
        """The rows that an earlier call wrote, if the file is whole."""
        shape = (count, self.features.encoder.features)
        try:
            with open_regular(self.folder / PARTS / name) as stream:
                digest, data = stream.read(_DIGEST), stream.read(4 * count * shape[1] + 1)
        except OSError:
            return None
        if hashlib.sha256(data).digest() != digest or len(data) != 4 * count * shape[1]:
            return None
        return np.frombuffer(data, dtype=np.float32).reshape(shape)
