"""The record of one trial: what the engine returns, the store keeps and reports read."""

import math
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    model_validator,
)

from remask.config import INT64, Integer, TrialConfig
from remask.data.classes import Tasks, check_class_names
from remask.errors import prose
from remask.machine import provenance
from remask.names import system_name

Status = Literal["finished", "diverged", "failed"]
_LONGEST_TIME = 1e10  # seconds
_LONGEST_TITLE = 60
_MOST_TASKS = 10_000
_MOST_POINTS = 100_000
_MOST_CLASSES = 100  # in a confusion matrix
_ROUNDING = 1e-5  # a mean of probabilities in single precision may exceed 1 by this much


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time is outside the years 1 to 9999") from None


def write_moment(moment: datetime) -> str:
    """Write a time at a fixed width in UTC, so that texts sort by time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _in_range(value: float, most: float) -> float:
    # The same NaN object everywhere: records with equal contents compare equal.
    if math.isnan(value):
        return math.nan
    if not 0 <= value <= most * (1 + _ROUNDING):
        raise ValueError(f"a measurement must be from 0 to {most:g}, or NaN if not measured")
    return value


def _short_title(text: object) -> object:
    return " ".join(text.split())[:_LONGEST_TITLE] or None if isinstance(text, str) else text


Moment = Annotated[
    AwareDatetime,
    AfterValidator(_in_utc),
    PlainSerializer(write_moment, when_used="json"),
]
Prose = Annotated[str, BeforeValidator(lambda text: prose(text) if isinstance(text, str) else text)]
"""Text without control characters or invalid Unicode, which file names in a traceback may have."""
_Measurement = Annotated[
    float,
    BeforeValidator(lambda value: math.nan if value is None else value),
    PlainSerializer(lambda value: None if math.isnan(value) else value, when_used="json"),
]
"""A number, or NaN where nothing was measured; null in JSON."""
Percent = Annotated[_Measurement, AfterValidator(lambda value: _in_range(value, 100.0))]
Probability = Annotated[_Measurement, AfterValidator(lambda value: _in_range(value, 1.0))]
_Loss = Annotated[
    _Measurement, AfterValidator(lambda value: value if math.isfinite(value) else math.nan)
]
Matrix = Annotated[tuple[tuple[Percent, ...], ...], Field(max_length=_MOST_TASKS)]
Count = Annotated[int, Field(ge=0, lt=INT64)]
_Points = Field(max_length=_MOST_POINTS)
_Steps = Annotated[tuple[Integer, ...], _Points]
_Accuracies = Annotated[tuple[tuple[Percent, ...], ...], _Points]


class Curve(BaseModel, frozen=True, extra="forbid"):
    """Accuracy within tasks, measured every few steps on a fixed part of the test data."""

    steps: _Steps
    """Steps of the whole stream before each point."""
    learning: _Steps
    """The task being learnt at each point, from 0."""
    class_il: _Accuracies
    """Accuracy on each task in percent, [points, T]; NaN: not measured."""
    task_il: _Accuracies
    """The same with the task of each test sample given."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_points(self.steps, self.learning, self.class_il, self.task_il)
        if any(b < a for a, b in pairwise((0, *self.learning))):
            raise ValueError("the tasks of a curve must be in order, from 0")
        return self

    def has_tasks(self, tasks: int) -> bool:
        """Whether it measures `tasks` tasks."""
        rows = (*self.class_il, *self.task_il)
        return all(len(row) == tasks for row in rows) and all(t < tasks for t in self.learning)


class Losses(BaseModel, frozen=True, extra="forbid"):
    """Losses during training: each point is the mean over the steps since the previous one."""

    names: Annotated[tuple[Annotated[str, Field(max_length=40)], ...], Field(max_length=32)]
    """`loss`, which is minimised, and the terms that the method notes."""
    steps: _Steps
    """Steps of the whole stream before each point."""
    learning: _Steps
    """The task being learnt at each point, from 0."""
    values: Annotated[tuple[tuple[_Loss, ...], ...], _Points]
    """[points, names]; NaN: not noted there, or not finite."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_points(self.steps, self.learning, self.values)
        if any(len(row) != len(self.names) for row in self.values):
            raise ValueError("each point of the losses needs a value for every name")
        return self


def _check_points(steps: tuple[int, ...], *parts: tuple[object, ...]) -> None:
    if any(len(part) != len(steps) for part in parts):
        raise ValueError("each point needs a step, a task and values")
    if any(b <= a for a, b in pairwise((0, *steps))):
        raise ValueError("the steps of the points must increase")


class Answers(BaseModel, frozen=True, extra="forbid"):
    """Predictions on the whole test set after the last task, among all classes."""

    confusion: Annotated[tuple[tuple[Count, ...], ...], Field(max_length=_MOST_CLASSES)] = ()
    """Samples by class (row) and prediction (column), [K, K].

    Empty: over 100 classes, or a method that needs the task."""
    counts: Annotated[tuple[Count, ...], Field(max_length=1000)] = ()
    """Predictions by probability, in bins of equal width from 0 to 1.

    Empty: the method has no probabilities."""
    confidence: tuple[Annotated[float, Field(ge=0, lt=INT64)], ...] = ()
    """The sum of the probabilities in each bin."""
    right: tuple[Count, ...] = ()
    """Correct predictions in each bin."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(len(row) != len(self.confusion) for row in self.confusion):
            raise ValueError("a confusion matrix must be square")
        if len({len(part) for part in (self.counts, self.confidence, self.right)}) > 1:
            raise ValueError("each bin needs a count, a confidence and a number of correct answers")
        return self


class MaskChoice(BaseModel, frozen=True, extra="forbid"):
    """The candidate that a trial with the mask "auto" continued with after a task."""

    chosen: Prose
    """The candidate's name."""
    reason: Prose
    """Why it was chosen."""
    scores: dict[Prose, Percent]
    """Each candidate's accuracy on held-out samples, averaged over classes.

    The first is the default. All are 0 if there was nothing to choose."""
    errors: dict[Prose, Percent]
    """The standard deviation of each one's distance from the default if both are equally good."""
    old_samples: Count
    """Held-out samples of earlier tasks."""
    samples: Count
    """All held-out samples."""


class TrialRecord(BaseModel, frozen=True, extra="forbid"):
    """One trial: its config, its results and where they were computed."""

    config: TrialConfig
    """The resolved config, with every default filled in."""
    title: Annotated[Prose, BeforeValidator(_short_title)] | None = None
    """The name of a custom method in tables, if not that of its class."""
    status: Status = "finished"
    """How the trial ended."""
    diverged_at: Count | None = None
    """The first step, from 0, whose loss was not finite."""
    error: Prose | None = None
    """Why the trial failed."""
    class_il: Matrix = ()
    """Accuracy matrix [T, T] in percent; NaN: not measured."""
    task_il: Matrix = ()
    """The same with the task of each test sample given."""
    validation_class_il: Matrix = ()
    """Like class_il, on held-out training data; empty: nothing was held out."""
    validation_task_il: Matrix = ()
    """Like task_il, on held-out training data."""
    confidence: tuple[Probability, ...] = ()
    """Mean probability of the true class after the last task, [K]."""
    answers: Answers | None = None
    """Predictions after the last task; None if the trial failed."""
    flops: Annotated[float, Field(ge=0, lt=1e30)] | None = None
    """Floating-point operations of training, computed; None: unknown."""
    memory_bytes: Count | None = None
    """What the method keeps between tasks beside the net; None if the trial failed."""
    curve: Curve | None = None
    """Accuracy within tasks; None: the config does not ask for it."""
    losses: Losses | None = None
    """Losses during training; None: not logged."""
    choices: Annotated[tuple[MaskChoice, ...], Field(max_length=_MOST_TASKS)] = ()
    """The choice after each task; empty unless the mask is "auto"."""
    tasks: Tasks = ()
    """The classes of each task, in order of learning; empty if the trial failed."""
    class_names: tuple[Prose, ...] = ()
    """The names of the classes, by label; empty if the trial failed."""
    own_code: dict[Prose, Prose] = {}
    """Fingerprints of the user's own modules."""
    versions: dict[Prose, Prose]
    """Of remask, Python, torch and numpy."""
    commit: Prose | None
    """The git commit of remask's source, if known."""
    machine: dict[Prose, Prose | Integer]
    """Where the trial ran."""
    started: Moment
    """When the trial began, UTC."""
    seconds: Annotated[float, Field(ge=0, le=_LONGEST_TIME)]
    """Its share of its stack's time."""
    created: Moment = Field(default_factory=lambda: datetime.now(UTC))
    """When the record was made, UTC."""

    @classmethod
    def failure(cls, config: TrialConfig, error: str, **parts: Any) -> Self:
        """The record of a trial that failed without results."""
        known = {**provenance(), "started": datetime.now(UTC), "seconds": 0.0, **parts}
        return cls(config=config, status="failed", error=error, **known)

    @property
    def config_hash(self) -> str:
        """The trial's identity, see `TrialConfig.canonical`."""
        return self.config.hash

    @property
    def seed(self) -> int:
        """The trial's seed."""
        return self.config.seed

    @property
    def system(self) -> str:
        """The method with its mask, as tables print it."""
        return system_name(self.config.method, self.config.mask, self.title)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.status == "diverged") != (self.diverged_at is not None):
            raise ValueError("a diverged trial, and no other, has diverged_at")
        if (self.status == "failed") != (self.error is not None):
            raise ValueError("a failed trial, and no other, has an error")
        tasks = len(self.class_il)
        if tasks == 0 and self.status != "failed":
            raise ValueError("only a failed trial has no accuracy matrix")
        if not _are_square(tasks, self.class_il, self.task_il):
            raise ValueError("class_il and task_il must be square matrices of the same size")
        validated = tasks if self.config.validation else 0
        if not _are_square(validated, self.validation_class_il, self.validation_task_il):
            raise ValueError(
                "validation_class_il and validation_task_il must have the size of class_il if the "
                "config holds data out, and be empty otherwise"
            )
        if (self.curve is not None) != bool(tasks and self.config.evaluate_every):
            raise ValueError("there must be a curve if the config asks for one, and only then")
        if self.curve is not None and not self.curve.has_tasks(tasks):
            raise ValueError("a curve must have the tasks of class_il")
        if len(self.choices) > (tasks if self.config.mask == "auto" else 0):
            raise ValueError('only a trial whose mask is "auto" has choices, one per task')
        if tasks:
            self._check_classes(tasks)
        return self

    def _check_classes(self, tasks: int) -> None:
        num_classes = len(self.class_names)
        if len(self.tasks) != tasks:
            raise ValueError(f"there are {len(self.tasks)} tasks, but accuracies of {tasks}")
        check_class_names(self.class_names, num_classes)
        if not all(
            classes and 0 <= min(classes) <= max(classes) < num_classes for classes in self.tasks
        ):
            raise ValueError(f"each task needs classes from 0 to {num_classes - 1}")
        if len(self.confidence) not in (0, num_classes):
            raise ValueError(f"confidence has {len(self.confidence)} of {num_classes} classes")
        confusion = self.answers.confusion if self.answers else ()
        if len(confusion) not in (0, num_classes):
            raise ValueError(f"the confusion matrix has {len(confusion)} of {num_classes} classes")


def _are_square(size: int, *matrices: Matrix) -> bool:
    return all([len(row) for row in matrix] == [size] * size for matrix in matrices)
