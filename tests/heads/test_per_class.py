"""Statistics of each class: exact forgetting, in any order of visits."""

import pytest
import torch
from torch import Tensor

from remask.heads import (
    ClassStatistics,
    PerClassStatistics,
    StatisticsError,
    class_bytes,
    ncm,
    ridge,
    slda,
)
from tests.heads.test_closed_form import CLASSES, SIZE, samples, statistics

COUNTS = [9, 30, 7, 1, 40]  # fewer and more than features, and a single sample


def per_class(features: Tensor, labels: Tensor) -> PerClassStatistics:
    found = PerClassStatistics(SIZE)
    for label in sorted(set(labels.tolist())):
        found.add(label, features[labels == label])
    return found


def assert_same_heads(one: ClassStatistics, other: ClassStatistics, features: Tensor) -> None:
    for head in (ncm, slda, ridge):
        expected = head(other).scores(features)
        torch.testing.assert_close(head(one).scores(features), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stored", [False, True])
def test_a_dropped_class_leaves_the_heads_of_a_learner_that_never_saw_it(
    seed: int, stored: bool
) -> None:
    features, labels = samples(COUNTS)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    found = PerClassStatistics(SIZE)
    for rows in torch.split(order, 17):  # every class is split over several visits
        for label in sorted(set(labels[rows].tolist())):
            found.add(label, features[rows][labels[rows] == label])
        if stored:
            found = PerClassStatistics.from_tensors(found.to_tensors(), SIZE)
    assert_same_heads(found.total(CLASSES), statistics(features, labels), features)
    for label in (1, 3):
        found.drop(label)
    kept = (labels != 1) & (labels != 3)
    never = statistics(features[kept], labels[kept])
    assert torch.equal(found.total(CLASSES).counts, never.counts)
    assert_same_heads(found.total(CLASSES), never, features)


def test_classes_are_merged_and_renumbered() -> None:
    features, labels = samples(COUNTS)
    found = per_class(features, labels)
    found.merge(3, 0)
    found.merge(2, 9)
    found.renumber({0: 2, 1: 1, 4: 0, 9: 3})
    renamed = torch.tensor([2, 1, 3, 2, 0])[labels]
    assert [found.count(label) for label in (0, 1, 2, 3, 4)] == [40, 30, 10, 7, 0]
    assert_same_heads(found.total(4), statistics(features, renamed, classes=4), features)
    with pytest.raises(StatisticsError, match="class 4 has no samples"):
        found.merge(4, 0)
    with pytest.raises(StatisticsError, match="new label for each"):
        found.renumber({0: 1, 1: 1, 2: 2, 3: 3})


def test_the_total_of_some_classes_can_be_removed_from_that_of_all() -> None:
    features, labels = samples(COUNTS)
    found = per_class(features, labels)
    stats = found.total(CLASSES)
    stats.remove(found.total(CLASSES, labels=[4]))
    assert_same_heads(stats, found.total(CLASSES, labels=[0, 1, 2, 3]), features)


@pytest.mark.parametrize(
    ("features", "samples_of_class", "size"),
    [
        (1280, 200, 8 + 8 * 1280 + 4 * (200 * 1280 - 200 * 199 // 2)),  # 0.95 MB
        (1280, 100_000, 8 + 8 * 1280 + 4 * (1280 * 1281 // 2)),  # 3.29 MB, the most
        (384, 200, 8 + 8 * 384 + 4 * (200 * 384 - 200 * 199 // 2)),  # 0.23 MB
        (384, 100_000, 8 + 8 * 384 + 4 * (384 * 385 // 2)),  # 0.30 MB, the most
    ],
)
def test_the_size_of_a_class_is_bounded(features: int, samples_of_class: int, size: int) -> None:
    assert class_bytes(features, samples_of_class) == size
    assert size < 8 + 8 * features + 4 * features * samples_of_class


def test_the_size_is_that_of_the_tensors() -> None:
    found = per_class(*samples(COUNTS))
    assert found.bytes() == sum(tensor.nbytes for tensor in found.to_tensors().values())


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("1/count", lambda t: t * 0, "1 or more"),
        ("1/count", lambda t: t - 25, r"need \[12\] and \[50\]"),
        ("1/sum", lambda t: t[1:], "sum of"),
        ("1/sum", lambda t: t / 0, "not finite"),
        ("2/factor", lambda t: t.double(), "must be torch.float32"),
        ("2/factor", lambda t: t[1:], "factor of"),
        ("2/other", lambda t: t, "unknown tensor"),
        ("7/count", lambda t: t, "class 7 needs"),
    ],
)
def test_damaged_statistics_are_refused(name: str, damage: object, message: str) -> None:
    tensors = per_class(*samples(COUNTS)).to_tensors()
    source = name if name in tensors else "1/count"
    tensors[name] = damage(tensors[source])  # type: ignore[operator]
    with pytest.raises(StatisticsError, match=message):
        PerClassStatistics.from_tensors(tensors, SIZE)
