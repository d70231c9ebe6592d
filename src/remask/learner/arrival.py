"""The arrival of a visit: from data to samples on disk, with the outputs of their classes."""

import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from remask.learner import staging
from remask.learner.accounts import Visit
from remask.learner.architecture import Architecture, feature_shape
from remask.learner.errors import LearnerError, texts_need_an_encoder
from remask.learner.manifest import DataNote, Manifest, Seen
from remask.learner.prediction import featuriser
from remask.learner.settings import OWN_BACKBONE, OWN_MODULE
from remask.learner.staging import Staged, VisitNote
from remask.memory import StoredRows
from remask.own_code import names_own_code
from remask.user_data import InputFormat, Source, in_order


class Arrival:
    """Puts the samples of a visit on disk, as the learner will learn them."""

    def __init__(
        self, manifest: Manifest, place: Path, architecture: Architecture, device: torch.device
    ) -> None:
        self._manifest, self._place = manifest, place
        self._architecture, self._device = architecture, device

    def stage(self, source: Source, name: str, *, discard: bool) -> Staged | Visit:
        """Have the samples of a visit on disk; or if it was learnt before, its account."""
        manifest = self._manifest
        form = manifest.data.inputs if manifest.data else self._first_format(source)
        before = next((v for v in manifest.history if v.name == name and v.samples), None)
        if before is not None:
            if before.fingerprint is None:
                raise LearnerError(
                    f"a visit {name!r} was learnt on {before.finished[:10]}, and a class of it was "
                    f"forgotten since. Choose another name."
                )
            if staging.fingerprint_of(source, form) == before.fingerprint:
                return before.model_copy(update={"repeated": True})
            raise LearnerError(
                f"a visit {name!r} was learnt on {before.finished[:10]}, from other samples. "
                f"Choose another name."
            )
        begun = None if discard else staging.unfinished(self._place)
        if begun is not None:
            same = begun.name == name and staging.fingerprint_of(source, form) == begun.fingerprint
            if not same:
                raise LearnerError(
                    f"the visit {begun.name!r} was begun on {begun.began[:10]} and is not "
                    f"finished. Learn the same samples again under this name to go on with it, or "
                    f"give it up: discard=True (--discard)."
                )
            return staging.take_up(self._place, begun, manifest)
        featurise = None
        if self._architecture.frozen:
            assert self._architecture.given is not None
            seen = manifest.data.seen if manifest.data else self._given_seen(form)
            featurise = featuriser(self._architecture.given, seen, self._device)

        def describe(fingerprint: str, rows: StoredRows, names: list[str]) -> VisitNote:
            return self._describe(name, fingerprint, form, rows, names)

        return staging.stage(self._place, source, form, featurise, describe)

    def _describe(
        self,
        name: str,
        fingerprint: str,
        form: InputFormat,
        rows: StoredRows,
        names: list[str],
    ) -> VisitNote:
        """The note of a visit: the outputs of its classes, and at first what the data are like."""
        manifest = self._manifest
        new = in_order(set(names) - manifest.known.keys())
        classes = (*manifest.classes, *new)
        outputs = {name: len(manifest.classes) + n for n, name in enumerate(new)} | manifest.known
        labels = [outputs[name] for name in names]
        data = manifest.data
        if data is None:
            aside = staging.held_out(torch.tensor(labels), manifest.settings.seed, 0)
            data = self._first_data(form, rows, (~aside).nonzero().squeeze(-1).numpy())
        return VisitNote(
            name=name,
            fingerprint=fingerprint,
            generation=manifest.generation,
            began=datetime.now(UTC).isoformat(timespec="seconds"),
            classes=classes,
            labels=tuple(labels),
            data=data,
            rows_sha256="",
        )

    def _first_format(self, source: Source) -> InputFormat:
        form, size = source.format(), self._manifest.settings.image_size
        if form.is_text:
            raise texts_need_an_encoder()
        if form.dtype == "int64":
            self._check_integers()
        if size is not None and form.is_image and form.shape[1:] != size:
            raise LearnerError(
                f"image_size is {size[0]} x {size[1]}, but the arrays have {form.shape[1]} x "
                f"{form.shape[2]} pixels. Resize them, or give image files, which are resized."
            )
        return form

    def _check_integers(self) -> None:
        settings = self._manifest.settings
        own = settings.freeze or settings.net in (OWN_MODULE, OWN_BACKBONE)
        if not own and not names_own_code(settings.net):
            raise LearnerError(
                f"integers, such as token ids, need a net of your own with an nn.Embedding; "
                f"{settings.net} takes numbers: convert them by inputs.astype(np.float32)"
            )
        if settings.augment or not isinstance(settings.normalise, str):
            raise LearnerError(
                "integers are passed to the net as they are: leave out augment and normalise"
            )

    def _first_data(
        self, form: InputFormat, rows: StoredRows, learnt: npt.NDArray[np.int64]
    ) -> DataNote:
        settings = self._manifest.settings
        if self._architecture.frozen:
            assert self._architecture.given is not None
            shape = feature_shape(self._architecture.given, form.shape)
            features = InputFormat(shape=(math.prod(shape),), dtype="float32")
            return DataNote(
                inputs=form,
                seen=self._given_seen(form),
                features=features,
                features_seen=staging.moments(rows, learnt, 1.0),
            )
        as_it_is = settings.net == "mlp" and form.is_image and form.dtype == "uint8"
        if (
            settings.normalise != "auto"
            or settings.has_own_weights
            or as_it_is
            or form.dtype == "int64"
        ):
            return DataNote(inputs=form, seen=self._given_seen(form))
        return DataNote(inputs=form, seen=staging.moments(rows, learnt, _scale(form)))

    def _given_seen(self, form: InputFormat) -> Seen:
        """How inputs are seen by a net that brings its own weights, or where the user says it."""
        normalise = self._manifest.settings.normalise
        if isinstance(normalise, str):
            return Seen(scale=_scale(form))
        mean, std = normalise
        if len(mean) != form.shape[0] or len(std) != form.shape[0]:
            raise LearnerError(
                f"normalise has {len(mean)} means and {len(std)} deviations, but the inputs have "
                f"{form.shape[0]} channels"
            )
        return Seen(scale=_scale(form), mean=mean, std=std)


def _scale(form: InputFormat) -> float:
    return 1 / 255 if form.dtype == "uint8" else 1.0
