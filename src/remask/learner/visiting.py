"""A visit from samples on disk to its end: train, measure, and commit all of it at once."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.engine import Position, TrialStack
from remask.learner import staging
from remask.learner.accounts import Choice, Visit
from remask.learner.architecture import Architecture
from remask.learner.calibration import calibrate, class_weights
from remask.learner.choosing import candidate_configs, choose, copies, one_of
from remask.learner.folder import LearnerFolder
from remask.learner.heldout import LABELS, SOURCES, HeldOut
from remask.learner.manifest import Manifest
from remask.learner.prediction import as_seen, columns_of, kept_scores, per_class, scorer
from remask.learner.segments import ChosenRows, joined, open_segments, rewrite
from remask.learner.settings import most_epochs, places, trial_config
from remask.learner.staging import Staged
from remask.learner.training import (
    Measured,
    OnProgress,
    Trained,
    VisitTraining,
    make_stack,
    outputs_for,
)
from remask.memory import EMPTY, JoinedRows
from remask.methods import Method

MEMORY_SOURCES, MEMORY_LABELS = "memory/sources", "memory/labels"


class Visiting:
    """Learns what was staged, as one visit of a learner."""

    def __init__(
        self,
        folder: LearnerFolder,
        staged: Staged,
        architecture: Architecture,
        method: type[Method],
        device: torch.device,
    ) -> None:
        self._folder, self._staged = folder, staged
        self._architecture, self._method, self._device = architecture, method, device
        self._before = folder.manifest
        self._old = folder.read_tensors(self._before.state) if self._before.state else None
        note = staged.note
        self._after = self._before.model_copy(
            update={
                "classes": note.classes,
                "outputs": outputs_for(len(note.classes), self._before.outputs),
                "data": note.data,
                "tasks": self._before.tasks + 1,
            }
        )
        self._seen = note.data.kept_seen
        segments = open_segments(folder)
        self._first = sum(map(len, segments))  # the number of the visit's first sample
        rows = joined(segments, staged.inputs)
        assert rows is not None
        self._rows: JoinedRows = rows
        aside = staging.held_out(staged.labels, self._before.settings.seed, self._before.tasks)
        self._learnt = (~aside).nonzero().squeeze(-1)
        self._held = HeldOut.of(self._old).and_also(
            self._first + aside.nonzero().squeeze(-1), staged.labels[aside]
        )
        self._stack = make_stack(
            self._after,
            candidate_configs(self._after.settings, self._config(), method),
            self._method,
            architecture,
            device,
            segments if method.draws else None,
        )

    def learn(self, on_progress: OnProgress | None, checkpoint_seconds: float) -> Visit:
        """Train, and make what was learnt part of the learner. All of it, or nothing."""
        staged, place = self._staged, self._folder.path / staging.VISIT
        training = VisitTraining(
            self._stack,
            place / "checkpoints",
            f"{staged.note.name} {staged.note.fingerprint}",
            checkpoint_seconds=checkpoint_seconds,
            measure=self._measure,
        )
        before = self._accuracy_before()
        inputs = ChosenRows(staged.inputs, self._learnt.numpy())
        trained = training.run(inputs, staged.labels[self._learnt], self._begin, on_progress)
        right = self._rated(self._stack).argmax(-1) == self._held.labels
        chosen, why = choose(self._stack, right, self._held.labels, self._after.settings)
        tensors = one_of(self._stack.state(), chosen, len(self._stack.configs))
        visit = self._account(trained, before, tensors, why)
        self._commit(visit, tensors)
        staging.discard(place)
        return visit

    def _config(self) -> TrialConfig:
        settings, data = self._after.settings, self._staged.note.data
        replayed, _ = places(settings.memory, data.kept.sample_bytes)
        config = trial_config(settings, self._method, replayed)
        epochs = most_epochs(settings, config, len(self._learnt))
        return config.model_copy(update={"epochs": epochs})

    def _begin(self, stack: TrialStack) -> None:
        """Bring the engine to where the learner stands."""
        if self._old is not None:
            saved = {n: t for n, t in self._old.items() if n not in (SOURCES, LABELS)}
            stack.restore(copies(saved, len(stack.configs)), Position(self._before.tasks))

    @torch.no_grad()
    def _rated(self, stack: TrialStack) -> Tensor:
        """Log-probabilities that each candidate now gives to held-out samples, [C, n, classes]."""
        known = torch.tensor([name is not None for name in self._after.classes])
        parts = [torch.zeros(len(stack.configs), 0, len(known), dtype=torch.float64)]
        for inputs in self._held.inputs(self._rows):
            seen = as_seen(inputs, self._seen, self._device)
            scores = stack.scores(seen, stack.position.task)[..., : len(known)].cpu()
            parts.append(scores.masked_fill(~known, -torch.inf).double().log_softmax(-1))
        return torch.cat(parts, dim=1)

    def _measure(self, stack: TrialStack) -> Measured:
        """How good the default candidate is now, every class weighing the same."""
        if not len(self._held):
            return Measured(0.0, 0.0)
        logs, truth = self._rated(stack)[0], self._held.labels
        weights, likelihood = class_weights(truth), logs.gather(1, truth.unsqueeze(1)).squeeze(1)
        return Measured(
            float((weights * (logs.argmax(1) == truth)).sum()), float((weights * likelihood).sum())
        )

    def _accuracy_before(self) -> dict[str, float]:
        """How right the learner is before the visit, about classes that it knows."""
        if self._old is None:
            return {}
        known = torch.tensor(list(self._before.known.values()))
        scores, truth = self._scores(self._before, self._old, self._held.of_labels(known))
        return per_class(scores, truth, list(self._before.known))[0]

    def _scores(
        self, manifest: Manifest, tensors: Mapping[str, Tensor], held: HeldOut
    ) -> tuple[Tensor, Tensor]:
        """What a state says of held-out samples, uncalibrated, and the true columns."""
        module = scorer(manifest, tensors, self._method, self._architecture, temperature=1.0)
        inputs = held.inputs(self._rows)
        scores = kept_scores(module.to(self._device), inputs, self._seen, self._device)
        return scores, columns_of(held.labels, manifest)

    def _account(
        self,
        trained: Trained,
        before: dict[str, float],
        tensors: Mapping[str, Tensor],
        choice: Choice,
    ) -> Visit:
        scores, truth = self._scores(self._after, tensors, self._held)
        accuracy, counts = per_class(scores, truth, list(self._after.known))
        note, known = self._staged.note, len(self._before.classes)
        sizes = Counter(self._staged.labels[self._learnt].tolist())
        return Visit(
            name=note.name,
            number=len(self._before.history) + 1,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=round(trained.seconds, 3),
            steps=trained.steps,
            epochs=trained.epochs,
            samples={str(note.classes[label]): sizes[label] for label in sorted(sizes)},
            new_classes=tuple(str(name) for name in note.classes[known:]),
            before=before,
            accuracy=accuracy,
            held_out=counts,
            choice=choice,
            calibration=calibrate(scores, truth),
            fingerprint=note.fingerprint,
        )

    def _commit(self, visit: Visit, tensors: dict[str, Tensor]) -> None:
        _, places_held_out = places(
            self._after.settings.memory, self._staged.note.data.kept.sample_bytes
        )
        held = self._held.reduced(
            places_held_out, self._after.settings.seed, self._before.tasks
        ).tensors()
        used = held[SOURCES]
        if MEMORY_SOURCES in tensors:
            # The engine counts the visit's samples without those that are held out.
            counted = tensors[MEMORY_SOURCES]
            learnt = self._first + self._learnt
            own = (counted - self._first).clamp(min=0, max=len(learnt) - 1)
            sources = torch.where(counted < self._first, counted, learnt[own])
            filled = tensors[MEMORY_LABELS].cpu() != EMPTY
            tensors[MEMORY_SOURCES] = sources.masked_fill(~filled, -1)
            used = torch.cat([used, sources[filled]])
        rewritten = rewrite(self._folder, self._rows, used)
        tensors.update(held)
        for name in tensors.keys() & {SOURCES, MEMORY_SOURCES}:
            tensors[name] = rewritten.renumber(tensors[name])
        self._folder.commit(
            self._after.model_copy(
                update={
                    "state": self._folder.write_tensors("state", tensors),
                    "given": self._before.given if self._architecture.frozen else None,
                    "segments": rewritten.segments,
                    "calibration": visit.calibration,
                    "history": (*self._before.history, visit),
                }
            )
        )
