"""Where a stack stands, and what its trials have shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from remask.classes import Tasks
from remask.config import TrialConfig


class Position(NamedTuple):
    """Where a stack stands: the next step to take."""

    task: int = 0
    """How many tasks have been learnt."""
    epoch: int = 0
    step: int = 0

    @classmethod
    def read(cls, saved: Mapping[str, int]) -> "Position":
        """From a checkpoint; earlier versions wrote `phase` for `task`."""
        names = {"phase": "task"}
        return cls(**{names.get(name, name): value for name, value in saved.items()})


@dataclass(frozen=True)
class TrialCurve:
    """How accurate one trial was on each task while it learnt, measured every few steps."""

    steps: list[int]
    """How many steps of the whole stream had been taken at each point."""
    learning: list[int]
    """The number of the task that was being learnt, or just had been."""
    class_il: list[list[float]]
    """Percent, [points, T]; NaN where not measured."""
    task_il: list[list[float]]
    """The same, when the task of a test sample is told."""


@dataclass(frozen=True)
class TrialAnswers:
    """What one trial answers on the whole test set after the last task, any class allowed."""

    confusion: list[list[int]]
    """How many samples of each class (row) got each answer (column), [K, K]; or empty."""
    counts: list[int]
    """Answers by their probability, in bins of equal width from 0 to 1; or empty."""
    confidence: list[float]
    """The sum of the probabilities in each bin."""
    right: list[int]
    """How many answers of each bin are right."""


@dataclass(frozen=True)
class TaskPoint:
    """How accurate the trials of a stack were after a task."""

    step: int
    """How many steps of the whole stream had been taken."""
    task: int
    """The number of the task."""
    class_il: list[list[float]]
    """Percent, [S, T]; NaN where not measured."""
    task_il: list[list[float]]


@dataclass(frozen=True)
class TrialLosses:
    """The losses of one trial while it learnt, as means over some steps each."""

    names: list[str]
    """`loss`, which is descended, and the terms that the method notes."""
    steps: list[int]
    """How many steps of the whole stream had been taken at each point."""
    learning: list[int]
    """The number of the task that was being learnt."""
    values: list[list[float]]
    """[points, names]; NaN where a term was not noted, or no number."""


@dataclass(frozen=True)
class Choice:
    """Which candidate of a trial with the mask "auto" went on after a task, and why."""

    chosen: str
    """Its name: `none`, `0 fading 4`."""
    scores: dict[str, float]
    """The accuracy of every candidate on held-out samples, averaged over classes, in percent; the
    first candidate is the default. All 0 if there was nothing to choose."""
    errors: dict[str, float]
    """The standard deviation of each one's distance from the default, if both were as good."""
    old_samples: int
    """How many of the held-out samples were of earlier tasks."""
    samples: int
    """How many there were in all."""

    @property
    def reason(self) -> str:
        """Why it was chosen."""
        default = next(iter(self.scores))
        if len(self.scores) == 1:
            return "the default; the memory is too small to hold samples out"
        if self.chosen == default:
            return "the default; no other is clearly better"
        ahead = self.scores[self.chosen] - self.scores[default]
        return f"{ahead:.1f} ±{self.errors[self.chosen]:.1f} points ahead of {default}"


@dataclass(frozen=True)
class TrialResult:
    """What one trial has shown."""

    config: TrialConfig
    class_il: list[list[float]]
    """Accuracy matrix [T, T] in percent; NaN where not measured."""
    task_il: list[list[float]]
    """The same, when the task of a test sample is told."""
    confidence: list[float]
    """After the last task, the mean probability of the true class, for each class [K]."""
    tasks: Tasks
    """The classes of each task, in order of learning."""
    class_names: tuple[str, ...]
    """What the classes are called, by label."""
    diverged_at: int | None
    """The step, counted from 0, at which its loss was no longer a number; None if it always was."""
    title: str | None = None
    """What the method calls itself in tables, unless that follows from its name."""
    validation_class_il: list[list[float]] = field(default_factory=list)
    """As `class_il`, on the trial's own held-out training data; empty if it has none."""
    validation_task_il: list[list[float]] = field(default_factory=list)
    """As `task_il`, on the trial's own held-out training data; empty if it has none."""
    answers: TrialAnswers | None = None
    """What it answers after the last task; None before."""
    memory_bytes: int | None = None
    """What the method keeps from task to task beside the net: samples, logits, copies of nets."""
    curve: TrialCurve | None = None
    """Accuracy within tasks; None if that was not asked for."""
    losses: TrialLosses | None = None
    """The losses on the way; None if they were not logged."""
    choices: tuple[Choice, ...] = ()
    """What was chosen after each task; empty unless the mask is "auto"."""
