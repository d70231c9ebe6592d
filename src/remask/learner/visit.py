"""A visit: its samples are staged on disk, the model is trained and checked, all is committed."""

from collections import Counter
from datetime import UTC, datetime

import numpy as np
import torch
from torch import Tensor

from remask.data.classes import in_order
from remask.data.readers import SampleReader
from remask.engine import Position, TrialStack
from remask.learner.choosing import (
    Candidate,
    calibrate,
    check_chance,
    check_drop,
    choose,
    choose_trial,
    per_class,
)
from remask.learner.data import (
    OnProgress,
    VisitReader,
    advice_for,
    choose_held_out,
    first_data,
    measured,
)
from remask.learner.folder import COUNTS, MEMORY_SOURCES, LearnerFolder, Tensors, VisitNote
from remask.learner.manifest import DataNote, Manifest
from remask.learner.model import Model
from remask.learner.results import Choice, Visit
from remask.learner.samples import ChosenRows, HeldOut, Statistics, measured_on
from remask.learner.scoring import Rated, rate
from remask.learner.settings import LearnerError, VisitRejectedError
from remask.learner.training import Training, copies, make_stack
from remask.memory import JoinedRows, MappedRows, StoredRows

_NOT_OF_STACK = ("held_out/", "head/", "statistics/")


def stage_visit(
    folder: LearnerFolder,
    model: Model,
    source: SampleReader,
    name: str,
    discard: bool,
    on_progress: OnProgress | None,
) -> "VisitRun | Visit":
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
    unfinished = begun if begun is not None and not begun.rejected else None
    if unfinished is not None and unfinished.name != name:
        raise _unfinished(unfinished)
    if begun is None:
        place.discard(keep_features=True)
    seed, features = manifest.settings.seed, model.features(data)
    reader = VisitReader(source, data, seed, features, on_progress)
    try:
        inputs = reader.write(place)
        fingerprint = reader.fingerprint()
        if unfinished is not None and unfinished.fingerprint != fingerprint:
            raise _unfinished(unfinished)
        new = in_order(set(reader.names) - manifest.known.keys())
        outputs = {own: len(manifest.classes) + n for n, own in enumerate(new)} | manifest.known
        labels = [outputs[own] for own in reader.names]
        held_out = choose_held_out(labels, reader.keys)
        if manifest.data is None:
            learnt = np.setdiff1d(np.arange(len(labels)), held_out)
            data = measured(data, manifest.settings, inputs, learnt)
        note = begun
        if note is None or (note.name, note.fingerprint) != (name, fingerprint):
            now, number = datetime.now(UTC).isoformat(timespec="seconds"), manifest.generation
            note = VisitNote(name=name, fingerprint=fingerprint, generation=number, began=now)
            place.write_note(note)
    except BaseException:
        if begun is None:
            place.discard(keep_features=True)
        raise
    keys = torch.tensor([reader.keys[row] for row in held_out], dtype=torch.int64)
    aside = torch.tensor(held_out, dtype=torch.int64)
    classes = (*manifest.classes, *new)
    after = manifest.changed(classes=classes, data=data, tasks=manifest.tasks + 1)
    return VisitRun(folder, model, note, after, inputs, torch.tensor(labels), aside, keys)


def _unfinished(note: VisitNote) -> LearnerError:
    return LearnerError(
        f"the visit {note.name!r} was started on {note.began[:10]} and is not finished. Learn the "
        f"same samples again under this name to continue it, or discard it: discard=True "
        f"(--discard)."
    )


def _learnt_before(before: Visit, source: SampleReader, data: DataNote) -> Visit:
    reason = "and a class of it was forgotten since"
    if before.fingerprint is not None:
        reader = VisitReader(source, data)
        for _ in reader.groups():
            pass
        if reader.fingerprint() == before.fingerprint:
            return before.changed(repeated=True)
        reason = "from other samples"
    raise LearnerError(
        f"a visit {before.name!r} was learnt on {before.finished[:10]}, {reason}. Choose another "
        f"name."
    )


class VisitRun:
    """Learns the staged samples of one visit: inputs [N, ...] as they are kept, labels [N]."""

    def __init__(
        self,
        folder: LearnerFolder,
        model: Model,
        note: VisitNote,
        after: Manifest,
        inputs: MappedRows,
        labels: Tensor,
        held_out: Tensor,
        keys: Tensor,
    ) -> None:
        """`after` has the classes and the data after the visit, `held_out` are rows [n]."""
        self._folder, self._model, self._note, self.after = folder, model, note, after
        self._inputs, self._labels, self._held_out = inputs, labels, held_out
        self._before, self._settings = folder.manifest, folder.manifest.settings
        self._old = folder.read_state() if self._before.state else None
        self._earlier: list[StoredRows] = [folder.samples()] if self._before.samples else []
        self._rows = JoinedRows([*self._earlier, inputs])
        self._first = len(self._rows) - len(labels)  # the number of the visit's first sample
        everything = torch.arange(len(labels))
        self._learnt = everything[~torch.isin(everything, held_out)]
        held = HeldOut.of(self._old, self._rows)
        self._held = held.and_also(self._first + held_out, labels[held_out], keys)
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
        has_features, statistics = self.after.data_note.features is not None, None
        if has_features and self._settings.heads:
            statistics = Statistics(self._folder, self.after, self._old)
            held = self._part(self._held_out) if self._settings.memory == 0 else None
            statistics.add(self._part(self._learnt), held)
            self.after = self.after.changed(statistics=statistics.notes)
        measured = measured_on(self._folder, self.after, self._held)
        before = None
        if self._old is not None:
            before = rate(measured, self._before, self._old, self._model)
        nets, choice = [], Choice(why="")
        if self._settings.trains(features=has_features):
            stack = self._train(measured, on_progress, checkpoint_seconds)
            net, choice = choose_trial(stack, measured, self.after, self._model)
            manifest = self.after.changed(head="net", lr=choice.lr)
            nets = [Candidate(f"{self._model.trained_by.title} (replay)", manifest, net)]
        chosen, why, rated = choose(self.after, statistics, nets, measured, self._model)
        if statistics is not None:
            head, why = chosen.manifest.head, why or "as the learner was created"
            if head == "net":
                why = f"{why}. Among trained heads: {choice.why}"
            choice = choice.changed(head=head, why=why)
        if not force:
            self._check(before, rated, max_drop)
        visit = self._result(before, rated, choice)
        tensors = {**(nets[0].tensors if nets else {}), **chosen.tensors}
        if statistics is not None:
            tensors |= statistics.tensors()
        self._commit(visit, chosen.manifest, tensors)
        return visit

    def _part(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self._inputs.take(rows), self._labels[rows]

    def _train(
        self, held: HeldOut, on_progress: OnProgress | None, checkpoint_seconds: float
    ) -> TrialStack:
        """Train all candidates. Raises LearnerError if all of them diverge."""
        after, model, count = self.after, self._model, len(self._learnt)
        seen = count + (0 if self._old is None else int(self._old[COUNTS].sum()))
        stack = make_stack(after, model, count, seen=seen, earlier_samples=self._earlier)
        if self._old is not None:
            saved = {n: own for n, own in self._old.items() if not n.startswith(_NOT_OF_STACK)}
            stack.grow_from(copies(saved, len(stack.configs)), Position(self._before.tasks))
        checkpoints = self._folder.visit.checkpoints(self._note)
        self._training = Training(stack, held, after, model.device, checkpoints, checkpoint_seconds)
        inputs = ChosenRows(self._inputs, self._learnt)
        self._training.run(inputs, self._labels[self._learnt], on_progress)
        if self._training.all_diverged():
            raise LearnerError(
                f"{self._note.name} cannot be learnt: the loss was not a number, with learning "
                f"rates down to {min(config.lr for config in stack.configs):g}. The learner is as "
                f"it was. Look for extreme values in the data, or create a learner with a lower "
                f"`lr`."
            )
        return stack

    def _check(self, before: Rated | None, after: Rated, max_drop: float) -> None:
        name, advice = self._note.name, advice_for(self._settings, self.after.data_note)
        new = after.truth >= len(self._before.known)
        try:
            check_chance(name, after, advice)
            check_chance(name, Rated(after.scores[new], after.truth[new]), advice)
            if before is not None:
                old = [list(self.after.known).index(each) for each in self._before.known]
                check_drop(name, before, after, old, max_drop, advice)
        except VisitRejectedError:
            if self._training is not None:
                self._training.save()
            rejected = self._note.changed(rejected=True)
            self._folder.visit.write_note(rejected)
            self._folder.remove_leftovers()
            raise

    def _result(self, before: Rated | None, after: Rated, choice: Choice) -> Visit:
        accuracy, counts = per_class(after, list(self.after.known))
        training, classes = self._training, self.after.classes
        sizes = Counter(self._labels[self._learnt].tolist())
        return Visit(
            name=self._note.name,
            number=len(self._before.history) + 1,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=round(training.seconds, 3) if training else 0.0,
            steps=training.steps if training else 0,
            epochs=training.epochs if training else 0,
            samples={str(classes[label]): sizes[label] for label in sorted(sizes)},
            new_classes=tuple(map(str, classes[len(self._before.classes) :])),
            before={} if before is None else per_class(before, list(self._before.known))[0],
            accuracy=accuracy,
            held_out=counts,
            choice=choice,
            calibration=calibrate(after),
            fingerprint=self._note.fingerprint,
        )

    def _commit(self, visit: Visit, manifest: Manifest, tensors: Tensors) -> None:
        _, places = self._settings.places(manifest.data_note.kept.sample_bytes)
        tensors = {**tensors, **self._held.reduced(places).tensors()}
        if MEMORY_SOURCES in tensors:
            # The engine counts the visit's samples without those that are held out.
            rows = torch.cat([torch.arange(self._first), self._first + self._learnt])
            tensors[MEMORY_SOURCES] = rows[tensors[MEMORY_SOURCES].cpu()]
        method = self._model.method
        private = method is not None and method.own_memory != "no"
        manifest = manifest.changed(
            **self._folder.save(tensors, self._rows, private=private),
            calibration=visit.calibration,
            history=(*self._before.history, visit),
            earlier=self._before.generations(),
            lr=visit.choice.lr,
        )
        self._folder.commit(manifest)
