"""The manifest: `learner.json`, which says all that a learner is, and which files belong to it.

It is replaced as a whole, and what it does not name is not there. So every change is a
transaction: new files first, then the manifest, then the old files go.
"""

import hashlib
import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from remask.durable import read_limited, write_atomically
from remask.learner.accounts import Calibration, Visit
from remask.learner.errors import LearnerError
from remask.learner.settings import LearnerSettings
from remask.printable import printable
from remask.user_data import InputFormat

FORMAT = 1
MANIFEST = "learner.json"
_LARGEST = 256 << 20


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileNote(_Part):
    """A file that belongs to the learner."""

    name: str = Field(pattern=r"^[a-z]+-[0-9]{6,12}\.(safetensors|npy)$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(ge=0)


class SegmentNote(_Part):
    """A file of samples, which is never changed."""

    file: FileNote
    rows: int = Field(ge=1)


class Seen(_Part):
    """How a net sees inputs: `(inputs * scale - mean) / std`, per channel or feature."""

    scale: float
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


class DataNote(_Part):
    """What is known of the data since the first visit."""

    inputs: InputFormat
    seen: Seen
    """How the net sees them, or the backbone if it is frozen."""
    features: InputFormat | None = None
    """What a frozen backbone makes of them, which is what is kept and learnt from."""
    features_seen: Seen | None = None

    @property
    def kept(self) -> InputFormat:
        """What is kept in memory."""
        return self.features or self.inputs

    @property
    def kept_seen(self) -> Seen:
        """How the net that is trained sees what is kept."""
        return self.features_seen or self.seen


class Manifest(_Part):
    """All that a learner is."""

    remask: str = Field(description="the version that wrote it")
    generation: int = Field(0, ge=0, description="counts the changes")
    settings: LearnerSettings
    classes: tuple[str | None, ...] = ()
    """The name of each output that has been used; None if its class was forgotten."""
    outputs: int = Field(0, ge=0, description="of the head")
    data: DataNote | None = None
    tasks: int = Field(0, ge=0, description="how many visits the state has learnt")
    history: tuple[Visit, ...] = ()
    calibration: Calibration | None = None
    state: FileNote | None = None
    given: FileNote | None = Field(None, description="the weights that the user gave")
    segments: tuple[SegmentNote, ...] = ()

    @property
    def known(self) -> dict[str, int]:
        """The output of each class that has been learnt and not forgotten."""
        return {name: number for number, name in enumerate(self.classes) if name is not None}

    @property
    def files(self) -> list[FileNote]:
        """All files besides the manifest."""
        single = [note for note in (self.state, self.given) if note is not None]
        return single + [segment.file for segment in self.segments]


class _Format(BaseModel):
    """What the manifest of every format, past and future, says."""

    format: int = Field(ge=1)


class _Sealed(BaseModel):
    format: Literal[1]
    sha256: str
    learner: dict[str, JsonValue]


def read_manifest(folder: Path) -> Manifest:
    """Read what a learner is. Raises LearnerError."""
    path = folder / MANIFEST
    try:
        data = read_limited(path, _LARGEST)
    except FileNotFoundError as error:
        raise LearnerError(
            f"{folder} is no learner: it has no {MANIFEST}. Make one with Learner.create, or "
            f"with `remask learn`."
        ) from error
    except OSError as error:
        raise LearnerError(f"{path} cannot be read: {error.strerror}") from error
    try:
        written = _Format.model_validate_json(data).format
        if written > FORMAT:
            raise LearnerError(
                f"{folder} was written by a newer remask (format {written}, this one reads up to "
                f"{FORMAT}). Update remask."
            )
        sealed = _Sealed.model_validate_json(data)
        if sealed.sha256 != _digest(sealed.learner):
            raise LearnerError(f"{path} is damaged: its checksum is wrong. Bring back a copy.")
        return Manifest.model_validate(sealed.learner)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))[:100] or "the file"
        raise LearnerError(
            f"{path} is damaged: {printable(where)}: {problem['msg']:.200}. Bring back a copy."
        ) from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put a manifest in place of the one before. Raises DurabilityError."""
    learner = manifest.model_dump(mode="json")
    sealed = {"format": FORMAT, "sha256": _digest(learner), "learner": learner}
    text = json.dumps(sealed, indent=1, allow_nan=False)
    write_atomically(folder / MANIFEST, text.encode() + b"\n")


def _digest(learner: dict[str, JsonValue]) -> str:
    text = json.dumps(learner, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
