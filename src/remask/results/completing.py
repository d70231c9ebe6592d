"""Completing the records of earlier versions, which did not say which classes a task has."""

from collections.abc import Sized

from remask.classes import Split, SplitError, deal_anew
from remask.config import TrialConfig
from remask.known_splits import KNOWN_SPLITS
from remask.results.record import TrialRecord


def completed(record: TrialRecord) -> TrialRecord:
    """The record with its tasks and class names, where they follow from its config."""
    split = derived_split(record.config, record.class_il, record.confidence)
    return record if split is None else record.model_copy(update=split._asdict())


def derived_split(config: TrialConfig, class_il: Sized, confidence: Sized) -> Split | None:
    """What a trial has learnt, as far as its config alone says it.

    None for benchmarks of one's own, which may have been anything, and for a trial whose results
    are of another size than its benchmark, or that has none.
    """
    known = KNOWN_SPLITS.get(config.benchmark)
    if known is None:
        return None
    try:
        tasks = deal_anew(known.tasks, num_tasks=config.tasks, class_order=config.class_order)
    except SplitError:  # no such trial can have been run
        return None
    fits = (len(tasks), len(known.class_names)) == (len(class_il), len(confidence))
    return Split(tasks, known.class_names) if fits else None
