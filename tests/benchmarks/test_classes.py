"""Classes: their names, and how they are dealt to tasks."""

from typing import Any

import pytest

from remask.classes import check_class_names
from remask.datasets import DATASETS
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
