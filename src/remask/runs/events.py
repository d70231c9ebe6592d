"""What a job says while it runs. Events cross process borders as lines of JSON."""

import json
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from remask.engine.measurements import TaskPoint
from remask.record import TrialRecord


@dataclass(frozen=True)
class Advanced:
    """How far a job is."""

    job: str
    task: int
    tasks: int
    steps_done: int
    total_steps: int
    accuracy: float
    """Mean Class-IL accuracy after the latest finished task; NaN before the first."""
    kind: Literal["advanced"] = "advanced"


@dataclass(frozen=True)
class Logged:
    """What the trials of a job have shown on the way; what was reported before may come again."""

    job: str
    trials: list[str]
    """Their hashes, S of them."""
    names: list[str]
    """What the losses of a point are called."""
    points: list[tuple[int, int, list[list[float]]]]
    """Steps taken, tasks learnt, and the losses [S, names] since the point before."""
    tasks: list[TaskPoint]
    """Accuracies after tasks."""
    kind: Literal["logged"] = "logged"


@dataclass(frozen=True)
class Note:
    """Something the user should know, which does not stop the job."""

    job: str
    text: str
    kind: Literal["note"] = "note"


@dataclass(frozen=True)
class Finished:
    """The records of a job that ended."""

    job: str
    records: list[TrialRecord]
    kind: Literal["finished"] = "finished"


@dataclass(frozen=True)
class PickedUp:
    """Trials of a job that another process has stored."""

    job: str
    records: list[TrialRecord]
    kind: Literal["picked up"] = "picked up"


@dataclass(frozen=True)
class Failed:
    """A job that cannot go on."""

    job: str
    error: str
    traceback: str = ""
    """Where in the code; empty for a mistake of the user's, whose message says it all."""
    may_pass: bool = False
    """Whether another try, in another process, may end better."""
    kind: Literal["failed"] = "failed"


@dataclass(frozen=True)
class Lost:
    """A job whose process has died: another one can run it."""

    job: str
    error: str
    details: str = ""
    """What is known of its end, in lines: a traceback, or what it wrote last."""
    goes_on: bool = True
    """Whether the next process has its latest checkpoint; otherwise it starts over."""
    kind: Literal["lost"] = "lost"


Event = Advanced | Logged | Note | Finished | PickedUp | Failed | Lost
_EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


def to_line(event: Event) -> bytes:
    """One line of JSON."""
    # Accuracies that were not measured are NaN; dump_json would write them as null.
    return json.dumps(_EVENTS.dump_python(event, mode="json")).encode() + b"\n"


def from_line(line: bytes) -> Event:
    """Read what `to_line` wrote."""
    return _EVENTS.validate_json(line)
