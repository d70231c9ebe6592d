"""The history of a learner and its current state, for pages and tables."""

from pathlib import Path

from remask.durable import AnyPath
from remask.errors import RemaskError
from remask.learner import Learner
from remask.learner.manifest import read_manifest
from remask.learner.summary import summarise
from remask.reports.history import KeptClass, LearnerNow, LearntVisit, write_history


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


def learner_now(
    folder: AnyPath,
    *,
    encoder: str | None = None,
    net: str | None = None,
    method: str | None = None,
) -> LearnerNow:
    """The memory of a learner, and what is measured on its held-out samples. Raises LearnerError.

    `encoder`, `net` and `method` are those of `Learner.open`. If they are needed and not given,
    `LearnerNow.missing` has the reason why nothing is measured.
    """
    found = summarise(folder)
    memory = [
        KeptClass(name=each.name, seen=each.seen, kept=each.kept, bytes=each.bytes)
        for each in found.classes
    ]
    about = found.calibration
    calibration = (
        "not calibrated: there are no held-out samples"
        if about is None
        else f"Scores are divided by a temperature of {about.temperature:.2f}. The expected "
        f"calibration error on {about.samples} held-out samples is {about.ece_after:.1f} %; "
        f"{about.ece_before:.1f} % without the temperature."
    )
    try:
        learner = Learner.open(folder, encoder=encoder, net=net, method=method)
        measured = learner.evaluate_held_out()
        abstain = learner.abstentions()
    except RemaskError as error:
        return LearnerNow(memory=memory, calibration=calibration, missing=str(error))
    return LearnerNow(
        memory=memory,
        calibration=calibration,
        abstain=[(each.wanted, each.confidence, each.coverage) for each in abstain],
        confusion=measured.confusion,
    )


def write_learner_history(folder: AnyPath, target: AnyPath, now: LearnerNow | None = None) -> None:
    """Write the history of a learner as a page, .html, or a figure, .png or .svg."""
    title = Path(folder).expanduser().resolve().name
    write_history(title, learnt_visits(folder), target, now)
