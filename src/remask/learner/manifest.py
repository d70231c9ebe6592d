"""The manifest, `learner.json`: all that a learner is, and which files belong to it.

It is replaced as a whole, and files that it does not name are ignored. So every change is a
transaction: new files are written first, then the manifest, then old files are removed. Files are
never modified, so the manifest can also name those of earlier generations, for `undo`.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, Field, model_validator

from remask.config import Name
from remask.data.readers import InputFormat
from remask.errors import printable
from remask.files import read_limited, write_atomically
from remask.learner.results import Calibration, HeadName, Record, StoredName, Visit
from remask.learner.settings import RESTORE, LearnerError, LearnerSettings, damaged

MANIFEST = "learner.json"
FILE_NAME = r"(state|given|samples|statistics)-[0-9]{6,12}(-[0-9]{1,7})?\.(safetensors|npy)"
_SMALLEST_HEAD = 10
"""A learner of few classes has the ten outputs for which the settings were published."""
_FORMAT = 5
_LARGEST = 256 << 20

_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Content = TypeVar("_Content", bound=BaseModel)


class FileNote(Record):
    """A file that belongs to the learner."""

    name: str = Field(pattern=f"^{FILE_NAME}$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    rows: int | None = Field(None, description="of a file of samples")


class Normalisation(Record):
    """From raw inputs to those of a net: `(inputs * scale - mean) / std`, per channel."""

    scale: _Positive = 1.0
    mean: tuple[_Finite, ...] | None = None
    std: tuple[_Positive, ...] | None = None


class EncoderNote(Record):
    """The encoder of a learner."""

    name: Name
    fingerprint: str = Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of its weights")
    image_size: tuple[int, int] | None = Field(None, description="height and width of its inputs")


class DataNote(Record):
    """Format of the data, fixed by the first visit."""

    inputs: InputFormat
    seen: Normalisation = Field(description="of the inputs of the net or encoder")
    net: Name = Field(description="the net that is trained, if one is")
    encoder: EncoderNote | None = None
    features: InputFormat | None = Field(
        None, description="what is kept and learnt from: the encoder's features, or the inputs"
    )
    features_seen: Normalisation | None = Field(
        None, description="of the features, for the net that is trained on them"
    )

    @property
    def kept(self) -> InputFormat:
        """Format of the samples in the memory: features, or inputs."""
        return self.features or self.inputs

    @property
    def kept_seen(self) -> Normalisation:
        """Of the samples in the memory, for the net that is trained."""
        return self.features_seen or self.seen


class Learnt(Record):
    """What a learner has learnt: the part of a manifest that `undo` restores."""

    classes: tuple[StoredName | None, ...] = ()
    """The name of each output in use; None if its class was forgotten.

    Two outputs have the same name after their classes were merged.
    """
    data: DataNote | None = None
    tasks: int = Field(0, description="number of visits that the state has learnt")
    calibration: Calibration | None = None
    state: FileNote | None = None
    samples: FileNote | None = Field(None, description="the samples that are kept")
    head: HeadName = "net"
    lr: float | None = Field(None, description="the learning rate of the last visit")
    statistics: dict[int, FileNote] = Field({}, description="of each class, by output")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.known) != (self.state is not None):
            raise ValueError("the known classes do not fit the state")
        return self

    def renamed(self, old: str, new: str) -> Self:
        """Return the same with another name for a class."""
        classes = tuple(new if own == old else own for own in self.classes)
        return self.changed(classes=classes)

    def learnt(self) -> dict[str, Any]:
        """Return the fields that an earlier generation has, too."""
        return {name: getattr(self, name) for name in Learnt.model_fields}

    @property
    def data_note(self) -> DataNote:
        """`data`, after the first visit."""
        assert self.data is not None
        return self.data

    @property
    def outputs(self) -> int:
        """The number of outputs of the head.

        There are no more than needed: spare outputs weaken distillation, which averages over all.
        """
        return max(_SMALLEST_HEAD, len(self.classes))

    @property
    def known(self) -> dict[str, int]:
        """The first output of each known class."""
        found: dict[str, int] = {}
        for number, name in enumerate(self.classes):
            if name is not None:
                found.setdefault(name, number)
        return found

    @property
    def columns(self) -> list[int]:
        """For each output in use, the position of its class in `known`; -1 if it was forgotten."""
        position = {name: number for number, name in enumerate(self.known)}
        return [-1 if name is None else position[name] for name in self.classes]

    @property
    def own_files(self) -> list[FileNote]:
        """State, samples and statistics."""
        notes = (self.state, self.samples, *self.statistics.values())
        return [note for note in notes if note is not None]


class Earlier(Learnt):
    """What a learner had learnt before a visit."""

    visits: int = Field(description="length of the history")


class Manifest(Learnt):
    """All that a learner is."""

    remask: str = Field(description="the version that wrote it")
    generation: int = Field(0, description="number of changes")
    settings: LearnerSettings
    history: tuple[Visit, ...] = ()
    given: FileNote | None = Field(None, description="the weights that the user gave")
    earlier: tuple[Earlier, ...] = Field((), description="generations for `undo`, latest last")

    @property
    def files(self) -> list[FileNote]:
        """All files besides the manifest, also those of earlier generations, each once."""
        notes = [note for learnt in (self, *self.earlier) for note in learnt.own_files]
        notes += [self.given] if self.given is not None else []
        return list({note.name: note for note in notes}.values())

    def generations(self) -> tuple[Earlier, ...]:
        """Return the earlier generations to keep when another generation follows this one."""
        this = Earlier.model_construct(**self.learnt(), visits=len(self.history))
        keep = self.settings.keep_generations
        return (*self.earlier, this)[-keep:] if keep else ()

    def write(self, folder: Path) -> None:
        """Replace the manifest of a folder. Raises DurabilityError."""
        write_atomically(folder / MANIFEST, seal(self))


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a learner. Raises LearnerError."""
    path = folder / MANIFEST
    try:
        data = read_limited(path, _LARGEST)
    except FileNotFoundError as error:
        raise LearnerError(
            f"{folder} is not a learner's folder: it has no {MANIFEST}. Create a learner with "
            f"Learner.create, or with `remask learn`."
        ) from error
    except OSError as error:
        raise LearnerError(f"{path} cannot be read: {error.strerror}") from error
    return unseal(path, data, Manifest, RESTORE)


def seal(content: BaseModel) -> bytes:
    """Return a JSON file with a checksum, `{"format": ..., "sha256": ..., "content": {...}}`."""
    plain = content.model_dump(mode="json")
    type(content).model_validate(plain)
    sealed = {"format": _FORMAT, "sha256": _digest(plain), "content": plain}
    return json.dumps(sealed, indent=1, allow_nan=False).encode() + b"\n"


def unseal(path: Path, data: bytes, kind: type[_Content], advice: str) -> _Content:
    """Return the content of a file that `seal` made. Raises LearnerError if it is damaged."""
    try:
        sealed = json.loads(data)
        written, digest, content = sealed["format"], sealed["sha256"], sealed["content"]
        if written != _FORMAT:
            newer = written > _FORMAT
            raise LearnerError(
                f"{path} was written by {'a newer' if newer else 'an older'} remask (format "
                f"{written:.20g}; this version reads format {_FORMAT}). "
                f"{'Update remask' if newer else 'Create the learner again'}."
            )
        if digest != _digest(content):
            raise damaged(path, "its checksum is wrong", advice)
        return kind.model_validate(content)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise damaged(path, printable(f"{error!s:.200}"), advice) from None


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
