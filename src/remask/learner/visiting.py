"""A visit from samples on disk to its end: train, measure, and commit all of it at once."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.engine import Position, TrialStack
from remask.engine.checkpoints import CheckpointFolder
from remask.learner import staging
from remask.learner.accounts import Choice, Visit
from remask.learner.architecture import Architecture
from remask.learner.calibration import calibrate
from remask.learner.choosing import candidate_configs, choose, copies, one_of
from remask.learner.errors import LearnerError
from remask.learner.examining import Examiner
from remask.learner.folder import LearnerFolder
from remask.learner.heldout import LABELS, SOURCES, HeldOut
from remask.learner.prediction import per_class
from remask.learner.segments import ChosenRows, joined, open_segments, rewrite
from remask.learner.settings import most_epochs, places, trial_config
from remask.learner.staging import Staged
from remask.learner.state import MEMORY_LABELS, MEMORY_SOURCES, taking_over
from remask.learner.training import (
    OnProgress,
    Trained,
    VisitTraining,
    all_diverged,
    make_stack,
    outputs_for,
)
from remask.memory import EMPTY, JoinedRows
from remask.methods import Method

_SLOWER = (1.0, 0.3, 0.1, 0.03)
"""What the learning rate is multiplied by, one after the other, until training does not diverge."""


class Visiting:
    """Learns what was staged, as one visit of a learner."""

    def __init__(
        self,
        folder: LearnerFolder,
        staged: Staged,
        architecture: Architecture,
        method: type[Method],
        device: torch.device,
        *,
        compile: bool = False,  # noqa: A002
    ) -> None:
        self._folder, self._staged, self._compile = folder, staged, compile
        self._architecture, self._method, self._device = architecture, method, device
        self._before = folder.manifest
        self._old = folder.read_state() if self._before.state else None
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
        self._segments = open_segments(folder)
        self._first = sum(map(len, self._segments))  # the number of the visit's first sample
        rows = joined(self._segments, staged.inputs)
        assert rows is not None
        self._rows: JoinedRows = rows
        aside = staging.held_out(staged.labels, self._before.settings.seed, self._before.tasks)
        self._learnt = (~aside).nonzero().squeeze(-1)
        held = HeldOut.of(self._old).and_also(
            self._first + aside.nonzero().squeeze(-1), staged.labels[aside]
        )
        self._examiner = Examiner(held, rows, architecture, method, device)

    def learn(self, on_progress: OnProgress | None, checkpoint_seconds: float) -> Visit:
        """Train, and make what was learnt part of the learner. All of it, or nothing."""
        before: dict[str, float] = {}
        if self._old is not None:
            known = list(self._before.known)
            before = per_class(*self._examiner.scored(self._before, self._old), known)[0]
        stack, trained = self._trained(on_progress, checkpoint_seconds)
        rated, truth = self._examiner.rated(stack, self._after)
        right = rated.argmax(-1) == truth
        chosen, why = choose(stack, right, truth, self._after.settings)
        if why.lr != (usual := self._config().lr):
            lowered = f"training diverged with a learning rate of {usual:g}; {why.why}"
            why = why.model_copy(update={"why": lowered})
        tensors = one_of(stack.state(), chosen, len(stack.configs))
        visit = self._account(trained, before, tensors, why)
        self._commit(visit, tensors)
        return visit

    def _trained(
        self, on_progress: OnProgress | None, checkpoint_seconds: float
    ) -> tuple[TrialStack, Trained]:
        """Train with the learning rate of the learner, or with the next lower one that works."""
        staged, place = self._staged, self._folder.path / staging.VISIT
        inputs = ChosenRows(staged.inputs, self._learnt.numpy())
        for attempt, share in enumerate(_SLOWER):
            stack = self._make_stack(share)
            folder = place / (f"checkpoints-{attempt}" if attempt else "checkpoints")
            training = VisitTraining(
                stack,
                CheckpointFolder(folder, f"{staged.note.name} {staged.note.fingerprint}"),
                checkpoint_seconds=checkpoint_seconds,
                measure=lambda stack: self._examiner.measured(stack, self._after),
            )
            trained = training.run(inputs, staged.labels[self._learnt], self._begin, on_progress)
            if not all_diverged(stack):
                return stack, trained
        raise LearnerError(
            f"{staged.note.name} cannot be learnt: the loss was no longer a number, with learning "
            f"rates from {self._config().lr:g} down to {self._config().lr * _SLOWER[-1]:g}. The "
            f"learner is as it was. Look for extreme values in the data, or create a learner with "
            f"a lower `lr`."
        )

    def _make_stack(self, share: float) -> TrialStack:
        config = self._config()
        config = config.model_copy(update={"lr": config.lr * share})
        return make_stack(
            self._after,
            candidate_configs(self._after.settings, config, self._method),
            self._method,
            self._architecture,
            self._device,
            self._segments if self._method.draws else None,
            compile=self._compile,
        )

    def _config(self) -> TrialConfig:
        settings, data = self._after.settings, self._staged.note.data
        replayed, _ = places(settings.memory, data.kept.sample_bytes)
        config = trial_config(settings, self._method, replayed)
        epochs = most_epochs(settings, config, len(self._learnt))
        return config.model_copy(update={"epochs": epochs})

    def _begin(self, stack: TrialStack) -> None:
        """Bring the engine to where the learner stands."""
        if self._old is not None:
            assert self._before.state is not None
            saved = {n: t for n, t in self._old.items() if n not in (SOURCES, LABELS)}
            with taking_over(self._folder.path / self._before.state.name):
                stack.grow_from(copies(saved, len(stack.configs)), Position(self._before.tasks))

    def _account(
        self,
        trained: Trained,
        before: dict[str, float],
        tensors: Mapping[str, Tensor],
        choice: Choice,
    ) -> Visit:
        scores, truth = self._examiner.scored(self._after, tensors)
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
        settings = self._after.settings
        held = self._examiner.held.reduced(places_held_out, settings.seed, self._before.tasks)
        tensors, used = {**tensors, **held.tensors()}, held.sources
        if MEMORY_SOURCES in tensors:
            # The engine counts the visit's samples without those that are held out.
            counted, learnt = tensors[MEMORY_SOURCES], self._first + self._learnt
            own = (counted - self._first).clamp(min=0, max=len(learnt) - 1)
            sources = torch.where(counted < self._first, counted, learnt[own])
            used = torch.cat([used, sources[tensors[MEMORY_LABELS].cpu() != EMPTY]])
            tensors[MEMORY_SOURCES] = sources
        rewritten = rewrite(self._folder, self._rows, used)
        tensors = rewritten.renumbered(tensors)
        self._folder.commit(
            self._after.model_copy(
                update={
                    "state": self._folder.write_tensors(
                        "state", tensors, private=self._method.own_memory != "no"
                    ),
                    "segments": rewritten.segments,
                    "calibration": visit.calibration,
                    "history": (*self._before.history, visit),
                    "earlier": self._before.generations(),
                }
            )
        )
