"""Completing the records of earlier versions, which did not say which classes a task has."""

from collections.abc import Sized

from remask.classes import Split, SplitError, deal_anew, split_classes
from remask.config import TrialConfig
from remask.results.record import TrialRecord

NUM_TASKS = {
    "split-digits": 5,
    "split-mnist": 5,
    "split-fashion-mnist": 5,
    "split-cifar10": 5,
    "split-cifar100": 10,
    "split-tiny-imagenet": 10,
}
"""Of the benchmarks of those versions; trials on later ones have always said their tasks."""


def completed(record: TrialRecord) -> TrialRecord:
    """The record with its tasks and class names, where they follow from its config."""
    split = derived_split(record.config, record.class_il, record.confidence)
    return record if split is None else record.model_copy(update=split._asdict())


def derived_split(config: TrialConfig, class_il: Sized, confidence: Sized) -> Split | None:
    """What a trial has learnt, as far as its config alone says it.

    None for custom benchmarks, which may have been anything, and for a trial whose results
    are of another size than its benchmark, or that has none.
    """
    if config.benchmark not in NUM_TASKS:
        return None
    from remask.datasets import DATASETS

    class_names = DATASETS[config.benchmark.removeprefix("split-")].class_names
    known = split_classes(len(class_names), NUM_TASKS[config.benchmark])
    try:
        tasks = deal_anew(known, num_tasks=config.tasks, class_order=config.class_order)
    except SplitError:  # no such trial can have been run
        return None
    fits = (len(tasks), len(class_names)) == (len(class_il), len(confidence))
    return Split(tasks, class_names) if fits else None
