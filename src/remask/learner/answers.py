"""The part of a learner that changes nothing: predict, evaluate, export, show."""

import copy
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from remask.durable import AnyPath
from remask.learner import staging
from remask.learner.accounts import Calibration, Preprocessing, Visit
from remask.learner.architecture import Parts
from remask.learner.calibration import abstention as find_abstention
from remask.learner.errors import LearnerError, data_errors
from remask.learner.evaluation import Evaluation, evaluation
from remask.learner.folder import LearnerFolder
from remask.learner.manifest import Manifest
from remask.learner.novelty import Novelty, unknown_test
from remask.learner.prediction import Scorer, predictions, scorer, source_scores
from remask.learner.reference import NoHeldOutError, Reference
from remask.learner.results import Abstention, Predictions
from remask.learner.settings import LearnerSettings
from remask.learner.summary import Summary, summary
from remask.user_data import Data, Labels, SampleReader, Skipped, UnreadableImageWarning, read

if TYPE_CHECKING:
    from remask.learner.export import Exported

_USUAL_ACCURACIES = (0.8, 0.9, 0.95, 0.99)
_TRIES = 5  # to read a learner that others change


@dataclass(frozen=True, eq=False)
class _Scored:
    scores: torch.Tensor
    """[n, C]."""
    distances: torch.Tensor | None
    """[n] from known classes, if they were asked for."""


class LearnerAnswers:
    """A learner that predicts, evaluates and exports."""

    def __init__(self, folder: LearnerFolder, parts: Parts) -> None:
        self._folder, self._parts = folder, parts
        self._scorer: tuple[int, Scorer] | None = None  # of a generation
        self._distances: tuple[Scorer, tuple[Novelty, torch.Tensor]] | None = None
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
        """Name the class of each sample, among the classes that have been learnt.

        Args:
            data: Images, arrays or texts, as for `learn`, without labels.
            top: How many of the most probable classes to return.
            abstain: The accuracy wanted on the samples that are answered, such as 0.9. No class is
                named below the confidence that reaches it on held-out samples;
                `Predictions.abstention` has the confidence and the share of samples above it.
            unknown: Mark samples that resemble no known class, at this rate of false alarms on
                samples of known classes, such as 0.05. It is calibrated on held-out samples.
            skip_unreadable: Skip files that cannot be read; a warning names them.

        Raises LearnerError.

        """
        if type(top) is not int or top < 1:
            raise LearnerError(f"top={top!r:.60}: give a whole number of classes, at least 1")
        _check_shares(abstain, unknown)
        source, scored = self._score(
            data, None, labelled=False, skip_unreadable=skip_unreadable, unknown=unknown
        )
        self._report_skipped(source)
        return self._answered(source, scored, top, abstain, unknown)

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

        Samples of classes that the learner does not know are counted by themselves. `abstain`,
        `unknown` and `skip_unreadable` are those of `predict`. Raises LearnerError.
        """
        _check_shares(abstain, unknown)
        source, scored = self._score(
            data, labels, labelled=True, skip_unreadable=skip_unreadable, unknown=unknown
        )
        self._report_skipped(source)
        predicted = self._answered(source, scored, 1, abstain, unknown)
        names = source.names or []
        return evaluation(scored.scores, names, self.classes, predicted, scored.distances)

    def evaluate_held_out(self) -> Evaluation:
        """Measure on the held-out samples of the learner, which it never learns from.

        Raises LearnerError if there are none.
        """
        scores, truth = self._reference().held_out()
        names = [self.classes[column] for column in truth.tolist()]
        predicted = predictions(scores, self.classes, None, 1)
        return evaluation(scores, names, self.classes, predicted, None)

    def refresh(self) -> bool:
        """Read the newest generation if another process has changed the learner.

        Returns whether it has. Raises LearnerError if the folder has another learner now.
        """
        before = self._manifest.generation
        self._folder.refresh()
        return self._manifest.generation != before

    def export(
        self, path: AnyPath, to: Literal["onnx", "torch-export", "safetensors"]
    ) -> "Exported":
        """Write the model as a file for other programs, and PATH.json beside it.

        ONNX and torch.export files take raw inputs and return probabilities over `classes`; the
        encoder is inside. A safetensors file has the weights of `net()`. What is written is read
        back, and must predict the same before it takes its place. Raises LearnerError and
        MissingPackageError.
        """
        from remask.learner.export import export_model  # few export

        target = Path(path).expanduser()
        if self._folder.path.resolve() in target.resolve().parents:
            raise LearnerError(
                f"{target} lies in the learner's own folder, where files that are not its own are "
                f"removed: choose another folder"
            )
        preprocessing = self.preprocessing
        return export_model(
            self.net(),
            target,
            to,
            classes=self.classes,
            preprocessing=preprocessing,
            abstentions=self.abstentions(),
        )

    def abstentions(self) -> list[Abstention]:
        """The confidence that usual accuracies need; none if there are no held-out samples."""
        try:
            scores, truth = self._reference().held_out()
        except NoHeldOutError:
            return []
        return [find_abstention(scores, truth, wanted) for wanted in _USUAL_ACCURACIES]

    def net(self) -> nn.Module:
        """A module that predicts as the learner does, on the CPU, for export.

        It maps inputs [B, *input_shape] that went through `preprocessing` to scores over `classes`,
        in their order, whose softmax is the learner's probabilities.
        """
        return copy.deepcopy(self._ready()).cpu()

    def show(self) -> Summary:
        """Classes, samples, settings, generations, calibration and size of the learner."""
        return summary(self._folder)

    def __repr__(self) -> str:
        manifest = self._manifest
        return (
            f"<Learner {str(self._folder.path)!r}: {len(manifest.known)} classes in "
            f"{len(manifest.history)} visits, {manifest.settings.net}, {manifest.settings.method}>"
        )

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes that have been learnt, in the order of learning."""
        return tuple(self._manifest.known)

    @property
    def history(self) -> list[Visit]:
        """What was learnt, visit by visit."""
        return list(self._manifest.history)

    @property
    def settings(self) -> LearnerSettings:
        """What the learner was created with."""
        return self._manifest.settings

    @property
    def calibration(self) -> Calibration | None:
        """How sure the learner may be, by the samples that are held out; None before any visit."""
        return self._manifest.calibration

    @property
    def unfinished(self) -> str | None:
        """The name of a visit that was begun and is not finished, if there is one."""
        place = self._folder.path / staging.VISIT
        begun = None if staging.is_rejected(place) else staging.unfinished(place)
        return None if begun is None else begun.name

    @property
    def preprocessing(self) -> Preprocessing:
        """What inputs go through before `net()`. Raises LearnerError before the first visit."""
        data = self._manifest.data
        if data is None:
            raise self._learnt_nothing()
        if data.inputs.is_text:
            raise LearnerError(
                "a learner of texts has no preprocessing and cannot be exported: splitting a text "
                "into tokens cannot be part of an ONNX or torch.export file. Use the learner itself"
            )
        return Preprocessing(
            input_shape=data.inputs.shape,
            input_type=data.inputs.tensor_type,
            scale=data.seen.scale,
            mean=data.seen.mean,
            std=data.seen.std,
            resize="bilinear" if data.inputs.is_image and data.inputs.dtype == "uint8" else None,
        )

    @property
    def _manifest(self) -> Manifest:
        return self._folder.manifest

    def _score(
        self,
        data: Data,
        labels: Labels,
        *,
        labelled: bool,
        skip_unreadable: bool,
        unknown: float | None,
    ) -> tuple[SampleReader, "_Scored"]:
        """Read data and score them; with `unknown`, also measure distances from known classes."""
        module, manifest = self._ready(), self._manifest
        assert manifest.data is not None
        novelty = None if unknown is None else self._novelty()[0]
        with data_errors():
            source = read(
                data,
                labels,
                labelled=labelled,
                expected=manifest.data.inputs,
                skip_unreadable=skip_unreadable,
            )
            scores, distances = [], []
            for own, features in source_scores(
                module, source, manifest, self._parts.device, features=novelty is not None
            ):
                scores.append(own)
                if novelty is not None and features is not None:
                    distances.append(novelty.distances(features))
        return source, _Scored(torch.cat(scores), torch.cat(distances) if distances else None)

    def _answered(
        self,
        source: SampleReader,
        scored: "_Scored",
        top: int,
        abstain: float | None,
        unknown: float | None,
    ) -> Predictions:
        abstention = None
        if abstain is not None:
            abstention = find_abstention(*self._reference().held_out(), abstain)
        test = None if unknown is None else unknown_test(self._novelty()[1], unknown)
        return predictions(
            scored.scores,
            self.classes,
            source.sources,
            top,
            abstention=abstention,
            unknown_test=test,
            distances=scored.distances,
        )

    def _novelty(self) -> tuple[Novelty, torch.Tensor]:
        """Distances from known classes, computed once for a generation."""
        module = self._ready()
        if self._distances is None or self._distances[0] is not module:
            self._distances = module, self._reference().novelty()
        return self._distances[1]

    def _reference(self) -> Reference:
        module = self._ready()
        return Reference(self._folder, self._folder.read_state(), module, self._parts.device)

    def _report_skipped(self, source: SampleReader) -> None:
        """Keep the report of what a source did not read, and warn of files that are unreadable."""
        self.skipped = source.skipped
        if line := source.skipped.unreadable_line:
            warnings.warn(line, UnreadableImageWarning, stacklevel=3)

    def _ready(self) -> Scorer:
        """The module that predicts, loaded when it is first needed.

        If another process has replaced the files meanwhile, it is that of the newest generation.
        """
        for attempt in range(_TRIES):
            generation = self._manifest.generation
            if self._scorer is not None and self._scorer[0] == generation:
                return self._scorer[1]
            if not self._manifest.known:
                raise self._learnt_nothing()
            try:
                state = self._folder.read_state()
            except LearnerError:
                self._folder.refresh()
                if self._manifest.generation == generation or attempt == _TRIES - 1:
                    raise
                continue
            module = scorer(self._manifest, state, self._parts)
            self._scorer = generation, module.to(self._parts.device)
        assert self._scorer is not None
        return self._scorer[1]

    def _learnt_nothing(self) -> LearnerError:
        return LearnerError(
            f"{self._folder.path} has not learnt anything yet: call learn() first, or run "
            f"`remask learn`"
        )


def _check_shares(abstain: object, unknown: object) -> None:
    """Refuse what is not a number between 0 and 1. Raises LearnerError."""
    meanings = {"accuracy wanted": ("abstain", abstain), "false-alarm rate": ("unknown", unknown)}
    for meaning, (name, value) in meanings.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            raise LearnerError(
                f"{name}={value!r:.60}: give the {meaning} as a number between 0 and 1, such as "
                f"{'0.9' if name == 'abstain' else '0.05'}"
            )
