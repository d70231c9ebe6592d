"""A visit: its samples are staged on disk, the model is trained and checked, all is committed."""

from collections import Counter
from datetime import UTC, datetime

import numpy as np
import torch
from torch import Tensor

from remask.data.classes import in_order
from remask.data.readers import SampleReader
from remask.engine import Position, TrialStack
from remask.learner.candidates import Candidate, Chosen, choose, choose_trial, copies
from remask.learner.data import advice_for, first_data, measured
from remask.learner.folder import COUNTS, MEMORY_SOURCES, LearnerFolder, Tensors
from remask.learner.manifest import DataNote
from remask.learner.measuring import calibrate, check_chance, check_drop, per_class
from remask.learner.model import Model
from remask.learner.results import Choice, Visit
from remask.learner.samples import (
    ChosenRows,
    HeldOut,
    Statistics,
    measured_on,
    updated_statistics,
)
from remask.learner.scoring import score_held_out
from remask.learner.settings import LearnerError, VisitRejectedError
from remask.learner.staging import (
    OnProgress,
    ReadSamples,
    Staged,
    choose_held_out,
    fingerprint_of,
)
from remask.learner.training import Training, make_stack
from remask.memory import JoinedRows, StoredRows

_NOT_OF_STACK = ("held_out/", "head/", "statistics/")


def stage_visit(
    folder: LearnerFolder,
    model: Model,
    source: SampleReader,
    name: str,
    discard: bool,
    on_progress: OnProgress | None,
) -> Staged | Visit:
    """Write the samples of a visit to disk; return the visit if it was learnt before.

    If this is interrupted, computed features stay, and the next call uses them. Raises LearnerError
    and DataError.
    """
    manifest, place = folder.manifest, folder.visit
    data = manifest.data or first_data(source, model)
    before = next((v for v in manifest.history if v.name == name and v.samples), None)
    if before is not None:
        return _learnt_before(before, source, data)
    begun = None if discard else place.note()
    unfinished = begun is not None and not begun.rejected
    if begun is not None and unfinished and begun.name != name:
        raise _unfinished(begun.name, begun.began)
    if begun is None:
        place.discard(keep_features=True)
    read = ReadSamples(source, data, manifest.settings.seed, model.features(data), on_progress)
    try:
        rows = place.write_inputs(read)
        fingerprint = read.fingerprint()
        if begun is not None and unfinished and begun.fingerprint != fingerprint:
            raise _unfinished(begun.name, begun.began)
        new = in_order(set(read.names) - manifest.known.keys())
        outputs = {own: len(manifest.classes) + n for n, own in enumerate(new)} | manifest.known
        labels = [outputs[own] for own in read.names]
        held_out = choose_held_out(labels, read.keys)
        if manifest.data is None:
            learnt = np.setdiff1d(np.arange(len(labels)), held_out)
            data = measured(data, manifest.settings, rows, learnt)
        note = place.begin(name, fingerprint, manifest.generation)
    except BaseException:
        if begun is None:
            place.discard(keep_features=True)
        raise
    keys = torch.tensor([read.keys[row] for row in held_out], dtype=torch.int64)
    aside = torch.tensor(held_out, dtype=torch.int64)
    classes = (*manifest.classes, *new)
    return Staged(note, data, classes, rows, torch.tensor(labels), aside, keys)


def _unfinished(name: str, began: str) -> LearnerError:
    return LearnerError(
        f"the visit {name!r} was started on {began[:10]} and is not finished. Learn the same "
        f"samples again under this name to continue it, or discard it: discard=True (--discard)."
    )


def _learnt_before(before: Visit, source: SampleReader, data: DataNote) -> Visit:
    reason = "from other samples"
    if before.fingerprint is None:
        reason = "and a class of it was forgotten since"
    elif fingerprint_of(source, data) == before.fingerprint:
        return before.model_copy(update={"repeated": True})
    raise LearnerError(
        f"a visit {before.name!r} was learnt on {before.finished[:10]}, {reason}. Choose another "
        f"name."
    )


class VisitRun:
    """Learns the staged samples of one visit."""

    def __init__(self, folder: LearnerFolder, staged: Staged, model: Model) -> None:
        self._folder, self._staged, self._model = folder, staged, model
        self._before, self._settings = folder.manifest, folder.manifest.settings
        self._old = folder.read_state() if self._before.state else None
        tasks = self._before.tasks + 1
        update = {"classes": staged.classes, "data": staged.data, "tasks": tasks}
        self._after = self._before.model_copy(update=update)
        self._earlier: list[StoredRows] = [folder.samples()] if self._before.samples else []
        self._rows = JoinedRows([*self._earlier, staged.inputs])
        self._first = len(self._rows) - len(staged.labels)  # the number of the visit's first sample
        everything, aside = torch.arange(len(staged.labels)), staged.held_out
        self._learnt = everything[~torch.isin(everything, aside)]
        held = HeldOut.of(self._old, self._rows)
        self._held = held.and_also(self._first + aside, staged.labels[aside], staged.keys)
        self._training: Training | None = None

    def run(
        self,
        on_progress: OnProgress | None,
        checkpoint_seconds: float,
        *,
        max_drop: float,
        force: bool,
    ) -> Visit:
        """Train, check and commit; all of it, or nothing.

        Raises VisitRejectedError, unless `force` is set.
        """
        features = self._staged.data.features is not None
        statistics = self._statistics() if features and self._settings.heads else None
        notes = {} if statistics is None else statistics.notes
        held, before = measured_on(self._folder, self._after, notes, self._held), None
        if self._old is not None:
            before = score_held_out(held, self._before, self._old, self._model)
        nets, choice = [], Choice(why="")
        if self._settings.trains(features=features):
            stack = self._train(held, on_progress, checkpoint_seconds)
            net, choice = choose_trial(stack, held, self._after, self._model)
            manifest = self._after.model_copy(update={"head": "net", "lr": choice.lr})
            title = self._model.method.title if self._model.method else ""
            nets = [Candidate(f"{title} (replay)", manifest, net)]
        chosen = choose(self._after, statistics, nets, held, self._model)
        if statistics is not None:
            why, head = chosen.why or "as the learner was created", chosen.candidate.manifest.head
            if head == "net":
                why = f"{why}. Among trained heads: {choice.why}"
            choice = choice.model_copy(update={"head": head, "why": why})
        if not force:
            self._check(before, chosen, max_drop)
        visit = self._result(before, chosen, choice)
        self._commit(visit, chosen, nets[0].tensors if nets else {}, statistics)
        return visit

    def _statistics(self) -> Statistics:
        staged = self._staged
        learnt, held = (
            (staged.inputs.take(rows), staged.labels[rows])
            for rows in (self._learnt, staged.held_out)
        )
        aside = held if self._settings.memory == 0 else None
        return updated_statistics(self._folder, self._after, self._old, learnt, aside)

    def _check(self, before: tuple[Tensor, Tensor] | None, chosen: Chosen, max_drop: float) -> None:
        name, scores, truth = self._staged.note.name, chosen.scores, chosen.truth
        advice = advice_for(self._settings, self._staged.data)
        new = truth >= len(self._before.known)
        try:
            check_chance(name, scores, truth, advice)
            check_chance(name, scores[new], truth[new], advice)
            if before is not None:
                old = [list(self._after.known).index(each) for each in self._before.known]
                check_drop(name, before, (scores, truth), old, max_drop, advice)
        except VisitRejectedError:
            if self._training is not None:
                self._training.save()
            self._folder.visit.reject(self._staged.note)
            self._folder.remove_leftovers()
            raise

    def _train(
        self, held: HeldOut, on_progress: OnProgress | None, checkpoint_seconds: float
    ) -> TrialStack:
        """Train all candidates. Raises LearnerError if all of them diverge."""
        staged, count = self._staged, len(self._learnt)
        seen = count + (0 if self._old is None else int(self._old[COUNTS].sum()))
        stack = make_stack(
            self._after, self._model, count, seen=seen, earlier_samples=self._earlier
        )
        if self._old is not None:
            saved = {n: own for n, own in self._old.items() if not n.startswith(_NOT_OF_STACK)}
            stack.grow_from(copies(saved, len(stack.configs)), Position(self._before.tasks))
        checkpoints = self._folder.visit.checkpoints(staged.note)
        self._training = Training(
            stack, held, self._after, self._model.device, checkpoints, checkpoint_seconds
        )
        inputs = ChosenRows(staged.inputs, self._learnt)
        self._training.run(inputs, staged.labels[self._learnt], on_progress)
        if self._training.all_diverged():
            raise LearnerError(
                f"{staged.note.name} cannot be learnt: the loss was not a number, with learning "
                f"rates down to {min(config.lr for config in stack.configs):g}. The learner is as "
                f"it was. Look for extreme values in the data, or create a learner with a lower "
                f"`lr`."
            )
        return stack

    def _result(
        self, before: tuple[Tensor, Tensor] | None, chosen: Chosen, choice: Choice
    ) -> Visit:
        accuracy, counts = per_class(chosen.scores, chosen.truth, list(self._after.known))
        staged, training = self._staged, self._training
        sizes = Counter(self._staged.labels[self._learnt].tolist())
        return Visit(
            name=staged.note.name,
            number=len(self._before.history) + 1,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=round(training.seconds, 3) if training else 0.0,
            steps=training.steps if training else 0,
            epochs=training.epochs if training else 0,
            samples={str(staged.classes[label]): sizes[label] for label in sorted(sizes)},
            new_classes=tuple(map(str, staged.classes[len(self._before.classes) :])),
            before={} if before is None else per_class(*before, list(self._before.known))[0],
            accuracy=accuracy,
            held_out=counts,
            choice=choice,
            calibration=calibrate(chosen.scores, chosen.truth),
            fingerprint=staged.note.fingerprint,
        )

    def _commit(
        self, visit: Visit, chosen: Chosen, net: Tensors, statistics: Statistics | None
    ) -> None:
        _, places = self._settings.places(self._staged.data.kept.sample_bytes)
        tensors = {**net, **chosen.candidate.tensors, **self._held.reduced(places).tensors()}
        update: dict[str, object] = {
            "calibration": visit.calibration,
            "history": (*self._before.history, visit),
            "earlier": self._before.generations(),
            "lr": visit.choice.lr,
        }
        if statistics is not None:
            tensors |= statistics.tensors()
            update["statistics"] = statistics.notes
        if MEMORY_SOURCES in tensors:
            # The engine counts the visit's samples without those that are held out.
            rows = torch.cat([torch.arange(self._first), self._first + self._learnt])
            tensors[MEMORY_SOURCES] = rows[tensors[MEMORY_SOURCES].cpu()]
        method = self._model.method
        private = method is not None and method.own_memory != "no"
        update |= self._folder.save(tensors, self._rows, private=private)
        self._folder.commit(chosen.candidate.manifest.model_copy(update=update))
