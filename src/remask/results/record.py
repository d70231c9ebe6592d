"""What is kept of one trial."""

from datetime import UTC, datetime
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

from remask.classes import Tasks, check_class_names, check_tasks
from remask.config import TrialConfig
from remask.names import system_name
from remask.results.record_parts import (
    Answers,
    ChoiceRecord,
    Count,
    Curve,
    Losses,
    Matrix,
    Probability,
    Prose,
    of_bounded_size,
)
from remask.setting_types import INT64, Integer

Status = Literal["finished", "diverged", "failed"]
_LONGEST_TIME = 1e10  # seconds; three hundred years


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the moment lies outside the years 1 to 9999") from None


Moment = Annotated[
    AwareDatetime,
    AfterValidator(_in_utc),
    PlainSerializer(lambda moment: write_moment(moment), when_used="json"),
]

# It stands in tables: one short line. What is more is cut, since no result may be lost for it.
Title = Annotated[
    Prose,
    BeforeValidator(
        lambda text: " ".join(text.split())[:60] or None if isinstance(text, str) else text
    ),
]


class TrialRecord(BaseModel):
    """One trial: what was asked, what it showed, and what it ran on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: TrialConfig = Field(description="the resolved config; nothing is left to a default")
    title: Title | None = Field(
        None, description="what a custom method calls itself, if not after its class"
    )
    status: Status = Field("finished", description="how the trial ended")
    diverged_at: int | None = Field(
        None, ge=0, lt=INT64, description="the step its loss broke down at"
    )
    error: Prose | None = Field(None, description="why the trial failed")
    class_il: Matrix = Field((), description="accuracy matrix [T, T] in percent; NaN: not measured")
    task_il: Matrix = Field((), description="the same, when the task of a test sample is told")
    validation_class_il: Matrix = Field(
        (), description="as class_il, on held-out training data; empty: nothing was held out"
    )
    validation_task_il: Matrix = Field((), description="as task_il, on held-out training data")
    confidence: tuple[Probability, ...] = Field(
        (), description="mean probability of the true class after the last task, [K]"
    )
    answers: Answers | None = Field(
        None, description="what is answered after the last task; none: an earlier version's trial"
    )
    flops: Annotated[float, Field(ge=0, lt=1e30)] | None = Field(
        None, description="floating-point operations, worked out from the settings; none: not known"
    )
    memory_bytes: Count | None = Field(
        None, description="what the method keeps from task to task beside the net; none: not known"
    )
    curve: Curve | None = Field(
        None, description="accuracy within tasks; none: the config does not ask for it"
    )
    losses: Losses | None = Field(
        None, description="the losses on the way; none: they were not logged"
    )
    choices: Annotated[tuple[ChoiceRecord, ...], BeforeValidator(of_bounded_size)] = Field(
        (), description='what was chosen after each task; empty unless the mask is "auto"'
    )
    tasks: Tasks | None = Field(
        None, description="the classes of each task, in order of learning; none: not known"
    )
    class_names: tuple[Prose, ...] | None = Field(
        None, description="what the classes are called, by label; none: not known"
    )
    own_code: dict[Prose, Prose] = Field(
        default_factory=dict,
        description="fingerprints of the user's own modules; empty: none, or not known",
    )
    versions: dict[Prose, Prose] = Field(default_factory=dict, description="of remask, torch, ...")
    commit: Prose | None = Field(None, description="the git commit of remask's source, if known")
    machine: dict[Prose, Prose | Integer] = Field(
        default_factory=dict, description="what it ran on"
    )
    started: Moment = Field(description="when the trial began, UTC")
    seconds: float = Field(ge=0, le=_LONGEST_TIME, description="how long it took")
    created: Moment = Field(
        default_factory=lambda: datetime.now(UTC), description="when the record was made, UTC"
    )

    @classmethod
    def failure(cls, config: TrialConfig, error: str, **provenance: Any) -> Self:
        """Record that a trial has shown nothing, and why."""
        return cls(
            config=config,
            status="failed",
            error=error,
            **{"started": datetime.now(UTC), "seconds": 0.0, **provenance},
        )

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
            raise ValueError("diverged_at is the step of a diverged trial, and of no other")
        if (self.status == "failed") != (self.error is not None):
            raise ValueError("error is the reason of a failed trial, and of no other")
        tasks = len(self.class_il)
        if tasks == 0 and self.status != "failed":
            raise ValueError("only a failed trial has no accuracy matrix")
        if not _are_square(tasks, self.class_il, self.task_il):
            raise ValueError("class_il and task_il are square matrices of the same size")
        validated = tasks if self.config.validation else 0
        if not _are_square(validated, self.validation_class_il, self.validation_task_il):
            raise ValueError(
                "validation_class_il and validation_task_il are matrices of the size of class_il "
                "where the config holds data out, and empty where it does not"
            )
        if (self.curve is not None) != bool(tasks and self.config.evaluate_every):
            raise ValueError("a curve is there where the config asks for one, and only there")
        if self.curve is not None and not self.curve.has_tasks(tasks):
            raise ValueError("a curve is of the tasks that class_il is of")
        if len(self.choices) != (tasks if self.config.mask == "auto" else 0):
            raise ValueError('a trial whose mask is "auto", and no other, chooses after each task')
        self._check_classes()
        return self

    def _check_classes(self) -> None:
        if (self.tasks is None) != (self.class_names is None):
            raise ValueError("tasks and class_names are both known, or neither is")
        if self.tasks is None or self.class_names is None:
            return
        check_tasks(self.tasks)
        num_classes = sum(map(len, self.tasks))
        check_class_names(self.class_names, num_classes)
        if self.class_il and len(self.tasks) != len(self.class_il):
            raise ValueError(
                f"there are {len(self.tasks)} tasks, and accuracies of {len(self.class_il)}"
            )
        if self.confidence and num_classes != len(self.confidence):
            raise ValueError(
                f"the tasks have {num_classes} classes, and confidence has {len(self.confidence)}"
            )
        if self.answers and self.answers.confusion and len(self.answers.confusion) != num_classes:
            raise ValueError(
                f"the tasks have {num_classes} classes, and the confusion matrix has "
                f"{len(self.answers.confusion)}"
            )


def _are_square(size: int, *matrices: Matrix) -> bool:
    return all([len(row) for row in matrix] == [size] * size for matrix in matrices)


def write_moment(moment: datetime) -> str:
    """Write a moment at a fixed width in UTC, so that texts sort as the moments do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
