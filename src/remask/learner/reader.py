"""Reading a learner: predicting, evaluating, exporting and showing what it has learnt."""

import copy
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from remask.data.readers import Labels, SampleReader, Skipped, UnreadableImageWarning
from remask.data.user_data import Data, read
from remask.encoders.encoder import CHUNK
from remask.errors import DataError, counted
from remask.files import AnyPath
from remask.learner.evaluation import Evaluation, evaluate
from remask.learner.folder import LearnerFolder, Tensors, memory_of
from remask.learner.manifest import Manifest
from remask.learner.model import Model
from remask.learner.predictions import (
    Abstention,
    Novelty,
    Predictions,
    check_share,
    find_abstention,
    unknown_test,
)
from remask.learner.results import Calibration, Preprocessing, Visit
from remask.learner.samples import HeldOut, measured_on, pooled_of
from remask.learner.scoring import Rated, make_scorer
from remask.learner.settings import LearnerError, LearnerSettings, NoHeldOutError
from remask.learner.summary import Summary, summary
from remask.methods.statistics import ClassStatistics

if TYPE_CHECKING:
    from remask.learner.export import Exported

_USUAL_ACCURACIES = (0.8, 0.9, 0.95, 0.99)


class Predictor:
    """Predicts with one generation of a learner."""

    def __init__(self, folder: LearnerFolder, model: Model) -> None:
        """Read the state. Raises LearnerError."""
        self._folder, self._manifest = folder, folder.manifest
        self.generation = self._manifest.generation
        self.scorer = make_scorer(self._manifest, folder.read_state(), model)

    def scores(self, batches: Iterable[Tensor], *, features: bool) -> tuple[Tensor, Tensor]:
        """Compute scores [n, C] of samples as they are kept, and if asked features [n, D]."""
        return self.scorer.score(batches, self._manifest.data_note, features=features)

    def batches(self, source: SampleReader) -> Iterator[Tensor]:
        """Read samples as they would be kept: features, or inputs."""
        encoder = self.scorer.features
        samples = source.samples(self._manifest.data_note.inputs)
        while group := list(islice(samples, CHUNK)):
            yield torch.from_numpy(np.stack(group)) if encoder is None else encoder.encode(group)

    @cached_property
    def rated(self) -> Rated:
        """The calibrated scores of held-out samples. Raises NoHeldOutError."""
        held = self._held_out
        return Rated(self.scores(held.batches(), features=False)[0], held.truth(self._manifest))

    @cached_property
    def novelty(self) -> tuple[Novelty, Tensor]:
        """What measures distances from known classes, and those of held-out samples [n]."""
        held, state = self._held_out, self._folder.read_state()
        novelty = Novelty(pooled_of(state) or self._memory_statistics(held, state))
        _, features = self.scores(held.batches(), features=True)
        return novelty, novelty.distances(features)

    @cached_property
    def _held_out(self) -> HeldOut:
        held = HeldOut.of(self._folder.read_state(), self._folder.samples())
        held = measured_on(self._folder, self._manifest, held).known_to(self._manifest)
        if not len(held):
            raise NoHeldOutError(
                "the learner has no held-out samples, which `abstain`, `unknown` and the confusion "
                "matrix are measured on: classes need at least two samples each, and a memory"
            )
        return held

    def _memory_statistics(self, held: HeldOut, state: Tensors) -> ClassStatistics:
        sources, labels = memory_of(state)
        if not len(labels):
            raise LearnerError(
                f"unknown samples cannot be found: the method {self._manifest.settings.method!r} "
                f"keeps neither statistics of features nor samples in the memory"
            )
        memory = HeldOut(held.rows, sources, labels, labels)
        _, features = self.scores(memory.batches(), features=True)
        stats = ClassStatistics.empty(self._manifest.outputs, features.shape[1])
        stats.add(features, labels)
        return stats


class LearnerReader:
    """The part of a learner that changes nothing."""

    def __init__(self, folder: LearnerFolder, model: Model) -> None:
        self._folder, self._model = folder, model
        self._latest: Predictor | None = None
        self.skipped: Skipped | None = None
        """The files that the latest learn, predict or evaluate did not read, and why."""

    def predict(
        self,
        data: Data,
        *,
        top: int = 1,
        abstain: float | None = None,
        unknown: float | None = None,
        skip_unreadable: bool = False,
    ) -> Predictions:
        """Predict the class of each sample, among the known classes.

        Args:
            data: Images, arrays or texts, as for `learn`, without labels.
            top: How many of the most probable classes to return.
            abstain: The accuracy wanted on the samples that are answered, such as 0.9. No class is
                named below the confidence that reaches it on held-out samples.
            unknown: Mark samples that resemble no known class, at this rate of false alarms on
                held-out samples of known classes, such as 0.05.
            skip_unreadable: Skip files that cannot be read; a warning names them.

        Raises LearnerError.

        """
        if type(top) is not int or top < 1:
            raise LearnerError(f"top={top!r:.60}: give a whole number of classes, at least 1")
        predictor = self._predictor()
        with self._reading(data, None, skip_unreadable, labelled=False) as source:
            found, *_ = self._predictions(predictor, source, top, abstain, unknown)
        return found

    def evaluate(
        self,
        data: Data,
        labels: Labels = None,
        *,
        abstain: float | None = None,
        unknown: float | None = None,
        skip_unreadable: bool = False,
    ) -> Evaluation:
        """Measure accuracy, confusions and calibration on samples whose classes are given.

        Samples of unknown classes are counted separately. `abstain`, `unknown` and
        `skip_unreadable` are those of `predict`. Raises LearnerError.
        """
        predictor = self._predictor()
        with self._reading(data, labels, skip_unreadable) as source:
            found, scores, distances = self._predictions(predictor, source, 1, abstain, unknown)
        return evaluate(scores, source.names or [], self.classes, found, distances)

    def evaluate_held_out(self) -> Evaluation:
        """Measure on held-out samples. Raises LearnerError."""
        scores, truth = self._predictor().rated
        names = [self.classes[column] for column in truth.tolist()]
        return evaluate(scores, names, self.classes, Predictions.of(scores, self.classes))

    def abstentions(self) -> list[Abstention]:
        """Return the confidence that usual accuracies need; none without held-out samples."""
        try:
            rated = self._predictor().rated
        except NoHeldOutError:
            return []
        return [find_abstention(*rated, wanted) for wanted in _USUAL_ACCURACIES]

    def refresh(self) -> bool:
        """Read the newest generation; return whether another process has changed the learner."""
        before = self._manifest.generation
        self._folder.refresh()
        return self._manifest.generation != before

    def export(
        self, path: AnyPath, to: Literal["onnx", "torch-export", "safetensors"]
    ) -> "Exported":
        """Write the model as a file for other programs, and PATH.json beside it.

        ONNX and torch.export files take raw inputs and return probabilities over `classes`; the
        encoder is inside. A safetensors file has the weights of `net()`. The file is read back, and
        must predict the same before it takes its place. Raises LearnerError and
        MissingPackageError.
        """
        from remask.learner.export import export_model  # few export

        target = Path(path).expanduser()
        if self._folder.path.resolve() in target.resolve().parents:
            raise LearnerError(
                f"{target} is in the learner's own folder, where other files are removed: choose "
                f"another folder"
            )
        how, net = self.preprocessing, self.net()
        return export_model(net, target, to, self.classes, how, self.abstentions())

    def net(self) -> nn.Module:
        """Return a copy of the module that predicts, on the CPU.

        It maps inputs [B, *input_shape] that went through `preprocessing` to scores over `classes`.
        """
        return copy.deepcopy(self._predictor().scorer).cpu()

    def show(self) -> Summary:
        """Return classes, samples, settings, generations, calibration and size of the learner."""
        return summary(self._folder)

    def __repr__(self) -> str:
        manifest = self._manifest
        return (
            f"<Learner {str(self._folder.path)!r}: {counted(len(manifest.known), 'class')} in "
            f"{counted(len(manifest.history), 'visit')}, {manifest.settings.net}, "
            f"{manifest.settings.method}>"
        )

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    @property
    def folder(self) -> Path:
        """Where the learner is stored."""
        return self._folder.path

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the known classes, in the order of learning."""
        return tuple(self._manifest.known)

    @property
    def history(self) -> list[Visit]:
        """The visits so far."""
        return list(self._manifest.history)

    @property
    def settings(self) -> LearnerSettings:
        """The settings that the learner was created with."""
        return self._manifest.settings

    @property
    def calibration(self) -> Calibration | None:
        """Calibration on held-out samples; None before any visit."""
        return self._manifest.calibration

    @property
    def unfinished(self) -> str | None:
        """The name of an unfinished visit, if there is one."""
        note = self._folder.visit.note()
        return None if note is None or note.rejected else note.name

    @property
    def preprocessing(self) -> Preprocessing:
        """What inputs go through before `net()`. Raises LearnerError before the first visit."""
        data = self._manifest.data
        if data is None:
            raise LearnerError(f"{self._folder.path} has not learnt anything yet")
        form = data.inputs
        if form.is_text:
            raise LearnerError(
                "a learner of texts has no preprocessing and cannot be exported: splitting a text "
                "into tokens cannot be part of an ONNX or torch.export file. Use the learner itself"
            )
        return Preprocessing(
            input_shape=form.shape,
            input_type=form.tensor_type,
            resize="bilinear" if form.is_image and form.dtype == "uint8" else None,
            **data.seen.model_dump(),
        )

    @property
    def _manifest(self) -> Manifest:
        return self._folder.manifest

    @contextmanager
    def _reading(
        self, data: Data, labels: Labels, skip_unreadable: bool, *, labelled: bool = True
    ) -> Iterator[SampleReader]:
        """Read data; then report what was skipped. Errors of the data are LearnerError."""
        known = self._manifest.data
        try:
            source = read(
                data,
                labels,
                labelled=labelled,
                expected=None if known is None else known.inputs,
                size=self.settings.image_size,
                skip_unreadable=skip_unreadable,
            )
            yield source
        except DataError as error:
            raise LearnerError(str(error)) from error
        self.skipped = source.skipped
        if line := source.skipped.unreadable_line:
            warnings.warn(line, UnreadableImageWarning, stacklevel=4)

    def _predictor(self) -> Predictor:
        """Return what predicts; of the newest generation if files were replaced."""
        generation = self._manifest.generation
        if self._latest is not None and self._latest.generation == generation:
            return self._latest
        if not self._manifest.known:
            raise LearnerError(
                f"{self._folder.path} has not learnt anything yet: call learn() first, or run "
                f"`remask learn`"
            )
        try:
            self._latest = Predictor(self._folder, self._model)
        except LearnerError:
            if not self.refresh():
                raise
            return self._predictor()
        return self._latest

    def _predictions(
        self,
        predictor: Predictor,
        source: SampleReader,
        top: int,
        abstain: float | None,
        unknown: float | None,
    ) -> tuple[Predictions, Tensor, Tensor | None]:
        """Return predictions, scores [n, C], and if asked distances [n] from known classes."""
        check_share("abstain", abstain, "accuracy wanted", "0.9")
        check_share("unknown", unknown, "false-alarm rate", "0.05")
        abstention = test = distances = None
        batches = predictor.batches(source)
        scores, features = predictor.scores(batches, features=unknown is not None)
        if abstain is not None:
            abstention = find_abstention(*predictor.rated, abstain)
        if unknown is not None:
            novelty, known = predictor.novelty
            test, distances = unknown_test(known, unknown), novelty.distances(features)
        names = self.classes
        found = Predictions.of(scores, names, source.sources, top, abstention, test, distances)
        return found, scores, distances
