"""A visit from samples on disk to its end: train, measure, and commit all of it at once."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.engine import Position, TrialStack
from remask.engine.checkpoints import CheckpointFolder
from remask.learner import guards, staging
from remask.learner.accounts import Choice, Visit
from remask.learner.architecture import Parts
from remask.learner.calibration import calibrate
from remask.learner.choosing import candidate_configs, compare, compare_trials, copies, one_of
from remask.learner.encoding import OnProgress
from remask.learner.errors import LearnerError, VisitRejectedError
from remask.learner.examining import Examiner, drawn_examiner
from remask.learner.folder import LearnerFolder
from remask.learner.heldout import KEYS, LABELS, SOURCES, HeldOut
from remask.learner.manifest import Manifest
from remask.learner.prediction import per_class
from remask.learner.segments import ChosenRows, joined, open_segments, rewrite
from remask.learner.settings import most_epochs, places, trial_config
from remask.learner.staging import Staged
from remask.learner.state import MEMORY_LABELS, MEMORY_SOURCES, taking_over
from remask.learner.statistics import (
    HEAD,
    POOLED,
    ClassFiles,
    Samples,
    Updated,
    fitted,
    pooled_tensors,
)
from remask.learner.training import (
    Trained,
    VisitTraining,
    all_diverged,
    make_stack,
    outputs_for,
)
from remask.memory import EMPTY, JoinedRows

_SLOWER = (1.0, 0.1, 0.01)
"""What learning rates are multiplied by, one after the other, until training does not diverge."""
_OF_LEARNER = (SOURCES, LABELS, KEYS)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A state that the learner could have after the visit."""

    manifest: Manifest
    tensors: dict[str, Tensor]
    """What predicts; what else is saved is the same for all candidates."""


class Visiting:
    """Learns what was staged, as one visit of a learner."""

    def __init__(self, folder: LearnerFolder, staged: Staged, parts: Parts) -> None:
        self._folder, self._staged, self._parts = folder, staged, parts
        self._before = folder.manifest
        self._settings = folder.manifest.settings
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
        self._segments = open_segments(folder)
        self._first = sum(map(len, self._segments))  # the number of the visit's first sample
        rows = joined(self._segments, staged.inputs)
        assert rows is not None
        self._rows: JoinedRows = rows
        self._aside = torch.tensor(note.aside, dtype=torch.int64)
        aside = torch.zeros(len(staged.labels), dtype=torch.bool)
        aside[self._aside] = True
        self._learnt = (~aside).nonzero().squeeze(-1)
        self._held = HeldOut.of(self._old).and_also(
            self._first + self._aside,
            staged.labels[self._aside],
            torch.tensor(note.keys, dtype=torch.int64),
        )
        has_features = note.data.features is not None
        self._heads = self._settings.heads if has_features else ()
        self._trains = self._settings.trains(features=has_features)
        self._training: VisitTraining | None = None
        self._share = 1.0  # of the usual learning rates

    def learn(
        self,
        on_progress: OnProgress | None,
        checkpoint_seconds: float,
        *,
        max_drop: float = guards.MAX_DROP,
        force: bool = False,
        advice: str = "",
    ) -> Visit:
        """Train, and make what was learnt part of the learner. All of it, or nothing.

        Raises VisitRejectedError, unless `force` is set.
        """
        statistics = self._statistics() if self._heads else None
        examiner = self._examiner(statistics)
        scored_before = None
        if self._old is not None:
            scored_before = examiner.scored(self._before, self._old)
        trained = Trained(0, 0, 0.0)
        candidates = [self._closed_form(name, statistics) for name in self._heads]
        names: list[str] = list(self._heads)
        choice = None
        if self._trains:
            stack, trained = self._trained(examiner, on_progress, checkpoint_seconds)
            rated, truth = examiner.rated(stack, self._after)
            number, choice = compare_trials(stack, rated.argmax(-1) == truth, truth, self._settings)
            choice = self._with_diverged(choice)
            net = one_of(stack.state(), number, len(stack.configs))
            manifest = self._after.model_copy(update={"head": "net", "lr": choice.lr})
            candidates.append(_Candidate(manifest, net))
            names.append(f"{self._parts.method.title if self._parts.method else ''} (replay)")
        scores = [examiner.scored(each.manifest, each.tensors) for each in candidates]
        right = torch.stack([rated.argmax(1) == truth for rated, truth in scores])
        found = compare(names, right, scores[0][1], [True] * len(candidates))
        chosen = candidates[found.chosen]
        choice = self._choice(chosen, choice, found.why, statistics)
        best = scores[found.chosen]
        if not force:
            self._check(scored_before, best, max_drop, advice)
        visit = self._account(trained, scored_before, best, choice)
        extra = {} if not self._trains else candidates[-1].tensors
        self._commit(visit, chosen, {**extra, **chosen.tensors}, statistics, choice)
        return visit

    def _with_diverged(self, choice: Choice) -> Choice:
        """The choice, with the learning rate that diverged if all candidates did at first."""
        if self._share == 1:
            return choice
        usual = self._before.lr or self._config().lr
        why = f"training diverged with a learning rate of {usual:g}; {choice.why}"
        return choice.model_copy(update={"why": why})

    def _examiner(self, statistics: Updated | None) -> Examiner:
        """Measures on held-out samples; without a memory, on samples like those of each class."""
        if self._settings.memory != 0 or statistics is None or not statistics.exact:
            return Examiner(self._held, self._rows, self._parts)
        return drawn_examiner(ClassFiles(self._folder, self._after), statistics, self._parts)

    def _statistics(self) -> Updated:
        """Statistics with the samples of this visit, in files that the next manifest may name."""
        inputs, labels = self._staged.inputs, self._staged.labels

        def samples(rows: Tensor) -> Samples:
            return Samples(inputs.take(rows), labels[rows])

        held = samples(self._aside) if self._settings.memory == 0 else None
        files = ClassFiles(self._folder, self._after)
        return files.updated(self._old, self._after.outputs, samples(self._learnt), held)

    def _closed_form(self, name: str, statistics: Updated | None) -> _Candidate:
        assert statistics is not None
        manifest = self._after.model_copy(update={"head": name})
        return _Candidate(manifest, fitted(name, statistics.pooled))  # type: ignore[arg-type]

    def _choice(
        self, chosen: _Candidate, trained: Choice | None, why: str, statistics: Updated | None
    ) -> Choice:
        """The settings of the visit: what predicts, and what the net was trained with."""
        head = chosen.manifest.head
        if trained is None:
            trained = Choice(why="")
        if not self._heads:
            return trained
        why = why or "as the learner was created"
        if statistics is not None and not statistics.exact and self._before.exact:
            why += (
                f". Statistics of each class exceed {self._settings.statistics_bytes:,} bytes "
                f"(statistics_bytes): only their sum is stored from now on, so that forgetting a "
                f"class is not exact"
            )
        if head == "net":
            why = f"{why}. Among trained heads: {trained.why}"
        return trained.model_copy(update={"head": head, "why": why})

    def _check(
        self,
        before: tuple[Tensor, Tensor] | None,
        after: tuple[Tensor, Tensor],
        max_drop: float,
        advice: str,
    ) -> None:
        name = self._staged.note.name
        try:
            guards.check_chance(name, *after, advice)
            scores, truth = after
            new = truth >= len(self._before.known)
            guards.check_chance(name, scores[new], truth[new], advice)
            if before is not None:
                old = [list(self._after.known).index(each) for each in self._before.known]
                guards.check_drop(name, before, after, old, max_drop, advice)
        except VisitRejectedError:
            if self._training is not None:
                self._training.save()
            staging.reject(self._folder.path / staging.VISIT)
            self._folder.remove_leftovers()
            raise

    def _trained(
        self, examiner: Examiner, on_progress: OnProgress | None, checkpoint_seconds: float
    ) -> tuple[TrialStack, Trained]:
        """Train with several learning rates, or with lower ones if all of them diverge."""
        staged, place = self._staged, self._folder.path / staging.VISIT
        inputs = ChosenRows(staged.inputs, self._learnt.numpy())
        for attempt, share in enumerate(_SLOWER):
            stack, self._share = self._make_stack(share), share
            folder = place / (f"checkpoints-{attempt}" if attempt else "checkpoints")
            self._training = VisitTraining(
                stack,
                CheckpointFolder(folder, f"{staged.note.name} {staged.note.fingerprint}"),
                checkpoint_seconds=checkpoint_seconds,
                measure=lambda stack: examiner.measured(stack, self._after),
            )
            trained = self._training.run(
                inputs, staged.labels[self._learnt], self._begin, on_progress
            )
            if not all_diverged(stack):
                return stack, trained
        raise LearnerError(
            f"{staged.note.name} cannot be learnt: the loss was not a number, with learning rates "
            f"down to {min(config.lr for config in stack.configs):g}. The learner is as it was. "
            f"Look for extreme values in the data, or create a learner with a lower `lr`."
        )

    def _make_stack(self, share: float) -> TrialStack:
        config, remembered = self._config(), self._before.lr
        if share != 1:
            config = config.model_copy(update={"lr": config.lr * share})
            remembered = None if remembered is None else remembered * share
        method = self._parts.method
        assert method is not None
        settings = self._settings
        if settings.lr is not None:
            settings = settings.model_copy(update={"lr": config.lr})
        seen = len(self._learnt)
        if self._old is not None:
            seen += int(self._old["stream/counts"].sum())
        configs = candidate_configs(settings, config, method, remembered=remembered, samples=seen)
        return make_stack(
            self._after,
            configs,
            method,
            self._parts.architecture(self._after.data),
            self._parts.device,
            self._segments if method.draws else None,
        )

    def _config(self) -> TrialConfig:
        settings, data = self._settings, self._staged.note.data
        assert self._parts.method is not None
        replayed, _ = places(settings.memory, data.kept.sample_bytes)
        config = trial_config(settings, self._parts.method, replayed, data.net)
        epochs = most_epochs(settings, config, len(self._learnt), data.net)
        return config.model_copy(update={"epochs": epochs})

    def _begin(self, stack: TrialStack) -> None:
        """Bring the engine to where the learner stands."""
        if self._old is not None:
            assert self._before.state is not None
            saved = {
                name: tensor
                for name, tensor in self._old.items()
                if name not in _OF_LEARNER and not name.startswith((HEAD, POOLED))
            }
            with taking_over(self._folder.path / self._before.state.name):
                stack.grow_from(copies(saved, len(stack.configs)), Position(self._before.tasks))

    def _account(
        self,
        trained: Trained,
        scored_before: tuple[Tensor, Tensor] | None,
        best: tuple[Tensor, Tensor],
        choice: Choice,
    ) -> Visit:
        before = {}
        if scored_before is not None:
            before = per_class(*scored_before, list(self._before.known))[0]
        accuracy, counts = per_class(*best, list(self._after.known))
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
            calibration=calibrate(*best),
            fingerprint=note.fingerprint,
        )

    def _commit(
        self,
        visit: Visit,
        chosen: _Candidate,
        tensors: Mapping[str, Tensor],
        statistics: Updated | None,
        choice: Choice,
    ) -> None:
        settings = self._settings
        _, places_held_out = places(settings.memory, self._staged.note.data.kept.sample_bytes)
        held = self._held.reduced(places_held_out)
        tensors, used = {**tensors, **held.tensors()}, held.sources
        if statistics is not None:
            tensors |= pooled_tensors(statistics.pooled)
        if MEMORY_SOURCES in tensors:
            # The engine counts the visit's samples without those that are held out.
            counted, learnt = tensors[MEMORY_SOURCES], self._first + self._learnt
            own = (counted - self._first).clamp(min=0, max=len(learnt) - 1)
            sources = torch.where(counted < self._first, counted, learnt[own])
            used = torch.cat([used, sources[tensors[MEMORY_LABELS].cpu() != EMPTY]])
            tensors[MEMORY_SOURCES] = sources
        rewritten = rewrite(self._folder, self._rows, used)
        tensors = rewritten.renumbered(tensors)
        private = self._parts.method is not None and self._parts.method.own_memory != "no"
        update = {
            "state": self._folder.write_tensors("state", tensors, private=private),
            "segments": rewritten.segments,
            "calibration": visit.calibration,
            "history": (*self._before.history, visit),
            "earlier": self._before.generations(),
            "lr": choice.lr,
        }
        if statistics is not None:
            update |= {"statistics": statistics.notes, "exact": statistics.exact}
        self._folder.commit(chosen.manifest.model_copy(update=update))
