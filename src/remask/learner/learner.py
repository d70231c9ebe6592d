"""The learner: one model in a folder, which learns new classes visit after visit."""

import warnings
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn

from remask import __version__
from remask.data.classes import checked_name, class_name
from remask.data.readers import Labels
from remask.data.texts import TextFile as TextFile
from remask.data.user_data import Data
from remask.errors import DataError, describe_errors, unknown
from remask.files import AnyPath
from remask.learner.data import NO_ENCODER, OnProgress, lacks_encoder
from remask.learner.estimate import Estimate, estimate
from remask.learner.folder import LearnerFolder
from remask.learner.forgetting import forget
from remask.learner.manifest import Manifest
from remask.learner.model import EncoderGiven, Model, NetGiven, check_given, is_own_encoder, name_of
from remask.learner.reader import LearnerReader
from remask.learner.results import Forgotten, Undone, Visit, listed
from remask.learner.settings import (
    AUTO,
    NONE,
    OWN_MODULE,
    LearnerError,
    LearnerSettings,
    NoEncoderWarning,
)
from remask.learner.training import check_settings
from remask.learner.visit import stage_visit
from remask.methods import Method

MAX_DROP = 25.0
"""Points that a visit may cost earlier classes by default."""


class Learner(LearnerReader):
    """One model for years: it learns new classes, predicts, survives restarts, and forgets.

    Made by `create` or `open`. Any number of processes may open and read a learner. `learn`,
    `forget`, `undo` and `rename` wait for a lock, or raise LockHeldError, and continue from the
    newest generation.
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
        method: str | type[Method] = "auto",
        device: torch.device | str = "cpu",
        **settings: Any,
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
        for name in settings.keys() - LearnerSettings.model_fields.keys():
            raise LearnerError(unknown("setting", name, LearnerSettings.model_fields))
        given = {"encoder": encoder, "net": net, "method": name_of(method)}
        named = {k: OWN_MODULE if isinstance(own, nn.Module) else own for k, own in given.items()}
        try:
            chosen = LearnerSettings.model_validate({**named, **settings})
        except ValidationError as error:
            raise LearnerError(describe_errors(error)) from None
        model = Model(chosen, net, encoder, method, device)
        check_settings(chosen, model.method)
        if net != AUTO:
            model.net_builder(chosen.net)
        if isinstance(encoder, str) and encoder not in (AUTO, NONE) and not is_own_encoder(encoder):
            model.encoder(encoder, None)  # a missing package is reported now
        manifest, path = Manifest(remask=__version__, settings=chosen), Path(folder).expanduser()
        weights = {} if model.own_net is None else model.own_net.state_dict()
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
        check_given(settings, net, encoder, method)
        model = Model(settings, net, encoder, method, device)
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
        its result is returned. With `skip_unreadable`, files that cannot be read are skipped, and a
        warning names them. `on_progress` is called after every step; if it raises, a checkpoint is
        saved, as for Ctrl-C.

        Raises VisitRejectedError if on held-out samples the learner would be no better than
        guessing, or if the visit costs earlier classes more than `max_drop` points. The learner is
        then as it was before. With `force`, the visit is committed nevertheless, without training
        again.
        """
        with self._folder.writing(self.lock_seconds):
            with self._reading(data, labels, skip_unreadable) as source:
                checked_name(name, "a visit")
                run = stage_visit(self._folder, self._model, source, name, discard, on_progress)
            if isinstance(run, Visit):
                return run
            if self._manifest.data is None and lacks_encoder(self.settings, run.after.data_note):
                warnings.warn(NO_ENCODER, NoEncoderWarning, stacklevel=2)
            return run.run(on_progress, self.checkpoint_seconds, max_drop=max_drop, force=force)

    def estimate(
        self, data: Data, labels: Labels = None, *, skip_unreadable: bool = False
    ) -> Estimate:
        """Estimate how long `learn` would take, from a few samples. Nothing is changed."""
        with self._reading(data, labels, skip_unreadable) as source:
            return estimate(self._manifest, self._model, source)

    def forget(self, name: str | int, *, retrain: bool = False) -> Forgotten:
        """Remove a class for good: its output, its samples and what was stored with them.

        Every file that held them is written again; earlier generations and an unfinished visit
        are removed. A head in closed form becomes that of a learner that never saw the class.
        Otherwise the other weights, which were trained on the class, stay, unless `retrain` trains
        a new net from the remaining memory. Raises LearnerError.
        """
        with self._folder.writing(self.lock_seconds):
            return forget(self._folder, self._model, self._known(name), retrain=retrain)

    def undo(self, *, discard: bool = False) -> Undone:
        """Return to the state before the last visit. Raises LearnerError.

        It can be repeated `keep_generations` times. A forgotten class does not return. `discard`
        discards an unfinished visit, which is an error otherwise.
        """
        with self._folder.writing(self.lock_seconds):
            self._check_finished(discard=discard)
            now = self._manifest
            if not now.earlier:
                raise LearnerError(
                    f"{self._folder.path} has no earlier generation to return to. It keeps at most "
                    f"{now.settings.keep_generations} (keep_generations), and forgetting a class "
                    f"removes them. Nothing was changed."
                )
            then = now.earlier[-1]
            history, earlier = now.history[: then.visits], now.earlier[:-1]
            self._folder.commit(now.changed(**then.learnt(), history=history, earlier=earlier))
        removed = tuple(name for name in now.known if name not in then.known)
        undone = ", ".join(visit.name for visit in now.history[then.visits :])
        return Undone(undone, tuple(then.known), removed)

    def rename(
        self, old: str | int, new: str | int, *, merge: bool = False, discard: bool = False
    ) -> None:
        """Rename a class, also in the history and in earlier generations. Raises LearnerError.

        If there is a class `new` already, `merge` makes one class of both, whose probabilities are
        added. `discard` discards an unfinished visit, which is an error otherwise.
        """
        with self._folder.writing(self.lock_seconds):
            self._check_finished(discard=discard)
            now, old, new = self._manifest, self._known(old), _checked(new)
            if old == new:
                raise LearnerError(f"the class is already called {old!r}. Nothing was changed.")
            if new in now.known and not merge:
                raise LearnerError(
                    f"there is already a class {new!r}. Choose another name, or make one class of "
                    f"both: merge=True (--merge)."
                )
            if new not in now.known and merge:
                raise LearnerError(
                    f"cannot merge {old!r} with {new!r}: {new!r} is not a known class."
                )
            history = tuple(visit.renamed(old, new) for visit in now.history)
            earlier = tuple(each.renamed(old, new) for each in now.earlier)
            renamed = now.renamed(old, new).changed(history=history, earlier=earlier)
            self._folder.commit(renamed)

    def _known(self, name: str | int) -> str:
        name = _checked(name)
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


def _checked(name: str | int) -> str:
    """Return the name of a class, or raise LearnerError."""
    try:
        return class_name(name)
    except DataError as error:
        raise LearnerError(str(error)) from error
