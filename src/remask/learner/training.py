"""Training a visit, and choosing among candidates: masks, learning rates and heads.

The saved state is that of one net. A visit with C candidates starts with C copies of it, which
share seed, batches and memory; one of them is kept. Candidates are compared on held-out samples by
the rule of the engine: the default is kept unless another one is significantly better.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch
from pydantic import JsonValue
from torch import Tensor

from remask.config import TrialConfig
from remask.engine import DataDescription, Position, TrialStack
from remask.engine.checkpoints import CheckpointFolder
from remask.engine.choosing import Candidate as Masking
from remask.engine.choosing import candidates_of, fading_name
from remask.engine.choosing import choice as choose_candidate
from remask.learner.calibration import class_weights
from remask.learner.errors import LearnerError
from remask.learner.folder import MISFITS
from remask.learner.manifest import SMALLEST_HEAD, Manifest
from remask.learner.model import Model
from remask.learner.results import Choice, Progress
from remask.learner.samples import HeldOut
from remask.learner.scoring import score_held_out, stack_log_probabilities
from remask.learner.settings import AUTO, NAME, LearnerSettings, trial_config
from remask.learner.statistics import Statistics, fitted
from remask.learner.visit_files import OnProgress
from remask.memory import StoredRows
from remask.methods import Method
from remask.setting_types import write_mask

_SHARED = ("stream/counts", "stream/steps")
_FACTOR = 3.0  # between neighbouring learning rates
_FURTHEST = 30.0  # from the usual learning rate
_PATIENCE_EPOCHS, _PATIENCE_STEPS = 2, 200  # without improvement, both of which end a visit
_LEAST_GAIN = 0.01  # of the log-likelihood
_CROP_SHARE = 8  # images are cropped from a frame of an eighth of their side


@dataclass(frozen=True)
class Trained:
    """The effort of training."""

    epochs: int = 0
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Candidate:
    """A state that the learner could have after a change."""

    name: str
    manifest: Manifest
    tensors: dict[str, Tensor]
    """Of the head, or of the net and its training."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """The best candidate."""

    candidate: Candidate
    why: str
    scores: Tensor
    """[n, C] of held-out samples of known classes."""
    truth: Tensor
    """Their true columns [n]."""


def head_candidates(manifest: Manifest, statistics: Statistics) -> list[Candidate]:
    """Return the heads in closed form that the settings name."""
    return [
        Candidate(name, manifest.model_copy(update={"head": name}), fitted(name, statistics.pooled))
        for name in manifest.settings.heads
    ]


def choose(candidates: Sequence[Candidate], held: HeldOut, model: Model) -> Chosen:
    """Choose a candidate by its accuracy on held-out samples."""
    scores = [score_held_out(held, each.manifest, each.tensors, model) for each in candidates]
    right = torch.stack([rated.argmax(1) == truth for rated, truth in scores])
    names = [each.name for each in candidates]
    best, why = _compare(names, right, scores[0][1], [True] * len(candidates))
    return Chosen(candidates[best], why, *scores[best])


def choose_trial(
    stack: TrialStack, held: HeldOut, manifest: Manifest, model: Model
) -> tuple[dict[str, Tensor], Choice]:
    """Choose a trial of a stack; return its state and its settings."""
    truth = held.truth(manifest)
    right = stack_log_probabilities(stack, held, manifest, model).argmax(-1) == truth
    configs = stack.configs
    usable = [diverged_at is None for diverged_at in stack.diverged_at]
    chosen, why = _compare([_shown(config, configs) for config in configs], right, truth, usable)
    config = configs[chosen]
    if not why:
        why = "the default; there is nothing to compare it with"
        if model.settings.mask != AUTO or not config.buffer:
            why = "as the learner was created"
    settings = {"mask": _mask(config), "fade": config.fade, "fade_power": config.fade_power}
    choice = Choice(head="net", lr=config.lr, why=why, **settings)
    return one_of(stack.state(), chosen, len(configs)), choice


def _compare(
    names: Sequence[str], right: Tensor, truth: Tensor, usable: Sequence[bool]
) -> tuple[int, str]:
    """Choose by whether each candidate was right [C, n] about held-out samples; return why."""
    if len(names) == 1:
        return 0, ""
    if not len(truth):
        first = next((n for n, own in enumerate(usable) if own), 0)
        return first, "the default; there are no held-out samples to compare on"
    chosen, scores, errors = choose_candidate(right.numpy(), truth.numpy(), np.array(usable))
    found = ", ".join(
        f"{name} {score:.1f} %" if own else f"{name} diverged"
        for name, score, own in zip(names, scores, usable, strict=True)
    )
    why = "the default; no other is significantly better"
    if not usable[0]:
        why = "the default diverged"
    elif chosen:
        ahead = scores[chosen] - scores[0]
        why = f"{ahead:.1f} ±{errors[chosen]:.1f} points better than the default"
    return chosen, f"{why} (accuracy on {len(truth)} held-out samples: {found})"


def _mask(config: TrialConfig) -> str:
    written = write_mask(config.mask)
    return "none" if written is None else written if isinstance(written, str) else f"{written:g}"


def _shown(config: TrialConfig, configs: Sequence[TrialConfig]) -> str:
    mask = f"{_mask(config)} fading {fading_name(config)}" if config.fade else _mask(config)
    if len({own.lr for own in configs}) == 1:
        return f"m = {mask}"
    alike = len({(own.mask, own.fade) for own in configs}) == 1
    return f"lr {config.lr:g}" if alike else f"m = {mask} lr {config.lr:g}"


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
    rates = [now]
    if settings.lr is not None:
        rates = [settings.lr]
    else:
        near = (now, now / _FACTOR, now * _FACTOR)
        rates = [rate for rate in near if usual / _FURTHEST <= rate <= usual * _FURTHEST]
    masks = _masks(settings, config, method, seen)
    others = masks[1:] if remembered is not None else []
    return [
        *(masks[0].model_copy(update={"lr": rate}) for rate in rates),
        *(mask.model_copy(update={"lr": rates[0]}) for mask in others),
    ]


def _masks(
    settings: LearnerSettings, config: TrialConfig, method: type[Method], seen: int
) -> list[TrialConfig]:
    if settings.mask != AUTO or method.unmaskable or not method.uses_buffer():
        return [config]
    chosen: dict[Masking, TrialConfig] = {}
    for masking in candidates_of(config.buffer):
        faded = masking.fade * config.buffer >= seen  # then it masks nothing from the first step on
        key = Masking(None) if faded else masking
        chosen.setdefault(key, masking.config(config, config.buffer))
    return list(chosen.values())


def copies(state: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """Return the state of `count` nets, all equal to a saved one."""
    return {
        name: tensor if name in _SHARED else tensor.repeat(count, *[1] * (tensor.ndim - 1))
        for name, tensor in state.items()
    }


def one_of(state: Mapping[str, Tensor], number: int, count: int) -> dict[str, Tensor]:
    """Return the state of one net among `count`."""
    return {
        name: tensor if name in _SHARED else tensor.chunk(count)[number]
        for name, tensor in state.items()
    }


def outputs_for(classes: int, now: int) -> int:
    """Return the size of a head: no more outputs than needed, but at least as many as now.

    Spare outputs would weaken distillation, which averages over all of them.
    """
    return max(SMALLEST_HEAD, now, classes)


def make_stack(
    manifest: Manifest,
    model: Model,
    samples: int,
    *,
    seen: int,
    share: float = 1.0,
    only_default: bool = False,
    earlier_samples: Sequence[StoredRows] = (),
) -> TrialStack:
    """Make the engine for a visit of `samples` samples, before it has learnt anything.

    Learning rates are multiplied by `share`. With `only_default`, there is one candidate.
    """
    data, settings, method = manifest.data, manifest.settings, model.method
    assert data is not None
    assert method is not None
    replayed, _ = settings.places(data.kept.sample_bytes)
    config = trial_config(settings, method, replayed, data.net, samples)
    config = config.model_copy(update={"lr": config.lr * share})
    if settings.lr is not None:
        settings = settings.model_copy(update={"lr": config.lr})
    remembered = None if manifest.lr is None else manifest.lr * share
    configs = candidate_configs(settings, config, method, remembered=remembered, seen=seen)
    kept, how = data.kept, data.kept_seen
    augment = settings.augments(data.net) and kept.is_image
    description = DataDescription(
        input_shape=kept.shape,
        num_classes=manifest.outputs,
        name=NAME,
        input_type=kept.tensor_type,
        scale=how.scale,
        mean=how.mean,
        std=how.std,
        crop_padding=min(kept.shape[1:]) // _CROP_SHARE if augment else 0,
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


def all_diverged(stack: TrialStack) -> bool:
    """Whether the loss of every trial of a stack became NaN or infinite."""
    return None not in stack.diverged_at


class Training:
    """Trains a stack on the samples of one visit, until held-out accuracy stops rising."""

    def __init__(
        self,
        stack: TrialStack,
        held: HeldOut,
        manifest: Manifest,
        model: Model,
        checkpoints: CheckpointFolder | None = None,
        checkpoint_seconds: float = math.inf,
    ) -> None:
        self._stack, self._held, self._manifest, self._model = stack, held, manifest, model
        self._checkpoints, self._every = checkpoints, checkpoint_seconds
        self._measured: list[list[float]] = []  # accuracy and log-likelihood after each epoch
        self._steps, self._seconds, self._epochs = 0, 0.0, 0

    def run(
        self, inputs: StoredRows, labels: Tensor, on_progress: OnProgress | None = None
    ) -> Trained:
        """Learn the samples, from the latest checkpoint if there is one.

        An error in `on_progress` ends the training with a checkpoint.
        """
        stack, start = self._stack, self._stack.position.task
        resumed = self._resume()
        if stack.position.task == start:
            task = stack.new_task(inputs, labels)
            config = stack.configs[0]
            steps = -(-len(labels) // config.batch) * config.epochs
            began = last = time.monotonic()
            earlier = self._seconds
            with _interrupts_wait() as interrupted:
                for position in stack.learn_steps(task, enough=self._enough):
                    now = time.monotonic()
                    self._steps, self._epochs = self._steps + 1, position.epoch + 1
                    self._seconds = earlier + now - began
                    try:
                        if on_progress is not None:
                            on_progress(Progress(self._steps, steps, self._epochs, resumed))
                        if interrupted():
                            raise KeyboardInterrupt
                    except BaseException:
                        self.save()
                        raise
                    if now - last >= self._every:
                        self.save()
                        last = time.monotonic()
        return Trained(self._epochs, self._steps, self._seconds)

    def save(self) -> None:
        """Write a checkpoint."""
        if self._checkpoints is None:
            return
        notes: dict[str, JsonValue] = {
            # JSON has no -inf, the likelihood of a class that a method does not predict yet.
            "measured": [[v if math.isfinite(v) else None for v in own] for own in self._measured],
            "epochs": self._epochs,
            "steps": self._steps,
            "seconds": self._seconds,
        }
        self._checkpoints.save(self._stack.state(), self._stack.position._asdict(), notes)

    def _enough(self, epochs: int) -> bool:
        """Whether held-out accuracy and likelihood have stopped rising, or all trials diverged."""
        if self._stack.configs[0].epochs == 1 or all_diverged(self._stack):
            return True
        self._measured = [*self._measured[: epochs - 1], self._measure()]
        since = epochs - 1 - _latest_rise(self._measured)
        return since >= _PATIENCE_EPOCHS and since * self._steps >= _PATIENCE_STEPS * epochs

    def _measure(self) -> list[float]:
        """Accuracy and log-likelihood of the best trial; every class weighs the same.

        The likelihood rises while a net still learns, before the first sample changes sides.
        """
        if not len(self._held):
            return [0.0, 0.0]
        rated = stack_log_probabilities(self._stack, self._held, self._manifest, self._model)
        truth = self._held.truth(self._manifest)
        weights = class_weights(truth)
        right = (rated.argmax(2) == truth).double() @ weights
        likelihood = rated.gather(2, truth.expand(len(rated), -1).unsqueeze(2)).squeeze(2) @ weights
        likelihood = likelihood.nan_to_num(nan=-torch.inf, posinf=-torch.inf)
        return [float(right.max()), float(likelihood.max())]

    def _resume(self) -> bool:
        if self._checkpoints is None:
            return False
        saved = self._checkpoints.load(self._stack.state(), growing=self._stack.growing)
        if saved is None:
            return False
        try:
            self._stack.restore(saved.tensors, Position(**saved.position))
            notes: Any = saved.extra
            self._measured = [
                [-math.inf if value is None else float(value) for value in (accuracy, likelihood)]
                for accuracy, likelihood in notes["measured"]
            ]
            self._steps, self._epochs = int(notes["steps"]), int(notes["epochs"])
            self._seconds = float(notes["seconds"])
        except MISFITS as error:
            raise LearnerError(
                f"the checkpoint of the visit is damaged: {type(error).__name__}: "
                f"{str(error)[:200]}. Learn the visit again from its beginning with discard=True "
                f"(--discard)."
            ) from error
        return True


def _latest_rise(measured: Sequence[Sequence[float]]) -> int:
    """The latest epoch, counted from 0, that was better than all before it by either measure."""
    latest, (accuracy, likelihood) = 0, measured[0]
    for epoch, now in enumerate(measured):
        if now[0] > accuracy or now[1] > likelihood + _LEAST_GAIN:
            latest, accuracy, likelihood = epoch, max(accuracy, now[0]), max(likelihood, now[1])
    return latest


@contextmanager
def _interrupts_wait() -> Iterator[Callable[[], bool]]:
    """Delay Ctrl-C until the end of a step, where everything can be saved."""
    asked = threading.Event()
    usual = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not main or usual is not signal.default_int_handler:
        yield asked.is_set
        return

    def note(number: int, frame: FrameType | None) -> None:
        if asked.is_set():  # the second Ctrl-C interrupts at once
            raise KeyboardInterrupt
        asked.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, usual)
