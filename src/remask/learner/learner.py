"""The learner: one model in a folder, which learns new classes visit after visit, for years."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from pydantic import ValidationError
from torch import nn

from remask import __version__
from remask.durable import AnyPath
from remask.engine.capturing import check_compiler
from remask.errors import RemaskError
from remask.learner import staging
from remask.learner.accounts import Forgotten, Undone, Visit, listed
from remask.learner.answers import LearnerAnswers
from remask.learner.architecture import (
    NetGiven,
    architecture,
    method_of,
    name_of,
    reopened,
    usable_device,
)
from remask.learner.arrival import Arrival
from remask.learner.changing import rename, undo
from remask.learner.errors import LearnerError, damaged, data_errors
from remask.learner.folder import LearnerFolder
from remask.learner.forgetting import Forgetting
from remask.learner.manifest import MANIFEST, Manifest
from remask.learner.settings import LearnerSettings, check_settings
from remask.learner.training import OnProgress
from remask.learner.visiting import Visiting
from remask.methods import Method, find_method
from remask.planning.defaults import describe
from remask.user_data import Data, Labels, checked_name, class_name, read


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
        net: str | nn.Module = "mlp",
        backbone: nn.Module | None = None,
        freeze: bool = False,
        memory: int | str = 2000,
        method: str | type[Method] = "er_ema",
        mask: float | str | None = "auto",
        lr: float | None = None,
        epochs: int | None = None,
        batch: int | None = None,
        replay_batch: int | None = None,
        optimizer: Literal["sgd", "adamw"] = "sgd",
        augment: bool = False,
        image_size: int | tuple[int, int] | None = None,
        normalise: str | tuple[Sequence[float], Sequence[float]] = "auto",
        seed: int = 0,
        keep_generations: int = 3,
        device: torch.device | str = "cpu",
        compile: bool = False,  # noqa: A002
    ) -> "Learner":
        """Make a learner in a folder that is empty or not there yet. Raises LearnerError.

        `net` is "mlp", "linear" (for embeddings), "resnet18", "resnet18:20" for width 20,
        `module:function`, or a module with weights of your own, whose last linear layer is replaced
        by the head that grows. Or `backbone` is a module that gets a linear head; with `freeze` it
        stays as it is, its features are computed once per sample, and they are what the memory
        keeps. Weights are stored, code is not: `open` asks for such modules again.

        `memory` is how many samples are kept, or a size such as "500 MB"; a tenth of it is held
        out, to measure on. `mask="auto"` chooses by what is held out. What is not given (learning
        rate, batches) is what was published for this kind of net. `epochs` are at most so many: a
        visit ends when accuracy on held-out samples has stopped rising.

        `augment` crops and mirrors training images at random. `image_size` is what image files are
        resized and cropped to; without it, the size of the first one, or 64 x 64 if that is larger.
        `normalise` is (means, deviations) per channel for inputs scaled to [0, 1], or "none";
        "auto" takes those of the first visit, and "none" for a net with weights of your own.

        `keep_generations` is how many visits `undo` can take back. Each takes at most the disk
        space of the learner itself.

        `compile` compiles the steps of visits with torch.compile, as `TrialStack` does. It is not
        stored: say it to `open` as well.
        """
        kind = find_method(method) if isinstance(method, str) else method
        made_of = architecture(net, backbone, freeze=freeze)
        size = (image_size, image_size) if isinstance(image_size, int) else image_size
        try:
            settings = LearnerSettings(
                net=made_of.name,
                freeze=freeze,
                memory=memory,
                method=method if isinstance(method, str) else name_of(kind),
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
            )
        except ValidationError as error:
            raise LearnerError(describe(error)) from None
        check_settings(settings, kind)
        usable_device(device)
        if compile:
            check_compiler(device)
        manifest = Manifest(remask=__version__, settings=settings)
        path = Path(folder).expanduser()
        made = LearnerFolder.create(path, manifest, made_of.weights(), cls.lock_seconds)
        return cls(made, made_of, kind, device, compile=compile)

    @classmethod
    def open(
        cls,
        folder: AnyPath,
        *,
        net: NetGiven | None = None,
        backbone: nn.Module | None = None,
        method: type[Method] | str | None = None,
        device: torch.device | str = "cpu",
        compile: bool = False,  # noqa: A002
    ) -> "Learner":
        """Open a learner. Raises LearnerError. It is not locked, and may be open several times.

        `net`, `backbone` and `method` are for code of your own, which is not stored.
        """
        opened = LearnerFolder.open(Path(folder).expanduser())
        settings = opened.manifest.settings
        made_of = reopened(settings, net, backbone)
        kind = method_of(settings, method)
        try:
            check_settings(settings, kind)
        except RemaskError as error:
            raise damaged(opened.path / MANIFEST, f"settings: {error}") from error
        learner = cls(opened, made_of, kind, device, compile=compile)
        if opened.manifest.given is not None and made_of.given is not None:
            made_of.load(opened.read_tensors(opened.manifest.given))
        return learner

    def learn(
        self,
        data: Data,
        labels: Labels = None,
        *,
        name: str,
        discard: bool = False,
        skip_unreadable: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Visit:
        """Learn the classes of some data, new ones and known ones; all of it, or nothing.

        A visit that was interrupted goes on where it was when it is begun again with the same name
        and data; with other data, `discard=True` gives it up first. A visit that has been learnt
        already is not learnt again: its account is returned. With `skip_unreadable`, files that
        cannot be read are skipped, and a warning names them. `on_progress` is called after every
        step; what it raises ends the call with a checkpoint, as Ctrl-C does.
        """
        with data_errors():
            checked_name(name, "a visit")
            known = self._manifest.data
            source = read(
                data,
                labels,
                labelled=True,
                expected=None if known is None else known.inputs,
                size=self._manifest.settings.image_size,
                skip_unreadable=skip_unreadable,
            )
        with self._folder.writing(self.lock_seconds):
            place = self._folder.path / staging.VISIT
            with data_errors():
                arrival = Arrival(self._manifest, place, self._architecture, self._device)
                staged = arrival.stage(source, name, discard=discard)
            self._report_skipped(source)
            if isinstance(staged, Visit):
                return staged
            visiting = Visiting(
                self._folder,
                staged,
                self._architecture,
                self._method,
                self._device,
                compile=self._compile,
            )
            return visiting.learn(on_progress, self.checkpoint_seconds)

    def forget(self, name: str | int, *, retrain: bool = False) -> Forgotten:
        """Remove a class: its output, its samples and what was stored with them, for good.

        Every file that held them is written again, earlier generations are removed, and every file
        of the folder is searched for the samples. A visit that is not finished is given up.
        `Forgotten.not_promised` says what stays: the other weights were shaped by the class. With
        `retrain` a new net is trained from what the memory holds of the others. Raises
        LearnerError. Then nothing has changed, unless the message says that the class is forgotten
        but a file cannot be removed.
        """
        with self._folder.writing(self.lock_seconds):
            forgetting = Forgetting(self._folder, self._architecture, self._method, self._device)
            return forgetting.forget(self._known(name), retrain=retrain)

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
