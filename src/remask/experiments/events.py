"""Events: what happens to the jobs of a run. They cross process borders by pickling."""

from dataclasses import dataclass

from remask.engine.measurements import TaskPoint
from remask.record import TrialRecord


@dataclass(frozen=True)
class Advanced:
    """The progress of a job."""

    job: str
    task: int
    tasks: int
    steps_done: int
    total_steps: int
    accuracy: float
    """Mean Class-IL accuracy after the latest finished task; NaN before the first."""


@dataclass(frozen=True)
class Logged:
    """Losses and accuracies during training; those before a restart are repeated."""

    job: str
    trials: list[str]
    """The hashes of its S trials."""
    names: list[str]
    """The names of the losses of a point."""
    points: list[tuple[int, int, list[list[float]]]]
    """Steps taken, tasks learnt, and the losses [S, names] since the previous point."""
    tasks: list[TaskPoint]
    """Accuracies after tasks."""


@dataclass(frozen=True)
class Note:
    """A message for the user that does not stop the job."""

    job: str
    text: str


@dataclass(frozen=True)
class Finished:
    """The records of a job that ended."""

    job: str
    records: list[TrialRecord]


@dataclass(frozen=True)
class PickedUp:
    """Trials of a job that another process has stored."""

    job: str
    records: list[TrialRecord]


@dataclass(frozen=True)
class Failed:
    """A job that cannot continue."""

    job: str
    error: str
    traceback: str = ""
    """Empty for a user's mistake, which the message explains."""
    may_pass: bool = False
    """Whether another attempt in another process may succeed."""


@dataclass(frozen=True)
class Lost:
    """A job whose process died: another one can run it."""

    job: str
    error: str
    details: str = ""
    """A traceback, or the last lines that the process printed."""
    resumes: bool = True
    """Whether the next process has its latest checkpoint; otherwise it starts over."""


Event = Advanced | Logged | Note | Finished | PickedUp | Failed | Lost
