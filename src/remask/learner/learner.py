"""The learner: one model in a folder, which learns new classes visit after visit, for years."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from remask.durable import AnyPath
from remask.learner.accounts import Evaluation, Forgotten, Predictions, Visit
from remask.nets import NetBuilder

Data = AnyPath | npt.NDArray[Any] | Tensor | Dataset[Any] | Iterable[Any]
"""A folder CLASS/NAME.png (to predict, also a folder of images or one image), an array or a
tensor, a torch Dataset of (input, label), or an iterable of (input, label)."""
Labels = Sequence[Any] | npt.NDArray[Any] | Tensor | None
"""The classes of arrays: text or whole numbers, which become their text."""


@dataclass(frozen=True)
class Progress:
    """How far a visit has come; `on_progress` is called with it after every step."""

    step: int
    steps: int
    """How many there will be at most."""
    epoch: int
    resumed: bool
    """Whether the visit was begun by an earlier call."""


@dataclass(frozen=True)
class Preprocessing:
    """From an image or array to what `Learner.net()` takes: `(raw * scale - mean) / std`."""

    input_shape: tuple[int, ...]
    """Of one raw input: (channels, height, width), or (features,)."""
    input_type: torch.dtype
    """uint8 or float32."""
    scale: float
    mean: tuple[float, ...] | None
    """Per channel, or per feature."""
    std: tuple[float, ...] | None
    resize: Literal["bilinear"] | None
    """How Pillow brings image files to the size of `input_shape`; None: inputs are no images."""


class Learner:
    """One model for years: it learns new classes, predicts, survives restarts, and forgets.

    Made by `create` or `open`; a context manager, which `close` ends. One process at a time may
    write; any number may read, each what was there when it opened the learner.
    """

    @classmethod
    def create(
        cls,
        folder: AnyPath,
        *,
        net: str | nn.Module = "mlp",
        backbone: nn.Module | None = None,
        freeze: bool = False,
        memory: int | str = 2000,
        method: str = "er_ema",
        mask: float | str | None = "auto",
        lr: float | None = None,
        epochs: int | None = None,
        batch: int | None = None,
        replay_batch: int | None = None,
        optimizer: Literal["sgd", "adamw"] = "sgd",
        augment: bool = False,
        image_size: int | tuple[int, int] | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> "Learner":
        """Make a learner in a folder that is empty or not there yet. Raises LearnerError."""
        raise NotImplementedError

    @classmethod
    def open(
        cls,
        folder: AnyPath,
        *,
        net: NetBuilder | nn.Module | None = None,
        backbone: nn.Module | None = None,
        device: torch.device | str = "cpu",
        read_only: bool = False,
    ) -> "Learner":
        """Open a learner. Raises LearnerError, or LockHeldError if another process may write it."""
        raise NotImplementedError

    def learn(
        self,
        data: Data,
        labels: Labels = None,
        *,
        name: str,
        discard: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Visit:
        """Learn the classes of some data, new ones and known ones; all of it, or nothing.

        A visit that was interrupted goes on where it was when it is begun again with the same name
        and data; with other data, `discard=True` gives it up first. A visit that has been learnt
        already is not learnt again: its account is returned.
        """
        raise NotImplementedError

    def predict(self, data: Data, *, top: int = 1, abstain: bool = False) -> Predictions:
        """Name the class of each sample, among the classes that have been learnt.

        With `abstain`, no class is named where the probability is below the threshold that the
        held-out memory calls for.
        """
        raise NotImplementedError

    def evaluate(self, data: Data, labels: Labels = None) -> Evaluation:
        """Measure accuracy and calibration on samples whose classes are known to the learner."""
        raise NotImplementedError

    def forget(self, name: str | int, *, retrain: bool = False) -> Forgotten:
        """Remove a class: its output, its samples and what was stored with them, for good."""
        raise NotImplementedError

    def net(self) -> nn.Module:
        """A module that predicts as the learner does, on the CPU, for export.

        It maps inputs [B, *input_shape] that went through `preprocessing` to scores over `classes`,
        in their order, whose softmax is the learner's probabilities.
        """
        raise NotImplementedError

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes that have been learnt, in the order of learning."""
        raise NotImplementedError

    @property
    def history(self) -> list[Visit]:
        """What was learnt, visit by visit."""
        raise NotImplementedError

    @property
    def preprocessing(self) -> Preprocessing:
        """What inputs go through before `net()`. Raises LearnerError before the first visit."""
        raise NotImplementedError

    def close(self) -> None:
        """Let another process write."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
