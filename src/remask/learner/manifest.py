"""The manifest, `learner.json`: all that a learner is, and which files belong to it.

It is replaced as a whole, and files that it does not name are ignored. So every change is a
transaction: new files are written first, then the manifest, then old files are removed. Files are
never modified, so the manifest can also name those of earlier generations, for `undo`.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from remask.data.readers import InputFormat
from remask.files import read_limited, write_atomically
from remask.learner.errors import RESTORE, LearnerError
from remask.learner.files import seal, unseal
from remask.learner.results import Calibration, Record, StoredName, Visit
from remask.learner.settings import LearnerSettings
from remask.setting_types import Name

MANIFEST = "learner.json"
FILE_NAME = r"(state|given|samples|statistics)-[0-9]{6,12}(-[0-9]{1,7})?\.(safetensors|npy)"
SMALLEST_HEAD = 10
"""A learner of few classes has the ten outputs for which the settings were published."""
_NAME = "learner"
_LARGEST = 256 << 20
_MOST_CLASSES = 1_000_000

_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=10**9)]


class FileNote(Record):
    """A file that belongs to the learner."""

    name: str = Field(pattern=f"^{FILE_NAME}$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(ge=0, le=1 << 50)


class SegmentNote(Record):
    """A file of samples."""

    file: FileNote
    rows: int = Field(ge=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.rows > self.file.size:
            raise ValueError(f"{self.file.name} cannot have {self.rows} rows")
        return self


class StatisticsNote(Record):
    """The file with the statistics of a class."""

    output: _Count
    file: FileNote


class Normalisation(Record):
    """From raw inputs to those of a net: `(inputs * scale - mean) / std`, per channel."""

    scale: _Positive = 1.0
    mean: tuple[_Finite, ...] | None = None
    std: tuple[_Positive, ...] | None = None

    def fits(self, inputs: InputFormat) -> bool:
        """Whether there is a mean and a deviation for each channel or feature, or none at all."""
        if self.mean is None or self.std is None:
            return self.mean is self.std
        return len(self.mean) == len(self.std) == inputs.shape[0]


class EncoderNote(Record):
    """The encoder of a learner."""

    name: Name
    fingerprint: str = Field(pattern="^[0-9a-f]{64}$")
    """SHA-256 of its weights."""
    image_size: tuple[int, int] | None = None
    """Height and width of its input images."""


class DataNote(Record):
    """Format of the data, fixed by the first visit."""

    inputs: InputFormat
    seen: Normalisation
    """Of the inputs of the net or encoder."""
    net: Name
    """The net that is trained, if one is."""
    encoder: EncoderNote | None = None
    features: InputFormat | None = None
    """Format of the features that are kept and learnt from: the encoder's, or the inputs."""
    features_seen: Normalisation | None = None
    """Of the features, for the net that is trained on them."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.seen.fits(self.inputs) or not self.kept_seen.fits(self.kept):
            raise ValueError("means and deviations do not fit the inputs")
        if self.features is None and (self.features_seen is not None or self.encoder is not None):
            raise ValueError("an encoder without features")
        if self.kept.is_text:
            raise ValueError("texts without an encoder")
        return self

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

    classes: tuple[StoredName | None, ...] = Field((), max_length=_MOST_CLASSES)
    """The name of each output in use; None if its class was forgotten.

    Two outputs have the same name after their classes were merged.
    """
    outputs: int = Field(0, ge=0, description="of the head")
    data: DataNote | None = None
    tasks: _Count = Field(0, description="number of visits that the state has learnt")
    calibration: Calibration | None = None
    state: FileNote | None = None
    segments: tuple[SegmentNote, ...] = ()
    head: Literal["net", "ncm", "slda", "ridge"] = Field("net", description="what predicts")
    lr: float | None = Field(None, description="the learning rate of the last visit", gt=0, le=1e6)
    statistics: tuple[StatisticsNote, ...] = ()
    exact: bool = Field(True, description="whether statistics of each class are stored")

    @model_validator(mode="after")
    def _check_learnt(self) -> Self:
        if not len(self.classes) <= self.outputs <= max(SMALLEST_HEAD, len(self.classes)):
            raise ValueError(f"a head of {self.outputs} outputs for {len(self.classes)} classes")
        if self.classes and (self.data is None or self.state is None or not self.tasks):
            raise ValueError("there are classes, but no state that has learnt them")
        if self.classes and not self.known:
            raise ValueError("there are outputs, but none has a name")
        if not self.classes and (self.state is not None or self.segments or self.statistics):
            raise ValueError("there is a state, but no class")
        return self

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
        state = [] if self.state is None else [self.state]
        samples = [note.file for note in self.segments]
        return [*state, *samples, *(note.file for note in self.statistics)]


class Earlier(Learnt):
    """What a learner had learnt before a visit."""

    generation: _Count
    visits: _Count = Field(description="length of the history")


class Manifest(Learnt):
    """All that a learner is."""

    remask: str = Field(description="the version that wrote it")
    generation: _Count = Field(0, description="number of changes")
    settings: LearnerSettings
    history: tuple[Visit, ...] = ()
    given: FileNote | None = Field(None, description="the weights that the user gave")
    earlier: tuple[Earlier, ...] = Field((), description="generations for `undo`, latest last")

    @model_validator(mode="after")
    def _check_history(self) -> Self:
        length = len(self.history)
        lengths = [(self.tasks, length), *((each.tasks, each.visits) for each in self.earlier)]
        for tasks, visits in lengths:
            if tasks > visits or visits > length:
                raise ValueError(f"a state of {tasks} visits, but {length} in the history")
        if any(each.visits == length for each in self.earlier):
            raise ValueError("an earlier generation has as many visits as this one")
        return self

    @property
    def files(self) -> list[FileNote]:
        """All files besides the manifest, also those of earlier generations, each once."""
        notes = [note for learnt in (self, *self.earlier) for note in learnt.own_files]
        if self.given is not None:
            notes.append(self.given)
        return list({note.name: note for note in notes}.values())

    def generations(self) -> tuple[Earlier, ...]:
        """Return the earlier generations to keep when another generation follows this one."""
        own = {name: getattr(self, name) for name in Learnt.model_fields}
        this = Earlier.model_construct(**own, generation=self.generation, visits=len(self.history))
        keep = self.settings.keep_generations
        return (*self.earlier, this)[-keep:] if keep else ()


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
    return unseal(path, data, _NAME, Manifest, RESTORE)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest. Raises DurabilityError."""
    write_atomically(folder / MANIFEST, seal(_NAME, manifest))
