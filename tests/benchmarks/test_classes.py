"""Classes: their names, and how they are dealt to tasks."""

from collections.abc import Callable
from typing import Any

import pytest

from remask.benchmarks import BENCHMARKS, load_benchmark
from remask.classes import check_class_names
from remask.config import TrialConfig
from remask.datasets import DATASETS
from remask.results.completing import NUM_TASKS, derived_split
from tests.benchmarks.test_benchmarks import small_benchmark


def test_classes_without_names_are_called_by_their_labels() -> None:
    assert small_benchmark().class_names == ("0", "1", "2")


def test_classes_have_the_names_they_are_given() -> None:
    names: Any = ["ant", "bee", "<cat>"]
    assert small_benchmark(class_names=names).class_names == ("ant", "bee", "<cat>")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("ant", "bee"), "2 names for 3 classes"),
        (("ant", "bee", "cat", "dog"), "4 names for 3 classes"),
        (("ant", "bee", "ant"), "classes 0 and 2 have the same name, 'ant'"),
        (("ant", 1, "cat"), "class 1 must be text, not 1"),
        (("ant", "bee", " "), "class 2 must be text, not ' '"),
        (("ant", "bee", "\udc80"), "class 2 is not valid Unicode"),
    ],
)
def test_names_that_cannot_be_are_refused_when_the_benchmark_is_made(
    names: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        small_benchmark(class_names=names)


def test_every_dataset_names_its_classes() -> None:
    for dataset in DATASETS.values():
        check_class_names(dataset.class_names, len(dataset.class_names))
    assert DATASETS["cifar10"].class_names[6] == "frog"
    assert DATASETS["cifar100"].class_names[99] == "worm"
    assert DATASETS["fashion-mnist"].class_names[9] == "Ankle boot"
    assert DATASETS["tiny-imagenet"].class_names[199] == "n12267677"


def test_records_of_earlier_versions_are_completed_with_the_tasks_of_the_benchmarks() -> None:
    assert {name: BENCHMARKS[name].num_tasks for name in NUM_TASKS} == NUM_TASKS


@pytest.mark.parametrize(
    "asked",
    [{}, {"class_order": 7}, {"tasks": 3}, {"tasks": 2, "class_order": tuple(range(9, -1, -1))}],
)
def test_a_record_is_completed_with_what_the_benchmark_deals(
    config: Callable[..., TrialConfig], asked: dict[str, Any]
) -> None:
    benchmark = load_benchmark("split-digits", **asked)
    trial = config(benchmark="split-digits", **asked)
    split = derived_split(trial, range(benchmark.num_tasks), range(10))
    assert split == (benchmark.tasks, benchmark.class_names)
