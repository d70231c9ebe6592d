"""Classes: their names, and how they are dealt to tasks."""

from typing import Any

import pytest

from remask.benchmarks import BENCHMARKS, load_benchmark
from remask.classes import check_class_names, deal_anew
from remask.known_splits import KNOWN_SPLITS
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


def test_every_benchmark_of_remask_has_a_known_split() -> None:
    assert KNOWN_SPLITS.keys() == BENCHMARKS.keys()
    for tasks, class_names in KNOWN_SPLITS.values():
        check_class_names(class_names, sum(map(len, tasks)))
    assert KNOWN_SPLITS["split-cifar10"].class_names[6] == "frog"
    assert KNOWN_SPLITS["split-cifar100"].class_names[99] == "worm"
    assert KNOWN_SPLITS["split-fashion-mnist"].class_names[9] == "Ankle boot"


@pytest.mark.parametrize(
    "asked", [{}, {"class_order": 7}, {"tasks": 3}, {"tasks": 2, "class_order": range(9, -1, -1)}]
)
def test_a_known_split_is_dealt_as_the_benchmark_deals_it(asked: dict[str, Any]) -> None:
    benchmark = load_benchmark("split-digits", **asked)
    split = KNOWN_SPLITS["split-digits"]
    dealt = deal_anew(
        split.tasks, num_tasks=asked.get("tasks"), class_order=asked.get("class_order")
    )
    assert benchmark.tasks == dealt
    assert benchmark.class_names == split.class_names
