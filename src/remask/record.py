"""The record of one trial: what the engine returns, the store keeps and reports read."""

import math
from collections.abc import Sized
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
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


def _bounded(rows: object) -> object:
    # Checked before the numbers are: there may be a hundred million.
    if isinstance(rows, Sized) and len(rows) > _MOST_TASKS:
        raise ValueError(f"a trial has at most {_MOST_TASKS:,} tasks, got {len(rows):,}")
    return rows


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
Matrix = Annotated[tuple[tuple[Percent, ...], ...], BeforeValidator(_bounded)]
Count = Annotated[int, Field(ge=0, lt=INT64)]
_Points = Field(max_length=_MOST_POINTS)
_Steps = Annotated[tuple[Integer, ...], _Points]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Curve(_Frozen):
    """Accuracy within tasks, measured every few steps on a fixed part of the test data."""

    steps: _Steps = Field(description="steps of the whole stream before each point")
    learning: _Steps = Field(description="the task being learnt at each point, from 0")
    class_il: Annotated[tuple[tuple[Percent, ...], ...], _Points] = Field(
        description="accuracy on each task in percent, [points, T]; NaN: not measured"
    )
    task_il: Annotated[tuple[tuple[Percent, ...], ...], _Points] = Field(
        description="the same with the task of each test sample given"
    )

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


class Losses(_Frozen):
    """Losses during training: each point is the mean over the steps since the previous one."""

    names: Annotated[tuple[Annotated[str, Field(max_length=40)], ...], Field(max_length=32)] = (
        Field(description="`loss`, which is minimised, and the terms that the method notes")
    )
    steps: _Steps = Field(description="steps of the whole stream before each point")
    learning: _Steps = Field(description="the task being learnt at each point, from 0")
    values: Annotated[tuple[tuple[_Loss, ...], ...], _Points] = Field(
        description="[points, names]; NaN: not noted there, or not finite"
    )

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


class Answers(_Frozen):
    """Predictions on the whole test set after the last task, among all classes."""

    confusion: Annotated[tuple[tuple[Count, ...], ...], Field(max_length=_MOST_CLASSES)] = Field(
        (),
        description="samples by class (row) and prediction (column), [K, K]; empty: over "
        f"{_MOST_CLASSES} classes, or a method that needs the task",
    )
    counts: Annotated[tuple[Count, ...], Field(max_length=1000)] = Field(
        (),
        description="predictions by probability, in bins of equal width from 0 to 1; empty: the "
        "method has no probabilities",
    )
    confidence: tuple[Annotated[float, Field(ge=0, lt=INT64)], ...] = Field(
        (), description="the sum of the probabilities in each bin"
    )
    right: tuple[Count, ...] = Field((), description="correct predictions in each bin")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(len(row) != len(self.confusion) for row in self.confusion):
            raise ValueError("a confusion matrix must be square")
        if len({len(part) for part in (self.counts, self.confidence, self.right)}) > 1:
            raise ValueError("each bin needs a count, a confidence and a number of correct answers")
        return self


class MaskChoice(_Frozen):
    """The candidate that a trial with the mask "auto" continued with after a task."""

    chosen: Prose = Field(description="the candidate's name")
    reason: Prose = Field(description="why it was chosen")
    scores: dict[Prose, Percent] = Field(
        description="each candidate's accuracy on held-out samples, averaged over classes; the "
        "first is the default; all 0 if there was nothing to choose"
    )
    errors: dict[Prose, Percent] = Field(
        description="the standard deviation of each one's distance from the default if both are "
        "equally good"
    )
    old_samples: Count = Field(description="held-out samples of earlier tasks")
    samples: Count = Field(description="all held-out samples")


class TrialRecord(_Frozen):
    """One trial: its config, its results and where they were computed."""

    config: TrialConfig = Field(description="the resolved config, with every default filled in")
    title: Annotated[Prose, BeforeValidator(_short_title)] | None = Field(
        None, description="the name of a custom method in tables, if not that of its class"
    )
    status: Status = Field("finished", description="how the trial ended")
    diverged_at: Count | None = Field(
        None, description="the first step, from 0, whose loss was not finite"
    )
    error: Prose | None = Field(None, description="why the trial failed")
    class_il: Matrix = Field((), description="accuracy matrix [T, T] in percent; NaN: not measured")
    task_il: Matrix = Field((), description="the same with the task of each test sample given")
    validation_class_il: Matrix = Field(
        (), description="like class_il, on held-out training data; empty: nothing was held out"
    )
    validation_task_il: Matrix = Field((), description="like task_il, on held-out training data")
    confidence: tuple[Probability, ...] = Field(
        (), description="mean probability of the true class after the last task, [K]"
    )
    answers: Answers | None = Field(
        None, description="predictions after the last task; none before, or if it failed"
    )
    flops: Annotated[float, Field(ge=0, lt=1e30)] | None = Field(
        None, description="floating-point operations of training, computed; none: unknown"
    )
    memory_bytes: Count | None = Field(
        None, description="what the method keeps between tasks beside the net; none: it failed"
    )
    curve: Curve | None = Field(
        None, description="accuracy within tasks; none: the config does not ask for it"
    )
    losses: Losses | None = Field(None, description="losses during training; none: not logged")
    choices: Annotated[tuple[MaskChoice, ...], BeforeValidator(_bounded)] = Field(
        (), description='the choice after each task; empty unless the mask is "auto"'
    )
    tasks: Tasks = Field(
        (), description="the classes of each task, in order of learning; empty if it failed"
    )
    class_names: tuple[Prose, ...] = Field(
        (), description="the names of the classes, by label; empty if it failed"
    )
    own_code: dict[Prose, Prose] = Field(
        default_factory=dict, description="fingerprints of the user's own modules"
    )
    versions: dict[Prose, Prose] = Field(description="of remask, Python, torch and numpy")
    commit: Prose | None = Field(description="the git commit of remask's source, if known")
    machine: dict[Prose, Prose | Integer] = Field(description="where the trial ran")
    started: Moment = Field(description="when the trial began, UTC")
    seconds: float = Field(ge=0, le=_LONGEST_TIME, description="its share of its stack's time")
    created: Moment = Field(
        default_factory=lambda: datetime.now(UTC), description="when the record was made, UTC"
    )

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
