"""The learner: one model in a folder, which learns new classes visit after visit."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

import torch
from pydantic import ValidationError
from torch import nn

from remask import __version__
from remask.data.classes import checked_name, class_name
from remask.data.readers import Labels, SampleReader, Skipped, UnreadableImageWarning
from remask.data.texts import TextFile as TextFile
from remask.data.user_data import Data, read
from remask.errors import DataError, RemaskError
from remask.files import AnyPath
from remask.learner.calibration import find_abstention
from remask.learner.changes import forget, rename, undo
from remask.learner.data import NO_ENCODER, lacks_encoder
from remask.learner.evaluation import MAX_DROP, Evaluation, evaluate
from remask.learner.folder import LearnerFolder
from remask.learner.manifest import MANIFEST, Manifest
from remask.learner.model import EncoderGiven, Model, NetGiven, check_given, is_own_encoder, name_of
from remask.learner.predictions import Abstention, Predictions
from remask.learner.results import Calibration, Forgotten, Preprocessing, Undone, Visit, listed
from remask.learner.scoring import Predictor
from remask.learner.settings import (
    AUTO,
    NONE,
    OWN_MODULE,
    LearnerError,
    LearnerSettings,
    NoEncoderWarning,
    NoHeldOutError,
    SettingOptions,
    damaged,
)
from remask.learner.stacks import check_settings
from remask.learner.staging import OnProgress
from remask.learner.summary import Estimate, Summary, estimate, summary
from remask.learner.visit import VisitRun, stage_visit
from remask.methods import Method
from remask.setting_types import describe_errors

if TYPE_CHECKING:
    from remask.learner.export import Exported

_USUAL_ACCURACIES = (0.8, 0.9, 0.95, 0.99)


@contextmanager
def _data_errors() -> Iterator[None]:
    """Raise errors of reading data as LearnerError."""
    try:
        yield
    except DataError as error:
        raise LearnerError(str(error)) from error


class Learner:
    """One model for years: it learns new classes, predicts, survives restarts, and forgets.

    Made by `create` or `open`. Any number of processes may open and read a learner. `learn`,
    `forget`, `undo` and `rename` hold a lock while they run, and continue from the newest
    generation, whichever process wrote it. They wait `lock_seconds` for the lock, then raise
    LockHeldError.
    """

    lock_seconds: float = 5.0
    """How long to wait for another process that changes the learner."""

    checkpoint_seconds: float = 60.0
    """How often a visit is saved while it is being learnt."""

    def __init__(self, folder: LearnerFolder, model: Model) -> None:
        self._folder, self._model = folder, model
        self._predictor = Predictor(folder, model)
        self.skipped: Skipped | None = None
        """The files that the latest learn, predict or evaluate did not read, and why."""

    @classmethod
    def create(
        cls,
        folder: AnyPath,
        *,
        encoder: str | nn.Module = "auto",
        net: str | nn.Module = "auto",
        method: str | type[Method] = "auto",
        device: torch.device | str = "cpu",
        **settings: Unpack[SettingOptions],
    ) -> "Learner":
        """Create a learner in a folder that is empty or does not exist. Raises LearnerError.

        Args:
            folder: Where everything is stored.
            encoder: A pretrained network that is not trained: a name, `module:function`, a module,
                or "none". Arrays [N, D] of floats are features themselves.
            net: What is trained if there are no features: a name, such as "conv" or "resnet18:20"
                for width 20, `module:function`, or a module with weights of your own, whose last
                linear layer is replaced by the head that grows. The weights of a module are stored,
                code is not: `open` needs the module or the function again.
            method: "auto", a name, `module:Class`, or a class.
            device: Where the net and the encoder run.
            settings: See `LearnerSettings`, which describes all of them.

        """
        for what, own in (("net", net), ("encoder", encoder)):
            if not isinstance(own, str | nn.Module):
                raise LearnerError(f"{what}={own!r:.60}: give a name or an nn.Module")
        try:
            named = {
                "encoder": encoder if isinstance(encoder, str) else OWN_MODULE,
                "net": net if isinstance(net, str) else OWN_MODULE,
                "method": name_of(method),
            }
            chosen = LearnerSettings.model_validate({**named, **settings})
        except ValidationError as error:
            raise LearnerError(describe_errors(error)) from None
        model = Model(chosen, net, encoder, method, device)
        check_settings(chosen, model.method)
        if net != AUTO:
            model.net_builder(chosen.net)
        if isinstance(encoder, str) and encoder not in (AUTO, NONE) and not is_own_encoder(encoder):
            model.encoder(encoder, None)  # a missing package is reported now
        manifest = Manifest(remask=__version__, settings=chosen)
        path = Path(folder).expanduser()
        weights = model.own_weights()
        return cls(LearnerFolder.create(path, manifest, weights, cls.lock_seconds), model)

    @classmethod
    def open(
        cls,
        folder: AnyPath,
        *,
        encoder: EncoderGiven | None = None,
        net: NetGiven | None = None,
        method: type[Method] | str | None = None,
        device: torch.device | str = "cpu",
    ) -> "Learner":
        """Open a learner. Raises LearnerError. It is not locked, and may be open several times.

        `encoder`, `net` and `method` are for code of your own, which is not stored.
        """
        opened = LearnerFolder.open(Path(folder).expanduser())
        settings, data = opened.manifest.settings, opened.manifest.data
        check_given(settings, net, encoder)
        model = Model(settings, net, encoder, method, device)
        try:
            check_settings(settings, model.method)
        except RemaskError as error:
            raise damaged(opened.path / MANIFEST, f"settings: {error}") from error
        if data is not None:
            model.features(data)
            model.net_builder(data.net)
        if opened.manifest.given is not None:
            model.load_own_weights(opened.read_tensors(opened.manifest.given))
        return cls(opened, model)

    def learn(
        self,
        data: Data,
        labels: Labels = None,
        *,
        name: str,
        discard: bool = False,
        skip_unreadable: bool = False,
        max_drop: float = MAX_DROP,
        force: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Visit:
        """Learn the classes of some data, new ones and known ones; all of it, or nothing.

        An interrupted visit continues when it is started again with the same name and data; with
        other data, `discard=True` discards it first. If a visit of this name was learnt already,
        nothing is learnt again and its result is returned. With `skip_unreadable`, files that
        cannot be read are skipped, and a warning names them. `on_progress` is called after every
        step; if it raises, a checkpoint is saved, as for Ctrl-C.

        Raises VisitRejectedError if on held-out samples the learner would be no better than
        guessing, or if the visit costs earlier classes more than `max_drop` points; see
        `remask.learner.evaluation` for what is measured. The learner is then as it was before. With
        `force`, the visit is committed nevertheless, without training again.
        """
        with self._folder.writing(self.lock_seconds):
            with self._reading(data, labels, skip_unreadable) as source:
                checked_name(name, "a visit")
                staged = stage_visit(self._folder, self._model, source, name, discard, on_progress)
            if isinstance(staged, Visit):
                return staged
            if self._manifest.data is None and lacks_encoder(self.settings, staged.data):
                warnings.warn(NO_ENCODER, NoEncoderWarning, stacklevel=2)
            run = VisitRun(self._folder, staged, self._model)
            return run.run(on_progress, self.checkpoint_seconds, max_drop=max_drop, force=force)

    def estimate(
        self, data: Data, labels: Labels = None, *, skip_unreadable: bool = False
    ) -> Estimate:
        """Estimate how long `learn` would take, from a few samples. Nothing is changed."""
        with self._reading(data, labels, skip_unreadable) as source:
            return estimate(self._manifest, self._model, source)

    def forget(self, name: str | int, *, retrain: bool = False) -> Forgotten:
        """Remove a class for good: its output, its samples and what was stored with them.

        Every file that held them is written again, and earlier generations are removed. An
        unfinished visit is discarded. A head in closed form becomes that of a learner that never
        saw the class (`Forgotten.exact`).
        Otherwise the other weights, which were trained on the class, stay
        (`Forgotten.not_promised`), unless `retrain` trains a new net from the remaining memory.

        Raises LearnerError. Then nothing has changed, unless the message says that the class is
        forgotten but a file cannot be removed.
        """
        with self._folder.writing(self.lock_seconds):
            return forget(self._folder, self._model, self._known(name), retrain=retrain)

    def undo(self, *, discard: bool = False) -> Undone:
        """Return to the state before the last visit. Raises LearnerError.

        It can be repeated `keep_generations` times. `forget` removes earlier generations, so a
        forgotten class does not return. `discard` discards an unfinished visit, which is an error
        otherwise.
        """
        with self._folder.writing(self.lock_seconds):
            self._check_finished(discard=discard)
            return undo(self._folder)

    def rename(
        self, old: str | int, new: str | int, *, merge: bool = False, discard: bool = False
    ) -> None:
        """Rename a class, also in the history and in earlier generations. Raises LearnerError.

        If there is a class `new` already, `merge` makes one class of both: their probabilities are
        added, and new samples train the output of the one that was learnt first. `discard` discards
        an unfinished visit, which is an error otherwise.
        """
        with self._folder.writing(self.lock_seconds):
            self._check_finished(discard=discard)
            with _data_errors():
                rename(self._folder, self._known(old), class_name(new), merge=merge)

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
                named below the confidence that reaches it on held-out samples;
                `Predictions.abstention` has the confidence and the share of samples above it.
            unknown: Mark samples that resemble no known class, at this rate of false alarms on
                samples of known classes, such as 0.05. It is calibrated on held-out samples.
            skip_unreadable: Skip files that cannot be read; a warning names them.

        Raises LearnerError.

        """
        if type(top) is not int or top < 1:
            raise LearnerError(f"top={top!r:.60}: give a whole number of classes, at least 1")
        self._predictor.scorer()
        with self._reading(data, None, skip_unreadable, labelled=False) as source:
            found, *_ = self._predictor.predictions(source, top, abstain, unknown)
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
        self._predictor.scorer()
        with self._reading(data, labels, skip_unreadable) as source:
            predicted, scores, distances = self._predictor.predictions(source, 1, abstain, unknown)
        return evaluate(scores, source.names or [], self.classes, predicted, distances)

    def evaluate_held_out(self) -> Evaluation:
        """Measure on held-out samples, which it never learns from. Raises LearnerError."""
        scores, truth = self._predictor.held_out_scores()
        names = [self.classes[column] for column in truth.tolist()]
        return evaluate(scores, names, self.classes, Predictions.of(scores, self.classes))

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
        how, abstain = self.preprocessing, self.abstentions()
        return export_model(
            self.net(), target, to, classes=self.classes, preprocessing=how, abstentions=abstain
        )

    def abstentions(self) -> list[Abstention]:
        """Return the confidence that usual accuracies need; none without held-out samples."""
        try:
            scores, truth = self._predictor.held_out_scores()
        except NoHeldOutError:
            return []
        return [find_abstention(scores, truth, wanted) for wanted in _USUAL_ACCURACIES]

    def net(self) -> nn.Module:
        """Return a copy of the module that predicts, on the CPU.

        It maps inputs [B, *input_shape] that went through `preprocessing` to scores over `classes`,
        in their order, whose softmax are the learner's probabilities.
        """
        return copy.deepcopy(self._predictor.scorer()).cpu()

    def show(self) -> Summary:
        """Return classes, samples, settings, generations, calibration and size of the learner."""
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
        known, size = self._manifest.data, self.settings.image_size
        with _data_errors():
            source = read(
                data,
                labels,
                labelled=labelled,
                expected=None if known is None else known.inputs,
                size=size,
                skip_unreadable=skip_unreadable,
            )
            yield source
        self.skipped = source.skipped
        if line := source.skipped.unreadable_line:
            warnings.warn(line, UnreadableImageWarning, stacklevel=4)

    def _known(self, name: str | int) -> str:
        with _data_errors():
            name = class_name(name)
        if name not in self._manifest.known:
            raise LearnerError(
                f"unknown class {name!r}: the learner knows {listed(self.classes) or 'none'}"
            )
        return name

    def _check_finished(self, *, discard: bool) -> None:
        if not discard and (unfinished := self.unfinished) is not None:
            raise LearnerError(
                f"the visit {unfinished!r} is not finished. Finish it first, or discard it: "
                f"discard=True (--discard)."
            )
