"""The learner: one model in a folder, which learns new classes visit after visit, for years."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

import torch
from pydantic import ValidationError
from torch import nn

from remask import __version__
from remask.durable import AnyPath
from remask.engine.capturing import check_compiler
from remask.learner import staging
from remask.learner.accounts import (
    Forgotten,
    Visit,
    listed,
)
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
from remask.learner.errors import LearnerError, data_errors
from remask.learner.folder import LearnerFolder
from remask.learner.forgetting import Forgetting
from remask.learner.manifest import Manifest, read_manifest
from remask.learner.settings import LearnerSettings, check_settings
from remask.learner.training import OnProgress
from remask.learner.visiting import Visiting
from remask.methods import Method, find_method
from remask.planning.defaults import describe
from remask.user_data import Data, Labels, checked_name, class_name, read

_READER_TRIES = 5


class Learner(LearnerAnswers):
    """One model for years: it learns new classes, predicts, survives restarts, and forgets.

    Made by `create` or `open`; a context manager, which `close` ends. One process at a time may
    write; any number may read, each what was there when it opened the learner.
    """

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
            )
        except ValidationError as error:
            raise LearnerError(describe(error)) from None
        check_settings(settings, kind)
        usable_device(device)
        if compile:
            check_compiler(device)
        manifest = Manifest(remask=__version__, settings=settings)
        path = Path(folder).expanduser()
        made = LearnerFolder.create(path, manifest, made_of.weights())
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
        read_only: bool = False,
    ) -> "Learner":
        """Open a learner. Raises LearnerError, or LockHeldError if another process may write it.

        `net`, `backbone` and `method` are for code of your own, which is not stored.
        """
        opened = LearnerFolder.open(Path(folder).expanduser(), read_only=read_only)
        try:
            settings = opened.manifest.settings
            made_of = reopened(settings, net, backbone)
            kind = method_of(settings, method)
            learner = cls(opened, made_of, kind, device, compile=compile)
            if opened.manifest.given is not None and made_of.given is not None:
                made_of.load(opened.read_tensors(opened.manifest.given))
            if read_only:
                learner._load_for_reading()
            else:
                staging.discard_stale(opened.path / staging.VISIT, opened.manifest.generation)
        except BaseException:
            opened.close()
            raise
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
        self._check_writable()
        known, place = self._manifest.data, self._folder.path / staging.VISIT
        with data_errors():
            checked_name(name, "a visit")
            source = read(
                data,
                labels,
                labelled=True,
                expected=None if known is None else known.inputs,
                size=self._manifest.settings.image_size,
                skip_unreadable=skip_unreadable,
            )
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
        visit = visiting.learn(on_progress, self.checkpoint_seconds)
        self._scorer = None
        return visit

    def forget(self, name: str | int, *, retrain: bool = False) -> Forgotten:
        """Remove a class: its output, its samples and what was stored with them, for good.

        Every file that held them is written anew, and it is checked that no file of the folder has
        them. A visit that is not finished is given up. `Forgotten.not_promised` says what stays:
        the other weights were shaped by the class. With `retrain` a new net is trained from what
        the memory holds of the others. Raises LearnerError, and then nothing has changed.
        """
        self._check_writable()
        with data_errors():
            name = class_name(name)
        if name not in self._manifest.known:
            raise LearnerError(
                f"unknown class {name!r}: the learner knows {listed(self.classes) or 'none'}"
            )
        forgetting = Forgetting(self._folder, self._architecture, self._method, self._device)
        forgotten = forgetting.forget(name, retrain=retrain)
        self._scorer = None
        return forgotten

    def close(self) -> None:
        """Let another process write. A learner that is closed still predicts."""
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load_for_reading(self) -> None:
        """Have all that predictions need, before a writer replaces it."""
        for attempt in range(_READER_TRIES):
            try:
                if self._manifest.known:
                    self._ready()
                return
            except LearnerError:
                if attempt == _READER_TRIES - 1:
                    raise
                before = self._folder.manifest.generation
                self._folder.manifest = read_manifest(self._folder.path)
                if self._folder.manifest.generation == before:  # it is not that a writer came by
                    raise

    def _check_writable(self) -> None:
        if not self._folder.writable:
            raise LearnerError(
                "this learner is closed, or was opened to read only: open it again with "
                "Learner.open(folder)"
            )
