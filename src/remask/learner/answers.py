"""What can be asked of a learner, by any number of processes: nothing here changes it."""

import copy
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from remask.durable import AnyPath
from remask.learner import staging
from remask.learner.accounts import Calibration, Evaluation, Predictions, Preprocessing, Visit
from remask.learner.architecture import Parts
from remask.learner.errors import LearnerError, data_errors
from remask.learner.folder import LearnerFolder
from remask.learner.manifest import Manifest
from remask.learner.prediction import Scorer, evaluation, predictions, scorer, source_scores
from remask.learner.settings import LearnerSettings
from remask.learner.summary import Summary, summary
from remask.user_data import Data, Labels, Skipped, Source, UnreadableImageWarning, read

if TYPE_CHECKING:
    from remask.learner.export import Exported

_TRIES = 5  # to read a learner that others change


class LearnerAnswers:
    """A learner that predicts, and says what it has learnt."""

    def __init__(self, folder: LearnerFolder, parts: Parts) -> None:
        self._folder, self._parts = folder, parts
        self._scorer: tuple[int, Scorer] | None = None  # of a generation
        self.skipped: Skipped | None = None
        """The files that the latest learn, predict or evaluate did not read, and why."""

    def predict(
        self,
        data: Data,
        *,
        top: int = 1,
        abstain: bool | float = False,
        skip_unreadable: bool = False,
    ) -> Predictions:
        """Name the class of each sample, among the classes that have been learnt.

        With `abstain`, no class is named where the probability is below the threshold that the
        held-out memory calls for (`Calibration.threshold`), or below the number given. With
        `skip_unreadable`, files that cannot be read are skipped; a warning names them.
        """
        if type(top) is not int or top < 1:
            raise LearnerError(f"top={top!r:.60}: ask for a whole number of classes, at least 1")
        source, scores = self._score(data, None, labelled=False, skip_unreadable=skip_unreadable)
        self._report_skipped(source)
        calibration = self._manifest.calibration
        threshold = float(abstain)
        if abstain is True:
            threshold = calibration.threshold if calibration else 0.5
        return predictions(scores, self.classes, source.sources, top, threshold)

    def evaluate(
        self, data: Data, labels: Labels = None, *, skip_unreadable: bool = False
    ) -> Evaluation:
        """Measure accuracy and calibration on samples whose classes are known to the learner.

        With `skip_unreadable`, files that cannot be read are skipped; a warning names them.
        """
        source, scores = self._score(data, labels, labelled=True, skip_unreadable=skip_unreadable)
        self._report_skipped(source)
        return evaluation(scores, source.names or [], self.classes)

    def export(
        self, path: AnyPath, to: Literal["onnx", "torch-export", "safetensors"]
    ) -> "Exported":
        """Write the model as a file for other programs, and PATH.json beside it.

        ONNX and torch.export files take raw inputs and give probabilities over `classes`; a
        safetensors file has the weights of `net()`. What is written is read back, and must predict
        the same before it takes its place. Raises LearnerError and MissingPackageError.
        """
        from remask.learner.export import export_model  # few export

        target = Path(path).expanduser()
        if self._folder.path.resolve() in target.resolve().parents:
            raise LearnerError(
                f"{target} lies in the learner's own folder, where files that are not its own are "
                f"removed: choose another folder"
            )
        return export_model(
            self.net(),
            target,
            to,
            classes=self.classes,
            preprocessing=self.preprocessing,
            threshold=None if self.calibration is None else self.calibration.threshold,
        )

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
        self, data: Data, labels: Labels, *, labelled: bool, skip_unreadable: bool
    ) -> tuple[Source, torch.Tensor]:
        """Read data; return their source and scores [n, C]."""
        module, manifest = self._ready(), self._manifest
        assert manifest.data is not None
        with data_errors():
            source = read(
                data,
                labels,
                labelled=labelled,
                expected=manifest.data.inputs,
                skip_unreadable=skip_unreadable,
            )
            scores = torch.cat(list(source_scores(module, source, manifest, self._parts.device)))
        return source, scores

    def _report_skipped(self, source: Source) -> None:
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
