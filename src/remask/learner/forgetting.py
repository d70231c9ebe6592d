"""Forgetting a class: its output, its samples and what was stored with them, in every file."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from remask.engine import TrialStack
from remask.learner import staging
from remask.learner.accounts import Forgotten, Visit
from remask.learner.architecture import Architecture
from remask.learner.calibration import calibrate
from remask.learner.choosing import candidate_configs
from remask.learner.errors import LearnerError
from remask.learner.examining import Examiner
from remask.learner.folder import LearnerFolder
from remask.learner.heldout import LABELS, SOURCES, HeldOut
from remask.learner.manifest import Manifest
from remask.learner.segments import (
    MEMORY_LABELS,
    MEMORY_LOGITS,
    MEMORY_SOURCES,
    ChosenRows,
    joined,
    open_segments,
    rewrite,
)
from remask.learner.settings import most_epochs, places, trial_config
from remask.learner.training import VisitTraining, make_stack
from remask.memory import EMPTY, JoinedRows, StoredRows
from remask.methods import Method

Tensors = dict[str, Tensor]
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Forgetting:
    """Removes classes from a learner."""

    folder: LearnerFolder
    architecture: Architecture
    method: type[Method]
    device: torch.device

    def forget(self, name: str, *, retrain: bool) -> Forgotten:
        """Remove a class, all of it at once. Raises LearnerError, and then nothing has changed."""
        before = self.folder.manifest
        output = before.known[name]
        self._check(retrain=retrain)
        classes = tuple(None if own == name else own for own in before.classes)
        history = tuple(_without(visit, name) for visit in before.history)
        after = before.model_copy(update={"classes": classes, "history": history})
        assert before.state is not None
        old = self.folder.read_tensors(before.state)
        segments = open_segments(self.folder)
        rows = joined(segments)
        kept, others, removed = _divided(old, output)
        # The same picture may also be a sample of another class.
        gone = set() if rows is None else _digests(rows, removed) - _digests(rows, others)
        if not after.known:
            empty = {"classes": (), "outputs": 0, "tasks": 0, "segments": (), "state": None}
            after = after.model_copy(update={**empty, "calibration": None})
        elif retrain:
            assert rows is not None
            kept, after = self._retrained(after, kept, rows)
            after = self._written(after, kept, rows)
        else:
            _clear_output(kept, output, self._class_axes(before))
            after = self._written(after, kept, rows)
        self.folder.commit(after)
        staging.discard(self.folder.path / staging.VISIT)  # its samples may be of the class
        self._prove(before, gone)
        files = tuple(note.name for note in after.files if note != before.given)
        return Forgotten(name, len(removed), files, retrained=retrain and bool(after.known))

    def _check(self, *, retrain: bool) -> None:
        title = self.method.title
        if self.method.own_memory != "no":
            raise LearnerError(
                f"{title} chooses itself what it keeps, and no class can be removed from that. "
                f"Create a learner anew without the class."
            )
        if retrain and not self.method.draws:
            raise LearnerError(f"{title} keeps no samples to retrain from: leave retrain out")
        if retrain and self.folder.manifest.given is not None and self.architecture.given is None:
            raise LearnerError(
                "retraining starts from the weights that the net was created with: open the "
                "learner with the module itself, net=..., and not with a function"
            )

    def _written(self, manifest: Manifest, tensors: Tensors, rows: JoinedRows | None) -> Manifest:
        """The manifest of a state from which a class is removed, with its files."""
        calibration = None
        if rows is not None and len(tensors[LABELS]):
            examiner = self._examiner(tensors, rows)
            calibration = calibrate(*examiner.scored(manifest, tensors))
        used = [tensors[SOURCES]]
        if MEMORY_SOURCES in tensors:
            used.append(tensors[MEMORY_SOURCES][tensors[MEMORY_LABELS] != EMPTY])
        rewritten = rewrite(self.folder, rows, torch.cat(used), all_anew=True)
        tensors = rewritten.renumbered(tensors)
        return manifest.model_copy(
            update={
                "state": self.folder.write_tensors("state", tensors),
                "segments": rewritten.segments,
                "calibration": calibration,
            }
        )

    def _retrained(
        self, manifest: Manifest, kept: Tensors, rows: JoinedRows
    ) -> tuple[Tensors, Manifest]:
        """A new net that has learnt what the memory holds as one visit."""
        assert manifest.data is not None
        filled = kept[MEMORY_LABELS] != EMPTY
        sources, labels = kept[MEMORY_SOURCES][filled], kept[MEMORY_LABELS][filled]
        if not len(labels):
            raise LearnerError("the memory holds no samples of other classes to retrain from")
        stack = self._stack(manifest, len(labels), [])
        examiner = self._examiner(kept, rows)
        training = VisitTraining(
            stack, None, measure=lambda stack: examiner.measured(stack, manifest)
        )
        training.run(ChosenRows(rows, sources.numpy()), labels, lambda stack: None, None)
        tensors = {**stack.state(), SOURCES: kept[SOURCES], LABELS: kept[LABELS]}
        tensors[MEMORY_SOURCES] = sources[tensors[MEMORY_SOURCES]]
        return tensors, manifest.model_copy(update={"tasks": 1})

    def _stack(
        self, manifest: Manifest, samples: int, earlier: list[StoredRows] | None
    ) -> TrialStack:
        assert manifest.data is not None
        settings = manifest.settings
        replayed, _ = places(settings.memory, manifest.data.kept.sample_bytes)
        config = trial_config(settings, self.method, replayed)
        epochs = most_epochs(settings, config, samples)
        (config, *_) = candidate_configs(settings, config, self.method)
        config = config.model_copy(update={"epochs": epochs})
        return make_stack(manifest, [config], self.method, self.architecture, self.device, earlier)

    def _examiner(self, tensors: Mapping[str, Tensor], rows: JoinedRows) -> Examiner:
        held = HeldOut.of(tensors)
        return Examiner(held, rows, self.architecture, self.method, self.device)

    def _class_axes(self, manifest: Manifest) -> dict[str, list[int]]:
        """Which axes of the state's tensors are of classes: those that another head changes."""
        earlier: list[StoredRows] | None = [] if self.method.draws else None
        wider = manifest.model_copy(update={"outputs": manifest.outputs + 1})
        own, other = (self._stack(each, 1, earlier).state() for each in (manifest, wider))
        return {
            name: [
                axis
                for axis, (here, there) in enumerate(
                    zip(tensor.shape, other[name].shape, strict=True)
                )
                if here != there
            ]
            for name, tensor in own.items()
        }

    def _prove(self, before: Manifest, gone: set[bytes]) -> None:
        """Look for what was removed in all that is there now. Raises LearnerError if found."""
        now = {note.name for note in self.folder.manifest.files}
        for note in before.files:
            path = self.folder.path / note.name
            if note.name not in now and path.exists():
                raise LearnerError(
                    f"the class is forgotten, but {path}, which has its samples, cannot be "
                    f"removed. Fix the permissions, and remove it."
                )
        rows = joined(open_segments(self.folder))
        if rows is not None and gone & _digests(rows, torch.arange(len(rows))):
            raise LearnerError("samples that were to be forgotten are still there: it is a bug")


def _divided(tensors: Tensors, output: int) -> tuple[Tensors, Tensor, Tensor]:
    """A state without the samples of an output; and the numbers of the others, and of these."""
    held = tensors[LABELS] == output
    gone, left = [tensors[SOURCES][held]], [tensors[SOURCES][~held]]
    kept = {**tensors, SOURCES: tensors[SOURCES][~held], LABELS: tensors[LABELS][~held]}
    if MEMORY_SOURCES in tensors:
        labels = tensors[MEMORY_LABELS]
        own, others = labels == output, (labels != output) & (labels != EMPTY)
        gone.append(tensors[MEMORY_SOURCES][own])
        left.append(tensors[MEMORY_SOURCES][others])
        # Slots are filled in their order: the others move together.
        for name in (MEMORY_SOURCES, MEMORY_LABELS, MEMORY_LOGITS):
            if name in tensors:
                empty = EMPTY if name == MEMORY_LABELS else 0
                kept[name] = torch.full_like(tensors[name], empty)
                kept[name][: int(others.sum())] = tensors[name][others]
    return kept, torch.cat(left), torch.cat(gone)


def _clear_output(tensors: Tensors, output: int, axes: Mapping[str, list[int]]) -> None:
    """Put 0 in place of all that belongs to an output. Raises LearnerError if something cannot."""
    names = tuple(name.removeprefix("net/") for name in tensors if name.startswith("net/"))
    for name in (name for name in tensors if name.startswith("method/")):
        if not axes[name] and tensors[name].ndim > 1 and not name.endswith(names):
            raise LearnerError(
                f"the method remembers {name.removeprefix('method/')!r}, from which no class can "
                f"be removed: forget with retrain=True"
            )
    for name, own in axes.items():
        if not name.startswith("metrics/"):
            tensors[name] = tensors[name].clone()
            for axis in own:
                tensors[name].select(axis, output).zero_()


def _without(visit: Visit, name: str) -> Visit:
    """What is told of a visit, without a class."""

    def others(by_name: Mapping[str, Any]) -> dict[str, Any]:
        return {own: value for own, value in by_name.items() if own != name}

    return visit.model_copy(
        update={
            "samples": others(visit.samples),
            "before": others(visit.before),
            "accuracy": others(visit.accuracy),
            "held_out": others(visit.held_out),
            "new_classes": tuple(own for own in visit.new_classes if own != name),
        }
    )


def _digests(rows: JoinedRows, numbers: Tensor) -> set[bytes]:
    return {
        hashlib.sha256(row.tobytes()).digest()
        for some in torch.split(numbers, _ROWS_AT_ONCE)
        for row in rows.read(some.numpy())
    }
