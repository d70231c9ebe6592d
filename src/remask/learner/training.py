"""Training a visit: its candidates, which differ in mask and learning rate, side by side.

The saved state is that of one net. A visit with C candidates starts with C copies of it, which
share seed, batches and memory; one of them is kept.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from remask.config import COMMON_WEIGHTS, TrialConfig
from remask.engine import DataDescription, Position, TrialStack
from remask.engine.checkpoints import CheckpointFolder
from remask.engine.choosing import Candidate as Masking
from remask.engine.choosing import candidates_of
from remask.engine.saved_nets import check_predictor
from remask.engine.validation import check_config, check_open
from remask.errors import describe_errors
from remask.learner.data import OnProgress
from remask.learner.folder import Tensors
from remask.learner.manifest import Manifest
from remask.learner.model import Model
from remask.learner.results import Progress
from remask.learner.samples import HeldOut
from remask.learner.scoring import class_weights, stack_log_probabilities
from remask.learner.settings import (
    AUTO,
    CLOSED_FORM,
    LINEAR,
    OWN_MODULE,
    LearnerError,
    LearnerSettings,
)
from remask.machine import StopRequest
from remask.memory import StoredRows
from remask.methods import Method
from remask.papers.published import published_settings

_NAME = "learner"  # the benchmark and the net of a learner's configs
_SMALL_NETS = ("mlp", LINEAR)
_OWN_WEIGHTS_LR = 0.01  # pretrained weights must not move far
_ADAMW_LR, _ADAMW_OWN_WEIGHTS_LR = 1e-3, 1e-4
_CONV_LR, _CONV_BATCH, _CONV_EPOCHS = 0.1, 16, 20
_USUAL_EPOCHS = 50  # of Split-CIFAR-10 in the paper
_MOST_STEPS = 1200  # of a small net: an epoch of the paper's Split-MNIST
_SHARED = ("stream/counts", "stream/steps")  # by all nets of a stack
_FACTOR = 3.0  # between neighbouring learning rates
_FURTHEST = 30.0  # from the usual learning rate
_PATIENCE_EPOCHS, _PATIENCE_STEPS = 2, 200  # without improvement, both of which end a visit
_LEAST_GAIN = 0.01  # of the log-likelihood
_LEAST = -1e300
_CROP_SHARE = 8  # images are cropped from a frame of an eighth of their side


def check_settings(settings: LearnerSettings, method: type[Method] | None) -> None:
    """Raise LearnerError or MethodError for settings that no visit can be learnt with.

    `method` trains the net; None if no net is trained.
    """
    if settings.memory == 0 and settings.method not in (AUTO, *CLOSED_FORM):
        raise LearnerError(
            f"memory=0 keeps no samples to replay, which {settings.method} needs. Use "
            f"method='auto', 'ridge', 'slda' or 'ncm', or memory=1 or more."
        )
    if settings.method in CLOSED_FORM and settings.net not in (AUTO, LINEAR):
        raise LearnerError(
            f"method={settings.method!r} computes a linear head of features and trains no net: "
            f"leave out net={settings.net!r}"
        )
    if method is None or settings.memory == 0:
        return
    if not method.class_il:
        raise LearnerError(
            f"{method.title} needs the task of every input, which a learner does not have"
        )
    check_predictor(method)
    data = DataDescription((1,), 1, name=_NAME, input_type=torch.float32)
    check_open(method, data)
    buffer = settings.places(1)[0] if isinstance(settings.memory, int) else 200
    check_config(trial_config(settings, method, buffer, settings.net, 10_000), method, data)


def trial_config(
    settings: LearnerSettings, method: type[Method], buffer: int, net: str, samples: int
) -> TrialConfig:
    """Return the config of a visit of `samples` samples. Raises LearnerError.

    What the settings leave open is as published for the same kind of net. `epochs` is the maximum:
    for small nets as many steps as Split-MNIST takes per task.
    """
    like = "split-mnist" if net in _SMALL_NETS else "split-cifar10"
    own = published_settings(like, method.name, buffer)
    usual = own or published_settings(like, "er_ema", buffer)
    assert usual is not None
    weights = dict(method.weights)
    weights.update({n: v for n, v in (own.weights if own else {}).items() if n in weights})
    common = {name: weights.pop(name) for name in COMMON_WEIGHTS if name in weights}
    lr, batch, replay_batch, epochs = usual.lr, usual.batch, usual.replay_batch, _USUAL_EPOCHS
    if _is_conv(net):
        lr, batch, replay_batch, epochs = _CONV_LR, _CONV_BATCH, _CONV_BATCH, _CONV_EPOCHS
    adamw, has_own_weights = settings.optimizer == "adamw", settings.net == OWN_MODULE
    if has_own_weights:
        lr = _ADAMW_OWN_WEIGHTS_LR if adamw else _OWN_WEIGHTS_LR
    elif adamw:
        lr = _ADAMW_LR
    batch, replay_batch = settings.batch or batch, settings.replay_batch or replay_batch
    if net in _SMALL_NETS:
        epochs = max(1, round(_MOST_STEPS * batch / samples))
    mask, fade = settings.mask, method.usual_fade
    if mask == AUTO:  # the candidates have masks of their own; this is for a method without memory
        mask, fade = method.usual_mask, 0.0
    try:
        return TrialConfig(
            benchmark=_NAME,
            method=method.name if settings.method == AUTO else settings.method,
            mask=mask,
            buffer=buffer if method.uses_buffer() else 0,
            seed=settings.seed,
            net=_NAME,
            lr=lr if settings.lr is None else settings.lr,
            batch=batch,
            replay_batch=replay_batch if method.uses_replay_batch() else 0,
            epochs=settings.epochs or epochs,
            weights=weights,
            fade=fade if mask is not None else 0.0,
            memory="balanced" if method.draws else "reservoir",
            **common,
        )
    except ValidationError as error:
        raise LearnerError(describe_errors(error)) from None


def _is_conv(net: str) -> bool:
    return net.partition(":")[0] == "conv"


def candidate_configs(
    settings: LearnerSettings,
    config: TrialConfig,
    method: type[Method],
    *,
    remembered: float | None,
    seen: int,
) -> list[TrialConfig]:
    """Return the configs that a visit trains side by side; the first is the default.

    `config` has the usual learning rate, `remembered` is that of the visit before, and `seen` the
    number of samples so far. In a first visit all masks are equivalent, so only learning rates
    differ. Later, rates are compared with the default mask, and masks at the rate of the visit
    before.
    """
    usual, now = config.lr, remembered or config.lr
    rates = [settings.lr or now]
    if settings.lr is None:
        near = (now, now / _FACTOR, now * _FACTOR)
        rates = [rate for rate in near if usual / _FURTHEST <= rate <= usual * _FURTHEST]
    masks = [config]
    if settings.mask == AUTO and not method.unmaskable and method.uses_buffer():
        chosen: dict[Masking, TrialConfig] = {}
        for masking in candidates_of(config.buffer):
            faded = masking.fade * config.buffer >= seen  # it masks nothing from the first step on
            key = Masking(None) if faded else masking
            chosen.setdefault(key, masking.config(config, config.buffer))
        masks = list(chosen.values())
    others = masks[1:] if remembered is not None else []
    return [
        *(masks[0].model_copy(update={"lr": rate}) for rate in rates),
        *(mask.model_copy(update={"lr": rates[0]}) for mask in others),
    ]


def make_stack(
    manifest: Manifest,
    model: Model,
    samples: int,
    *,
    seen: int,
    only_default: bool = False,
    earlier_samples: Sequence[StoredRows] = (),
) -> TrialStack:
    """Make the engine for a visit of `samples` samples, before it has learnt anything.

    `seen` counts the samples of all visits. With `only_default`, there is one candidate.
    """
    data, settings, method = manifest.data_note, manifest.settings, model.trained_by
    replayed, _ = settings.places(data.kept.sample_bytes)
    config = trial_config(settings, method, replayed, data.net, samples)
    configs = candidate_configs(settings, config, method, remembered=manifest.lr, seen=seen)
    augment = _is_conv(data.net) if settings.augment is None else settings.augment
    augment = augment and data.kept.is_image
    description = DataDescription(
        input_shape=data.kept.shape,
        num_classes=manifest.outputs,
        name=_NAME,
        input_type=data.kept.tensor_type,
        **data.kept_seen.model_dump(),
        crop_padding=min(data.kept.shape[1:]) // _CROP_SHARE if augment else 0,
        flip=augment,
    )
    return TrialStack(
        configs[:1] if only_default else configs,
        description,
        method=method,
        build_net=model.net_builder(data.net),
        device=model.device,
        earlier_samples=earlier_samples if method.draws else None,
        optimizer=settings.optimizer,
    )


def copies(state: Mapping[str, Tensor], count: int) -> Tensors:
    """Return the state of `count` nets, all equal to a saved one."""
    return {
        name: tensor if name in _SHARED else tensor.repeat(count, *[1] * (tensor.ndim - 1))
        for name, tensor in state.items()
    }


def one_of(state: Mapping[str, Tensor], number: int, count: int) -> Tensors:
    """Return the state of one net among `count`."""
    return {
        name: tensor if name in _SHARED else tensor.chunk(count)[number]
        for name, tensor in state.items()
    }


class Training:
    """Trains a stack on the samples of one visit, until held-out accuracy stops rising."""

    def __init__(
        self,
        stack: TrialStack,
        held: HeldOut,
        manifest: Manifest,
        device: torch.device,
        checkpoints: CheckpointFolder | None = None,
        checkpoint_seconds: float = math.inf,
    ) -> None:
        self._stack, self._held, self._manifest, self._device = stack, held, manifest, device
        self._checkpoints, self._every = checkpoints, checkpoint_seconds
        self._measured: list[list[float]] = []  # accuracy and log-likelihood after each epoch
        self.steps, self.epochs, self.seconds = 0, 0, 0.0

    def run(
        self, inputs: StoredRows, labels: Tensor, on_progress: OnProgress | None = None
    ) -> None:
        """Learn the samples, from the latest checkpoint if there is one.

        An error in `on_progress`, or a signal to stop, ends the training with a checkpoint.
        """
        stack, start = self._stack, self._stack.position.task
        resumed = self._resume()
        if stack.position.task != start:
            return
        task, config = stack.new_task(inputs, labels), stack.configs[0]
        steps = -(-len(labels) // config.batch) * config.epochs
        last = time.monotonic()
        began = last - self.seconds
        with StopRequest() as stop:
            for position in stack.learn_steps(task, enough=self._enough):
                now = time.monotonic()
                self.steps, self.epochs = self.steps + 1, position.epoch + 1
                self.seconds = now - began
                try:
                    if on_progress is not None:
                        on_progress(Progress(self.steps, steps, self.epochs, resumed))
                    if stop.signal is not None:
                        raise KeyboardInterrupt(stop.signal)
                except BaseException:
                    self.save()
                    raise
                if now - last >= self._every:
                    self.save()
                    last = time.monotonic()

    def all_diverged(self) -> bool:
        """Whether the loss of every trial became NaN or infinite."""
        return None not in self._stack.diverged_at

    def save(self) -> None:
        """Write a checkpoint."""
        if self._checkpoints is None:
            return
        notes: dict[str, Any] = {
            "measured": self._measured,
            "epochs": self.epochs,
            "steps": self.steps,
            "seconds": self.seconds,
        }
        self._checkpoints.save(self._stack.state(), self._stack.position._asdict(), notes)

    def _resume(self) -> bool:
        if self._checkpoints is None:
            return False
        saved = self._checkpoints.load(self._stack.state(), growing=self._stack.growing)
        if saved is None:
            return False
        self._stack.restore(saved.tensors, Position(**saved.position))
        notes: Any = saved.extra
        self._measured, self.seconds = notes["measured"], notes["seconds"]
        self.steps, self.epochs = notes["steps"], notes["epochs"]
        return True

    def _enough(self, epochs: int) -> bool:
        """Whether held-out accuracy and likelihood have stopped rising, or all trials diverged."""
        if self._stack.configs[0].epochs == 1 or self.all_diverged():
            return True
        self._measured = [*self._measured[: epochs - 1], self._measure()]
        since = epochs - 1 - _latest_rise(self._measured)
        return since >= _PATIENCE_EPOCHS and since * self.steps >= _PATIENCE_STEPS * epochs

    def _measure(self) -> list[float]:
        """Return accuracy and log-likelihood of the best trial; every class weighs the same.

        The likelihood rises while a net still learns, before the first sample changes sides.
        """
        if not len(self._held):
            return [0.0, 0.0]
        rated = stack_log_probabilities(self._stack, self._held, self._manifest, self._device)
        truth = self._held.truth(self._manifest)
        weights = class_weights(truth)
        right = (rated.argmax(2) == truth).double() @ weights
        likelihood = rated.gather(2, truth.expand(len(rated), -1).unsqueeze(2)).squeeze(2) @ weights
        # JSON has no -inf, the likelihood of a class that a method does not predict yet.
        likelihood = likelihood.nan_to_num(nan=_LEAST, posinf=_LEAST, neginf=_LEAST)
        return [float(right.max()), float(likelihood.max())]


def _latest_rise(measured: Sequence[Sequence[float]]) -> int:
    """Return the latest epoch, from 0, that was better than all before it by either measure."""
    latest, (accuracy, likelihood) = 0, measured[0]
    for epoch, now in enumerate(measured):
        if now[0] > accuracy or now[1] > likelihood + _LEAST_GAIN:
            latest, accuracy, likelihood = epoch, max(accuracy, now[0]), max(likelihood, now[1])
    return latest
