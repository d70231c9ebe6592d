"""The manifest, `learner.json`: all that a learner is, and which files belong to it.

It is replaced as a whole, and files that it does not name are ignored. So every change is a
transaction: new files are written first, then the manifest, then old files are removed. Files are
never modified, so the manifest can also name those of earlier generations, for `undo`.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, ValidationError, model_validator

from remask.data.readers import InputFormat
from remask.errors import printable
from remask.files import open_regular, read_limited, write_atomically
from remask.learner.results import Calibration, HeadName, Preprocessing, Record, StoredName, Visit
from remask.learner.settings import RESTORE, LearnerError, LearnerSettings, damaged, reading
from remask.memory import MappedRows
from remask.setting_types import Name

MANIFEST = "learner.json"
FILE_NAME = r"(state|given|samples|statistics)-[0-9]{6,12}(-[0-9]{1,7})?\.(safetensors|npy)"
SMALLEST_HEAD = 10
"""A learner of few classes has the ten outputs for which the settings were published."""
_FORMAT = 4
_LARGEST = 256 << 20
_PIECE = 1 << 20
_MOST_CLASSES = 1_000_000

_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=10**9)]
_Content = TypeVar("_Content", bound=BaseModel)


class FileNote(Record):
    """A file that belongs to the learner."""

    name: str = Field(pattern=f"^{FILE_NAME}$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(ge=0, le=1 << 50)


class SamplesNote(FileNote):
    """The file of the samples that are kept."""

    rows: int = Field(ge=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.rows > self.size:
            raise ValueError(f"{self.name} cannot have {self.rows} rows")
        return self


class StatisticsNote(FileNote):
    """The file with the statistics of a class."""

    output: _Count


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
    def preprocessing(self) -> Preprocessing:
        """What inputs go through before the net. Raises LearnerError for texts."""
        inputs, seen = self.inputs, self.seen
        if inputs.is_text:
            raise LearnerError(
                "a learner of texts has no preprocessing and cannot be exported: splitting a text "
                "into tokens cannot be part of an ONNX or torch.export file. Use the learner itself"
            )
        return Preprocessing(
            input_shape=inputs.shape,
            input_type=inputs.tensor_type,
            scale=seen.scale,
            mean=seen.mean,
            std=seen.std,
            resize="bilinear" if inputs.is_image and inputs.dtype == "uint8" else None,
        )

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
    samples: SamplesNote | None = None
    head: HeadName = "net"
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
        if not self.classes and (self.state or self.samples or self.statistics):
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
        return [note for note in (self.state, self.samples, *self.statistics) if note is not None]


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

    def write(self, folder: Path) -> None:
        """Replace the manifest of a folder. Raises DurabilityError."""
        write_atomically(folder / MANIFEST, seal("learner", self))


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
    return unseal(path, data, "learner", Manifest, RESTORE)


def seal(name: str, content: BaseModel) -> bytes:
    """Return a JSON file with a checksum, `{"format": ..., "sha256": ..., NAME: {...}}`."""
    plain = content.model_dump(mode="json")
    type(content).model_validate(plain)
    sealed = {"format": _FORMAT, "sha256": _digest(plain), name: plain}
    return json.dumps(sealed, indent=1, allow_nan=False).encode() + b"\n"


def unseal(path: Path, data: bytes, name: str, kind: type[_Content], advice: str) -> _Content:
    """Return the content of a file that `seal` made. Raises LearnerError if it is damaged."""
    try:
        sealed = json.loads(data)
        written = sealed.get("format") if isinstance(sealed, dict) else None
        if type(written) is int and written != _FORMAT:
            newer = written > _FORMAT
            raise LearnerError(
                f"{path} was written by {'a newer' if newer else 'an older'} remask (format "
                f"{written:.20g}; this version reads format {_FORMAT}). "
                f"{'Update remask' if newer else 'Create the learner again'}."
            )
        if type(written) is not int or sealed.keys() != {"format", "sha256", name}:
            raise damaged(path, f"it is not the JSON of a {name}", advice)
        if sealed["sha256"] != _digest(sealed[name]):
            raise damaged(path, "its checksum is wrong", advice)
        return kind.model_validate(sealed[name])
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = printable(".".join(map(str, problem["loc"]))[:100]) or "the file"
        raise damaged(path, f"{where}: {problem['msg']:.200}", advice) from None
    except (ValueError, RecursionError, OverflowError) as error:  # numbers that JSON cannot carry
        raise damaged(path, printable(f"{error!s:.200}"), advice) from None


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_hashed(path: Path, pieces: Iterable[bytes], *, private: bool) -> tuple[str, int]:
    """Write a file; return its SHA-256 and its size. Only its owner can read a private one."""
    digest, size = hashlib.sha256(), 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
            yield piece

    write_atomically(path, counted(), private=private)
    return digest.hexdigest(), size


def npy_pieces(
    shape: tuple[int, ...], dtype: str, groups: Iterable[npt.NDArray[Any]]
) -> Iterator[bytes]:
    """Yield the bytes of an .npy file of an array [N, ...], given groups of its rows."""
    header = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(
        header, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    waiting = bytearray(header.getvalue())
    for group in groups:
        waiting += group.tobytes()
        if len(waiting) >= _PIECE:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)


def mapped(
    path: Path, sha256: str, count: int, form: InputFormat, advice: str = RESTORE
) -> MappedRows:
    """Map an .npy file of this many samples into memory. Raises LearnerError if it is damaged."""
    with reading(path, advice), open_regular(path) as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != sha256:
            raise damaged(path, "its checksum is wrong", advice)
    try:
        rows = MappedRows(path)
    except Exception as error:  # numpy raises anything while it parses the header
        raise damaged(path, "it is not an array of samples", advice) from error
    if rows.shape != (count, *form.shape) or rows.dtype != form.tensor_type:
        found = f"{rows.dtype} {list(rows.shape)}"
        raise damaged(path, f"it has {found}, not {form.dtype} {[count, *form.shape]}", advice)
    return rows
