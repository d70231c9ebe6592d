"""A visit from beginning to end: stage the samples, train, measure, commit all of it at once."""

import math
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from remask.engine import Position, TrialStack
from remask.learner import staging
from remask.learner.accounts import Choice, Visit
from remask.learner.architecture import Architecture, feature_shape
from remask.learner.calibration import calibrate, class_weights
from remask.learner.errors import LearnerError
from remask.learner.folder import LearnerFolder
from remask.learner.heldout import HeldOut
from remask.learner.manifest import DataNote, InputFormat, Manifest, Seen
from remask.learner.prediction import Scorer, as_seen, featuriser, kept_scores, per_class, scorer
from remask.learner.reading import Source, in_order
from remask.learner.settings import most_epochs, places, trial_config
from remask.learner.staging import Staged, VisitNote
from remask.learner.training import Measured, OnProgress, VisitTraining, make_stack, outputs_for
from remask.methods import Method
from remask.setting_types import write_mask

_ROWS_AT_ONCE = 256


class Visiting:
    """Learns the samples of a source as one visit of a learner."""

    def __init__(
        self,
        folder: LearnerFolder,
        architecture: Architecture,
        method: type[Method],
        device: torch.device,
        checkpoint_seconds: float,
    ) -> None:
        self._folder, self._architecture, self._method = folder, architecture, method
        self._device, self._checkpoint_seconds = device, checkpoint_seconds
        self._place = folder.path / staging.VISIT

    @property
    def _manifest(self) -> Manifest:
        return self._folder.manifest

    def stage(self, source: Source, name: str, *, discard: bool) -> Staged | Visit:
        """Have the samples of a visit on disk; or if it was learnt before, its account."""
        manifest = self._manifest
        form = manifest.data.inputs if manifest.data else self._first_format(source)
        before = next((visit for visit in manifest.history if visit.name == name), None)
        if before is not None:
            if staging.fingerprint_of(source, form) == before.fingerprint:
                return before
            raise LearnerError(
                f"a visit {name!r} was learnt on {before.finished[:10]}, from other samples. "
                f"Choose another name."
            )
        begun = staging.unfinished(self._place)
        if begun is not None and not discard:
            same = begun.name == name and staging.fingerprint_of(source, form) == begun.fingerprint
            if not same or begun.generation != manifest.generation:
                raise LearnerError(
                    f"the visit {begun.name!r} was begun on {begun.began[:10]} and is not "
                    f"finished. Learn the same samples again under this name to go on with it, or "
                    f"give it up: discard=True (--discard)."
                )
            return staging.take_up(self._place, begun)
        featurise = None
        if self._architecture.frozen:
            assert self._architecture.given is not None
            seen = manifest.data.seen if manifest.data else self._given_seen(form)
            featurise = featuriser(self._architecture.given, seen, self._device)

        def describe(fingerprint: str, rows: npt.NDArray[Any], names: list[str]) -> VisitNote:
            return self._describe(name, fingerprint, form, rows, names)

        return staging.stage(self._place, source, form, featurise, describe)

    def learn(self, staged: Staged, on_progress: OnProgress | None) -> Visit:
        """Train on what was staged, and make it part of the learner. All of it, or nothing."""
        manifest, note = self._manifest, staged.note
        outputs = outputs_for(len(note.classes), manifest.outputs)
        aside = staging.held_out(staged.labels, manifest.settings.seed, manifest.tasks)
        learnt = (~aside).nonzero().squeeze(-1)
        replayed, kept_out = places(manifest.settings.memory, note.data.kept.sample_bytes)
        config = trial_config(manifest.settings, self._method, replayed)
        epochs = most_epochs(manifest.settings, config, len(learnt))
        config = config.model_copy(update={"epochs": epochs})
        stack = make_stack(
            manifest.settings,
            config,
            note.data,
            outputs,
            self._method,
            self._architecture,
            self._device,
        )
        old = self._folder.read_tensors(manifest.state) if manifest.state else None
        held = HeldOut.of(old, note.data.kept)
        everyone = held.and_also(staged.inputs[aside], staged.labels[aside])
        before = self._accuracy_before(old, everyone)

        def begin(stack: TrialStack) -> None:
            if old is not None:
                saved = {n: t for n, t in old.items() if not n.startswith("held_out/")}
                stack.restore(saved, Position(manifest.tasks))

        training = VisitTraining(
            stack,
            self._place / "checkpoints",
            f"{note.name} {note.fingerprint}",
            checkpoint_seconds=self._checkpoint_seconds,
            measure=lambda stack: _measure(stack, everyone, note),
        )
        trained = training.run(staged.inputs[learnt], staged.labels[learnt], begin, on_progress)
        tensors = {**stack.state()}
        planned = manifest.model_copy(
            update={
                "classes": note.classes,
                "outputs": outputs,
                "data": note.data,
                "tasks": manifest.tasks + 1,
            }
        )
        module = scorer(planned, tensors, self._method, self._architecture, temperature=1.0)
        scores = self._scores(module, everyone, note.data)
        truth = _columns(everyone.labels, planned)
        accuracy, counts = per_class(scores, truth, list(planned.known))
        calibration = calibrate(scores, truth)
        kept = everyone.reduced(kept_out, manifest.settings.seed, manifest.tasks)
        new = [name for name in note.classes[len(manifest.classes) :] if name is not None]
        names = {output: name for name, output in planned.known.items()}
        sizes = Counter(staged.labels[learnt].tolist())
        visit = Visit(
            name=note.name,
            number=len(manifest.history) + 1,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=round(trained.seconds, 3),
            steps=trained.steps,
            epochs=trained.epochs,
            samples={names[label]: sizes[label] for label in sorted(sizes)},
            new_classes=tuple(new),
            before=before,
            accuracy=accuracy,
            held_out=counts,
            choice=self._choice(stack),
            calibration=calibration,
            fingerprint=note.fingerprint,
        )
        state = self._folder.write_tensors("state", {**tensors, **kept.tensors()})
        given = manifest.given if self._architecture.frozen else None
        self._folder.commit(
            planned.model_copy(
                update={
                    "state": state,
                    "given": given,
                    "calibration": calibration,
                    "history": (*manifest.history, visit),
                }
            )
        )
        staging.discard(self._place)
        return visit

    def _describe(
        self,
        name: str,
        fingerprint: str,
        form: InputFormat,
        rows: npt.NDArray[Any],
        names: list[str],
    ) -> VisitNote:
        """The note of a visit: the outputs of its classes, and at first what the data are like."""
        manifest = self._manifest
        known = manifest.known
        classes = (*manifest.classes, *in_order(set(names) - known.keys()))
        outputs = {name: number for number, name in enumerate(classes) if name is not None}
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
        if size is not None and form.is_image and form.shape[1:] != size:
            raise LearnerError(
                f"image_size is {size[0]} x {size[1]}, but the arrays have {form.shape[1]} x "
                f"{form.shape[2]} pixels. Resize them, or give image files, which are resized."
            )
        return form

    def _first_data(
        self, form: InputFormat, rows: npt.NDArray[Any], learnt: npt.NDArray[Any]
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
        if settings.normalise != "auto" or settings.has_own_weights or as_it_is:
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

    def _accuracy_before(self, old: dict[str, Tensor] | None, held: HeldOut) -> dict[str, float]:
        """How right the learner is before the visit, about classes that it knows."""
        manifest = self._manifest
        if old is None or manifest.data is None:
            return {}
        module = scorer(manifest, old, self._method, self._architecture)
        known = torch.tensor(list(manifest.known.values()))
        there = held.of_labels(known)
        scores = self._scores(module, there, manifest.data)
        return per_class(scores, _columns(there.labels, manifest), list(manifest.known))[0]

    def _scores(self, module: Scorer, held: HeldOut, data: DataNote) -> Tensor:
        return kept_scores(module.to(self._device), held.inputs, data.kept_seen, self._device)

    def _choice(self, stack: TrialStack) -> Choice:
        config = stack.configs[0]
        return Choice(
            mask=str("none" if config.mask is None else write_mask(config.mask)),
            fade=config.fade,
            lr=config.lr,
            why=f"the usual settings of {self._method.title}",
        )


def _scale(form: InputFormat) -> float:
    return 1 / 255 if form.dtype == "uint8" else 1.0


def _columns(labels: Tensor, manifest: Manifest) -> Tensor:
    """The columns of the scores that stand for outputs [n]."""
    column_of = torch.full((max(len(manifest.classes), 1),), -1)
    outputs = torch.tensor(list(manifest.known.values()), dtype=torch.int64)
    column_of[outputs] = torch.arange(len(outputs))
    return column_of[labels]


@torch.no_grad()
def _measure(stack: TrialStack, held: HeldOut, note: VisitNote) -> Measured:
    """Accuracy and log-likelihood of held-out samples now, every class weighing the same."""
    if not len(held.labels):
        return Measured(0.0, 0.0)
    known = torch.tensor([name is not None for name in note.classes])
    parts = []
    for inputs in torch.split(held.inputs, _ROWS_AT_ONCE):
        seen = as_seen(inputs, note.data.kept_seen, "cpu")
        scores = stack.scores(seen, stack.position.task)[0].cpu()[:, : len(known)]
        parts.append(scores.masked_fill(~known, -torch.inf).double().log_softmax(1))
    logs, weights = torch.cat(parts), class_weights(held.labels)
    likelihood = logs.gather(1, held.labels.unsqueeze(1)).squeeze(1)
    return Measured(
        float((weights * (logs.argmax(1) == held.labels)).sum()),
        float((weights * likelihood).sum()),
    )
