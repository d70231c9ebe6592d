"""What a learner has learnt, for people: its folder is read, and no code of its net is needed."""

from pathlib import Path

from remask.durable import AnyPath
from remask.learner.manifest import read_manifest
from remask.reports import LearntVisit, write_history


def learnt_visits(folder: AnyPath) -> list[LearntVisit]:
    """The visits of the learner in a folder. Raises LearnerError."""
    return [
        LearntVisit(
            name=visit.name,
            finished=visit.finished,
            summary=str(visit).removeprefix(f"{visit.name}: "),
            choice=str(visit.choice),
            new_classes=visit.new_classes,
            samples=visit.samples,
            accuracy=visit.accuracy,
            held_out=visit.held_out,
        )
        for visit in read_manifest(Path(folder).expanduser()).history
    ]


def write_learner_history(folder: AnyPath, target: AnyPath) -> None:
    """Write what a learner has learnt as a page, .html, or a figure, .png or .svg."""
    write_history(Path(folder).expanduser().resolve().name, learnt_visits(folder), target)
