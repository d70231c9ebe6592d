"""Other tasks for a benchmark: their number, the order of classes, less data."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remask.data.benchmark import Benchmark, first_of_each_class, load_benchmark, resplit
from remask.data.classes import SplitError, split_classes


@given(st.data())
def test_classes_are_spread_evenly_with_larger_tasks_first(data: st.DataObject) -> None:
    num_classes = data.draw(st.integers(1, 50))
    num_tasks = data.draw(st.integers(1, num_classes))
    tasks = split_classes(num_classes, num_tasks)
    sizes = [len(task) for task in tasks]
    assert len(tasks) == num_tasks
    assert [label for task in tasks for label in task] == list(range(num_classes))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tasks": 0}, r"10 classes can be split into 1\.\.10 tasks, not 0"),
        ({"tasks": 11}, r"10 classes can be split into 1\.\.10 tasks, not 11"),
        ({"limit": 0}, "at least 1 per class"),
        ({"class_order": [0, 1, 2]}, "class_order must"),
        ({"class_order": [0, 0, 2, 3, 4, 5, 6, 7, 8, 9]}, "class_order must"),
        ({"class_order": list(range(1, 11))}, "class_order must"),
        ({"class_order": ["a"] * 10}, "class_order must"),
    ],
)
def test_an_impossible_split_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SplitError, match=message):
        load_benchmark("split-digits", **wrong)


@pytest.mark.parametrize("kind", [list, np.array])
def test_a_class_order_fills_the_tasks_and_keeps_the_labels(digits: Benchmark, kind: Any) -> None:
    order = kind([9, 3, 5, 1, 7, 0, 2, 4, 6, 8])
    ordered = load_benchmark("split-digits", class_order=order)
    assert ordered.tasks == ((9, 3), (5, 1), (7, 0), (2, 4), (6, 8))
    assert torch.equal(ordered.train_labels, digits.train_labels)
    assert torch.equal(ordered.train_inputs, digits.train_inputs)
    assert set(ordered.train_labels[ordered.train_indices(0)].tolist()) == {9, 3}


def test_a_seed_draws_one_order_and_another_seed_another() -> None:
    def tasks(seed: int) -> tuple[tuple[int, ...], ...]:
        return load_benchmark("split-digits", class_order=seed).tasks

    # Pinned: the order of a seed is part of what a published run means.
    assert tasks(0) == ((8, 7), (3, 5), (1, 0), (4, 2), (6, 9))
    assert tasks(0) == tasks(0) != tasks(1)
    assert sorted(label for task in tasks(1) for label in task) == list(range(10))


def test_tasks_keep_their_sizes_and_classes_their_order(tiny: Benchmark) -> None:
    assert tiny.tasks == ((3, 0), (4,), (1, 2, 5))
    assert resplit(tiny, class_order=[5, 4, 3, 2, 1, 0]).tasks == ((5, 4), (3,), (2, 1, 0))
    assert resplit(tiny, tasks=2).tasks == ((3, 0, 4), (1, 2, 5))
    both = resplit(tiny, tasks=4, class_order=[5, 4, 3, 2, 1, 0])
    assert both.tasks == ((5, 4), (3, 2), (1,), (0,))
    assert resplit(tiny) is tiny


@given(labels=st.lists(st.integers(0, 5), min_size=1, max_size=40), n=st.integers(1, 10))
def test_a_limit_agrees_with_counting_one_by_one(labels: list[int], n: int) -> None:
    seen = dict.fromkeys(range(6), 0)
    expected = []
    for row, label in enumerate(labels):
        seen[label] += 1
        if seen[label] <= n:
            expected.append(row)
    assert first_of_each_class(torch.tensor(labels), n).tolist() == expected


def test_preprocessing_is_kept_by_another_split(tiny_benchmark: Callable[..., Benchmark]) -> None:
    described = replace(tiny_benchmark(), mean=(0.5,), std=(0.2,), crop_padding=4, flip=True)
    again = resplit(described, tasks=3, class_order=1, limit=2)
    assert (again.mean, again.std, again.crop_padding, again.flip) == ((0.5,), (0.2,), 4, True)
    assert again.augment


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": (0.5,)}, "together or not at all"),
        ({"mean": (0.5, 0.5), "std": (0.5,)}, "a number per channel"),
        ({"mean": (0.5,), "std": (0.0,)}, "std above zero"),
        ({"mean": (float("nan"),), "std": (1.0,)}, "must be finite"),
        ({"crop_padding": -1}, "must not be negative"),
    ],
)
def test_wrong_normalisation_or_augmentation_is_refused(
    tiny: Benchmark, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        replace(tiny, **changes)


def test_only_images_can_be_flipped(tiny_benchmark: Callable[..., Benchmark]) -> None:
    with pytest.raises(ValueError, match=r"only images \[C, H, W\]"):
        replace(tiny_benchmark(shape=(9,)), flip=True)
