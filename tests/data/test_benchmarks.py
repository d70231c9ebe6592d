"""Benchmarks: tasks, validation, the shipped digits, names."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from remask.data.benchmark import Benchmark, load_benchmark
from remask.data.classes import check_class_names
from remask.data.dataset import check, where
from remask.data.registry import BENCHMARKS, DATASETS, find_dataset
from remask.errors import UnknownNameError


def small_benchmark(**changes: Any) -> Benchmark:
    """Three classes in unequal tasks, learned out of label order."""
    fields: dict[str, Any] = {
        "name": "small",
        "train_inputs": torch.arange(5, dtype=torch.uint8).reshape(5, 1),
        "train_labels": torch.tensor([0, 1, 2, 1, 0]),
        "test_inputs": torch.zeros(3, 1, dtype=torch.uint8),
        "test_labels": torch.tensor([2, 1, 0]),
        "tasks": ((2,), (0, 1)),
        "scale": 1 / 255,
    }
    return Benchmark(**(fields | changes))


# Tasks


def test_unequal_tasks_find_their_rows_and_their_classes() -> None:
    benchmark = small_benchmark()
    assert (benchmark.num_classes, benchmark.num_tasks, benchmark.input_shape) == (3, 2, (1,))
    assert benchmark.train_indices(0).tolist() == [2]
    assert benchmark.train_indices(1).tolist() == [0, 1, 3, 4]
    assert benchmark.test_indices(0).tolist() == [0]
    assert benchmark.test_indices(1).tolist() == [1, 2]
    assert benchmark.train_indices(0).dtype == torch.int64
    assert benchmark.active(0).tolist() == [False, False, True]
    assert benchmark.active(1).tolist() == [True, True, False]


@pytest.mark.parametrize("task", [-1, 2])
def test_a_task_that_does_not_exist_is_an_error(task: int) -> None:
    with pytest.raises(IndexError, match=r"tasks 0\.\.1"):
        small_benchmark().train_indices(task)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_inputs": torch.zeros(5, 1)}, "test inputs must be torch.float32"),
        ({"train_inputs": torch.zeros(5, 1).half()}, "int64, got torch.float16"),
        ({"test_labels": torch.zeros(3, dtype=torch.int32)}, "test labels must be int64"),
        ({"test_labels": torch.zeros(3, 1, dtype=torch.int64)}, "one for each of the 3 inputs"),
        ({"train_inputs": torch.zeros(5, dtype=torch.uint8)}, r"must be .* \[N, \*shape\]"),
        ({"train_inputs": torch.zeros(0, 1, dtype=torch.uint8)}, "at least one"),
        ({"train_inputs": torch.zeros(4, 1, dtype=torch.uint8)}, "one for each of the 4 inputs"),
        ({"train_labels": torch.tensor([0, 1, 2, 1, 3])}, r"0\.\.2, found 0\.\.3"),
        ({"train_labels": torch.tensor([0, 1, 1, 1, 0])}, r"without train data: \[2\]"),
        ({"test_labels": torch.tensor([0, 0, 0])}, r"without test data: \[1, 2\]"),
        ({"test_inputs": torch.zeros(3, 2, dtype=torch.uint8)}, "test inputs"),
        ({"tasks": ()}, "at least one task"),
        ({"tasks": ((0, 1), (), (2,))}, "task 1 has no classes"),
        ({"tasks": ((0, 1), (1, 2))}, "class 1 is in the tasks twice"),
        ({"tasks": ((0, 1), (3,))}, r"ids must be 0\.\.2"),
        ({"scale": 1.0}, "scale must bring"),
        ({"scale": float("nan")}, "scale must be a number above zero"),
    ],
)
def test_a_benchmark_of_wrong_data_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_benchmark(**changes)


def test_floats_may_lie_anywhere_but_must_be_numbers() -> None:
    train, test = torch.tensor([[-3e38], [0.0], [7.5], [3e38], [1.0]]), torch.full((3, 1), 4.5)
    benchmark = small_benchmark(train_inputs=train, test_inputs=test, scale=1.0)
    assert torch.equal(benchmark.train_inputs, train)
    for odd in (float("nan"), float("inf"), -float("inf")):
        train[3] = odd
        with pytest.raises(ValueError, match="train input 3 has a NaN or an infinite number"):
            small_benchmark(train_inputs=train, test_inputs=test, scale=1.0)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("ant", "bee"), "2 names for 3 classes"),
        (("ant", "bee", "ant"), "classes 0 and 2 have the same name, 'ant'"),
        (("ant", 1, "cat"), "class 1 must be printable text, not 1"),
        (("ant", "bee", "\udc80"), r"class 2 must be printable text, not '\\udc80'"),
    ],
)
def test_invalid_class_names_are_refused(names: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_benchmark(class_names=names)


# Digits


def test_split_digits_has_every_digit_in_five_tasks_of_two() -> None:
    digits = load_benchmark("split-digits")
    assert digits.tasks == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert digits.input_shape == (1, 8, 8)
    assert len(digits.train_labels) + len(digits.test_labels) == 1797
    # The counts per class that the origin publishes for this part of its data.
    both = torch.cat([digits.train_labels, digits.test_labels])
    assert torch.bincount(both).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert int(digits.train_inputs.max()) * digits.scale == 1.0
    # Every fifth image of each class is for testing.
    assert torch.equal(torch.bincount(digits.test_labels), torch.bincount(both) // 5)
    assert digits.train_inputs[0, 0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]  # the first image


def test_the_shipped_digits_have_their_checksum_and_their_attribution() -> None:
    dataset = DATASETS["digits"]
    assert [status.state for status in check(dataset)] == ["ok"] * 4
    attribution = (where(dataset) / "ATTRIBUTION.txt").read_text()
    assert "CC BY 4.0" in attribution
    assert "Alpaydin" in attribution


@pytest.mark.data
def test_the_real_mnist_has_the_published_number_of_images_in_each_task() -> None:
    benchmark = load_benchmark("split-mnist")
    train = [len(benchmark.train_indices(task)) for task in range(5)]
    test = [len(benchmark.test_indices(task)) for task in range(5)]
    assert train == [12665, 12089, 11263, 12183, 11800]
    assert test == [2115, 2042, 1874, 1986, 1983]


# Names


@pytest.mark.parametrize("find", [load_benchmark, find_dataset])
def test_an_unknown_name_is_answered_with_the_nearest(find: Callable[[str], object]) -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean '(split-)?mnist'"):
        find("split-minst" if find is load_benchmark else "minst")


def test_every_registered_benchmark_is_named_after_its_key_and_says_what_it_is() -> None:
    for name, info in BENCHMARKS.items():
        assert info.name == name
        assert info.summary
        assert "\n" not in info.summary
        assert find_dataset(info.dataset.name) is info.dataset
        names = info.dataset.class_names
        check_class_names(names, len(names))
