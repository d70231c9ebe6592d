"""What the record of a trial is made of: numbers within their range, curves, answers, losses."""

import math
from collections.abc import Sized
from itertools import pairwise
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)

from remask.printable import prose
from remask.setting_types import INT64, Integer

_ROUNDING = 1e-5  # a mean of probabilities, in single precision, may come out above 1 by this much
_MOST_TASKS = 10_000


def _in_range(value: float, most: float) -> float:
    # One NaN object for all: it makes records with equal contents compare equal.
    if math.isnan(value):
        return math.nan
    if not 0 <= value <= most * (1 + _ROUNDING):
        raise ValueError(f"a measurement is from 0 to {most:g}, or NaN when it was not taken")
    return value


_Measurement = Annotated[
    float,
    BeforeValidator(lambda value: math.nan if value is None else value),
    PlainSerializer(lambda value: None if math.isnan(value) else value, when_used="json"),
]
"""A number, or NaN where nothing was measured; JSON carries NaN as null."""

Percent = Annotated[_Measurement, AfterValidator(lambda value: _in_range(value, 100.0))]
Probability = Annotated[_Measurement, AfterValidator(lambda value: _in_range(value, 1.0))]


def of_bounded_size(rows: object) -> object:
    """Refuse more rows than a trial can have tasks."""
    # Before a single number is looked at: there may be a hundred million.
    if isinstance(rows, Sized) and len(rows) > _MOST_TASKS:
        raise ValueError(f"a trial has at most {_MOST_TASKS:,} tasks, not {len(rows):,}")
    return rows


Matrix = Annotated[tuple[tuple[Percent, ...], ...], BeforeValidator(of_bounded_size)]


_MOST_POINTS = 100_000
_Points = Field(max_length=_MOST_POINTS)


class Curve(BaseModel):
    """Accuracy within tasks, on a fixed part of the test data; a point is one measurement."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: Annotated[tuple[Integer, ...], _Points] = Field(
        description="how many steps of the whole stream had been taken at each point"
    )
    learning: Annotated[tuple[Integer, ...], _Points] = Field(
        description="the task that was being learnt, or just had been, counted from 0"
    )
    class_il: Annotated[tuple[tuple[Percent, ...], ...], _Points] = Field(
        description="accuracy on each task in percent, [points, T]; NaN: not measured"
    )
    task_il: Annotated[tuple[tuple[Percent, ...], ...], _Points] = Field(
        description="the same, when the task of a test sample is told"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        points = len(self.steps)
        if any(len(part) != points for part in (self.learning, self.class_il, self.task_il)):
            raise ValueError("every point of a curve has a step, a task and accuracies")
        if any(b <= a for a, b in pairwise((0, *self.steps))):
            raise ValueError("the points of a curve come one step or more after each other")
        if any(b < a for a, b in pairwise((0, *self.learning))):
            raise ValueError("tasks are learnt in their order, from 0")
        return self

    def has_tasks(self, tasks: int) -> bool:
        """Whether it is of so many tasks."""
        rows = (*self.class_il, *self.task_il)
        return all(len(row) == tasks for row in rows) and all(t < tasks for t in self.learning)


_MOST_CLASSES = 100
Count = Annotated[int, Field(ge=0, lt=INT64)]


class Answers(BaseModel):
    """What the network answers on the whole test set after the last task, any class allowed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    confusion: Annotated[tuple[tuple[Count, ...], ...], Field(max_length=_MOST_CLASSES)] = Field(
        (),
        description="how many samples of each class (row) got each answer (column), [K, K]; "
        f"empty: over {_MOST_CLASSES} classes, or a method that is told the task",
    )
    counts: Annotated[tuple[Count, ...], Field(max_length=1000)] = Field(
        (),
        description="answers by their probability, in bins of equal width from 0 to 1; empty: the "
        "method gives no probabilities",
    )
    confidence: tuple[Annotated[float, Field(ge=0, lt=INT64)], ...] = Field(
        (), description="the sum of the probabilities in each bin"
    )
    right: tuple[Count, ...] = Field((), description="how many answers of each bin are right")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(len(row) != len(self.confusion) for row in self.confusion):
            raise ValueError("a confusion matrix is square")
        if len({len(part) for part in (self.counts, self.confidence, self.right)}) > 1:
            raise ValueError("every bin has a count, a confidence and a number of right answers")
        return self


_LossValue = Annotated[
    _Measurement, AfterValidator(lambda value: value if math.isfinite(value) else math.nan)
]


class Losses(BaseModel):
    """The losses on the way, thinned out: a point is the mean over the steps since the last one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    names: Annotated[tuple[Annotated[str, Field(max_length=40)], ...], Field(max_length=32)] = (
        Field(description="`loss`, which is descended, and the terms that the method notes")
    )
    steps: Annotated[tuple[Integer, ...], _Points] = Field(
        description="how many steps of the whole stream had been taken at each point"
    )
    learning: Annotated[tuple[Integer, ...], _Points] = Field(
        description="the task that was being learnt, counted from 0"
    )
    values: Annotated[tuple[tuple[_LossValue, ...], ...], _Points] = Field(
        description="[points, names]; NaN: not noted there, or no number"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.learning) != len(self.steps) or len(self.values) != len(self.steps):
            raise ValueError("every point of the losses has a step, a task and values")
        if any(len(row) != len(self.names) for row in self.values):
            raise ValueError("every point of the losses has a value for each name")
        if any(b <= a for a, b in pairwise((0, *self.steps))):
            raise ValueError("the points of the losses come one step or more after each other")
        return self


# A traceback may quote file names that are not valid Unicode, and no database keeps those.
Prose = Annotated[str, BeforeValidator(lambda text: prose(text) if isinstance(text, str) else text)]


class ChoiceRecord(BaseModel):
    """Which candidate of a trial with the mask "auto" went on after a task, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    chosen: Prose = Field(description="the candidate's name")
    reason: Prose = Field(description="why it was chosen")
    scores: dict[Prose, Percent] = Field(
        description="each candidate's accuracy on held-out samples, averaged over classes; the "
        "first is the default"
    )
    errors: dict[Prose, Percent] = Field(
        description="the standard deviation of each one's distance from the default, if both were "
        "as good"
    )
    old_samples: Annotated[int, Field(ge=0, lt=INT64)] = Field(
        description="held-out samples of earlier tasks"
    )
    samples: Annotated[int, Field(ge=0, lt=INT64)] = Field(description="held-out samples in all")
