"""Forgetting a class: its output, its samples and what was stored with them, in every file."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from remask.durable import DurabilityError, open_regular
from remask.engine import TrialStack
from remask.heads import HeadName
from remask.learner import staging
from remask.learner.accounts import Forgotten
from remask.learner.architecture import Parts
from remask.learner.calibration import calibrate
from remask.learner.choosing import candidate_configs, compare
from remask.learner.errors import LearnerError
from remask.learner.examining import Examiner, drawn_examiner
from remask.learner.folder import LearnerFolder
from remask.learner.heldout import KEYS, LABELS, SOURCES, HeldOut
from remask.learner.manifest import Learnt, Manifest
from remask.learner.prediction import scorer
from remask.learner.segments import ChosenRows, joined, open_segments, rewrite
from remask.learner.settings import most_epochs, places, trial_config
from remask.learner.state import MEMORY_LABELS, MEMORY_LOGITS, MEMORY_SOURCES
from remask.learner.statistics import (
    ClassFiles,
    Updated,
    approximately_without,
    fitted,
    pooled_of,
    pooled_tensors,
)
from remask.learner.training import VisitTraining, make_stack
from remask.memory import EMPTY, JoinedRows, StoredRows

Tensors = dict[str, Tensor]
_ROWS_AT_ONCE = 256
_SHORTEST = 16  # bytes


@dataclass(frozen=True, eq=False)
class Forgetting:
    """Removes classes from a learner."""

    folder: LearnerFolder
    parts: Parts

    def forget(self, name: str, *, retrain: bool) -> Forgotten:
        """Remove a class, all of it at once. Raises LearnerError.

        Then nothing has changed, unless the message says that the class is forgotten but a file
        cannot be removed.
        """
        before = self.folder.manifest
        outputs = before.outputs_of(name)
        self._check(retrain=retrain)
        classes = tuple(None if own == name else own for own in before.classes)
        history = tuple(visit.without(name) for visit in before.history)
        after = before.model_copy(update={"classes": classes, "history": history, "earlier": ()})
        old = self.folder.read_state()
        scorer(before, old, self.parts)  # it fits, so that nothing fails later
        segments = open_segments(self.folder)
        rows = joined(segments)
        kept, others, removed = _divided(old, outputs)
        # The same picture may also be a sample of another class.
        gone = dict(_digested(rows, removed))
        for digest, _ in _digested(rows, others):
            gone.pop(digest, None)
        exact = False
        if not after.known:
            empty = {name: field.default for name, field in Learnt.model_fields.items()}
            after = after.model_copy(update={**empty, "data": None})
            exact = True
        elif before.data is not None and before.data.features is not None and self._heads:
            after, retrained = self._with_heads(after, kept, rows, outputs)
            exact, retrain = before.exact and after.head != "net", retrained
        elif retrain:
            assert rows is not None
            kept, after = self._retrained(after, kept, rows)
            after = self._written(after, kept, rows)
        else:
            _clear_outputs(kept, outputs, self._class_axes(before))
            after = self._written(after, kept, rows)
        left = self.folder.commit(after)
        try:
            staging.discard(self.folder.path / staging.VISIT)  # its samples may be of the class
        except DurabilityError as error:
            raise LearnerError(
                f"{name} is forgotten, but its samples may be left: {error}"
            ) from error
        if left:
            raise LearnerError(
                f"{name} is forgotten, but {left[0]}, which may hold its samples, cannot be "
                f"removed. Fix the permissions, then open the learner again."
            )
        self._prove(name, gone)
        files = tuple(note.name for note in self.folder.manifest.own_files)
        retrained = retrain and bool(after.known)
        return Forgotten(name, len(removed), files, retrained=retrained, exact=exact)

    @property
    def _heads(self) -> tuple[HeadName, ...]:
        return self.folder.manifest.settings.heads

    def _check(self, *, retrain: bool) -> None:
        method = self.parts.method
        if method is None:
            return
        title = method.title
        if method.own_memory != "no":
            raise LearnerError(
                f"{title} chooses itself what it keeps, and no class can be removed from that. "
                f"Create a learner anew without the class."
            )
        if retrain and not method.draws:
            raise LearnerError(f"{title} keeps no samples to retrain from: leave retrain out")
        given = self.parts.architecture(self.folder.manifest.data).given
        if retrain and self.folder.manifest.given is not None and given is None:
            raise LearnerError(
                "retraining starts from the weights that the net was created with: open the "
                "learner with the module itself, net=..., and not with a function"
            )

    def _with_heads(
        self, manifest: Manifest, kept: Tensors, rows: JoinedRows | None, outputs: list[int]
    ) -> tuple[Manifest, bool]:
        """Fit heads to the statistics of the other classes, and choose among them again.

        A trained head is trained again from the remaining memory. Returns the manifest, and whether
        a head was trained.
        """
        settings = manifest.settings
        files = ClassFiles(self.folder, self.folder.manifest)
        if manifest.exact:
            statistics = files.without(outputs, manifest.outputs)
        else:
            pooled = pooled_of(kept)
            approximately_without(pooled, outputs)
            statistics = Updated(pooled, (), exact=False)
        names: list[HeadName] = list(self._heads)
        states = [fitted(name, statistics.pooled) for name in names]
        manifests = [manifest.model_copy(update={"head": name}) for name in names]
        tensors = HeldOut.of(kept).tensors()
        trains = settings.trains(features=True) and rows is not None
        if trains and bool((kept[MEMORY_LABELS] != EMPTY).any()):
            assert rows is not None
            tensors, manifest = self._retrained(manifest, kept, rows)
            states.append(tensors)
            update = {"data": manifest.data, "tasks": manifest.tasks}
            manifests = [own.model_copy(update=update) for own in manifests]
            manifests.append(manifest.model_copy(update={"head": "net"}))
        elif trains:  # nothing to train from: the head that is left knows of the class
            raise LearnerError("the memory holds no samples of other classes to retrain from")
        if settings.memory == 0 and statistics.exact:
            examiner = drawn_examiner(files, statistics, self.parts)
        else:
            none = JoinedRows([torch.zeros(0, statistics.pooled.sums.shape[1])])
            examiner = Examiner(HeldOut.of(kept), rows or none, self.parts)
        scores = [examiner.scored(own, state) for own, state in zip(manifests, states, strict=True)]
        right = torch.stack([rated.argmax(1) == truth for rated, truth in scores])
        chosen = compare([*map(str, range(len(states)))], right, scores[0][1], [True] * len(states))
        state = {**tensors, **states[chosen.chosen], **pooled_tensors(statistics.pooled)}
        written = self._written(manifests[chosen.chosen], state, rows, scores[chosen.chosen])
        files_now = {"statistics": statistics.notes, "exact": statistics.exact}
        return written.model_copy(update=files_now), trains

    def _written(
        self,
        manifest: Manifest,
        tensors: Tensors,
        rows: JoinedRows | None,
        scored: tuple[Tensor, Tensor] | None = None,
    ) -> Manifest:
        """The manifest of a state from which a class is removed, with its files."""
        if scored is None and rows is not None and len(tensors[LABELS]):
            scored = self._examiner(tensors, rows).scored(manifest, tensors)
        calibration = None if scored is None else calibrate(*scored)
        if calibration is None and not manifest.exact:  # nothing is left to fit it to
            calibration = manifest.calibration
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
        memory = ChosenRows(rows, sources.numpy())
        if manifest.data.features is not None:  # its mean and deviation must not know of the class
            seen = staging.moments(memory, np.arange(len(memory)), 1.0)
            data = manifest.data.model_copy(update={"features_seen": seen})
            manifest = manifest.model_copy(update={"data": data})
        stack = self._stack(manifest, len(labels), [])
        examiner = self._examiner(kept, rows)
        training = VisitTraining(
            stack, None, measure=lambda stack: examiner.measured(stack, manifest)
        )
        training.run(memory, labels, lambda stack: None, None)
        tensors = {**stack.state(), **HeldOut.of(kept).tensors()}
        tensors[MEMORY_SOURCES] = sources[tensors[MEMORY_SOURCES]]
        return tensors, manifest.model_copy(update={"tasks": 1})

    def _stack(
        self, manifest: Manifest, samples: int, earlier: list[StoredRows] | None
    ) -> TrialStack:
        assert manifest.data is not None
        method = self.parts.method
        assert method is not None
        settings, net = manifest.settings, manifest.data.net
        replayed, _ = places(settings.memory, manifest.data.kept.sample_bytes)
        config = trial_config(settings, method, replayed, net)
        epochs = most_epochs(settings, config, samples, net)
        remembered = manifest.lr
        (config, *_) = candidate_configs(
            settings, config, method, remembered=remembered, samples=samples
        )
        config = config.model_copy(update={"epochs": epochs})
        architecture = self.parts.architecture(manifest.data)
        return make_stack(manifest, [config], method, architecture, self.parts.device, earlier)

    def _examiner(self, tensors: Mapping[str, Tensor], rows: JoinedRows) -> Examiner:
        return Examiner(HeldOut.of(tensors), rows, self.parts)

    def _class_axes(self, manifest: Manifest) -> dict[str, list[int]]:
        """Which axes of the state's tensors are of classes: those that another head changes."""
        assert self.parts.method is not None
        earlier: list[StoredRows] | None = [] if self.parts.method.draws else None
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

    def _prove(self, name: str, gone: Mapping[bytes, bytes]) -> None:
        """Look for the removed samples in every file below the folder. Raises LearnerError."""
        rows = joined(open_segments(self.folder))
        every = torch.arange(0 if rows is None else len(rows))
        if any(digest in gone for digest, _ in _digested(rows, every)):
            raise LearnerError("samples that were to be forgotten are still there: it is a bug")
        for path in self.folder.other_files():
            if _holds(path, gone.values()):
                raise LearnerError(
                    f"{name} is forgotten, but {path}, which does not belong to the learner, holds "
                    f"its samples, or cannot be read. Remove it."
                )


def _divided(tensors: Tensors, outputs: list[int]) -> tuple[Tensors, Tensor, Tensor]:
    """A state without the samples of outputs; and the numbers of the others, and of these."""
    wanted = torch.tensor(outputs)
    held = torch.isin(tensors[LABELS], wanted)
    gone, left = [tensors[SOURCES][held]], [tensors[SOURCES][~held]]
    kept = {**tensors, **{name: tensors[name][~held] for name in (SOURCES, LABELS, KEYS)}}
    if MEMORY_SOURCES in tensors:
        labels = tensors[MEMORY_LABELS]
        own = torch.isin(labels, wanted)
        others = ~own & (labels != EMPTY)
        gone.append(tensors[MEMORY_SOURCES][own])
        left.append(tensors[MEMORY_SOURCES][others])
        # Slots are filled in their order: the others move together.
        for name in (MEMORY_SOURCES, MEMORY_LABELS, MEMORY_LOGITS):
            if name in tensors:
                empty = EMPTY if name == MEMORY_LABELS else 0
                kept[name] = torch.full_like(tensors[name], empty)
                kept[name][: int(others.sum())] = tensors[name][others]
    return kept, torch.cat(left), torch.cat(gone)


def _clear_outputs(tensors: Tensors, outputs: list[int], axes: Mapping[str, list[int]]) -> None:
    """Put 0 in place of all that belongs to outputs. Raises LearnerError if something cannot."""
    names = tuple(name.removeprefix("net/") for name in tensors if name.startswith("net/"))
    for name in (name for name in tensors if name.startswith("method/")):
        if not axes[name] and tensors[name].ndim > 1 and not name.endswith(names):
            raise LearnerError(
                f"the method remembers {name.removeprefix('method/')!r}, from which no class can "
                f"be removed. Train a new net as well: retrain=True (--retrain)."
            )
    for name, own in axes.items():
        if not name.startswith("metrics/"):
            tensors[name] = tensors[name].clone()
            for axis in own:
                tensors[name].index_fill_(axis, torch.tensor(outputs), 0)


def _digested(rows: JoinedRows | None, numbers: Tensor) -> Iterator[tuple[bytes, bytes]]:
    """The digest and the bytes of each sample with these numbers."""
    if rows is None:
        return
    for some in torch.split(numbers, _ROWS_AT_ONCE):
        for row in rows.read(some.numpy()):
            data = row.tobytes()
            yield hashlib.sha256(data).digest(), data


def _holds(path: Path, samples: Iterable[bytes]) -> bool:
    """Whether a file has the bytes of a sample in it, or cannot be read.

    Samples that any file may contain by chance are not looked for: short or plain ones.
    """
    try:
        if path.is_symlink() or path.lstat().st_size == 0:
            return False
        with open_regular(path) as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as data:
            return any(
                data.find(sample) >= 0
                for sample in samples
                if len(sample) >= _SHORTEST and len({*sample}) > 1
            )
    except OSError:
        return True
