"""Statistics of each class: exact forgetting, in any order of visits."""

import pytest
import torch
from torch import Tensor

from remask.heads import (
    ClassStatistics,
    PerClassStatistics,
    StatisticsError,
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
def test_a_removed_class_leaves_the_heads_of_a_learner_that_never_saw_it(
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
    rest = PerClassStatistics(SIZE)
    rest.take(found, {label: label for label in (0, 2, 4)})
    kept = (labels != 1) & (labels != 3)
    never = statistics(features[kept], labels[kept])
    assert torch.equal(rest.total(CLASSES).counts, never.counts)
    assert_same_heads(rest.total(CLASSES), never, features)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("1/count", lambda t: t * 0, "1 or more"),
        ("1/count", lambda t: t - 25, "1/factor must be"),
        ("1/sum", lambda t: t[1:], "1/sum must be"),
        ("1/sum", lambda t: t / 0, "not finite"),
        ("2/factor", lambda t: t.double(), "must be torch.float32"),
        ("2/factor", lambda t: t[1:], "2/factor must be"),
        ("x/count", lambda t: t, "class numbers expected"),
        ("7/count", lambda t: t, "class 7 needs"),
    ],
)
def test_damaged_statistics_are_refused(name: str, damage: object, message: str) -> None:
    tensors = per_class(*samples(COUNTS)).to_tensors()
    source = name if name in tensors else "1/count"
    tensors[name] = damage(tensors[source])  # type: ignore[operator]
    with pytest.raises(StatisticsError, match=message):
        PerClassStatistics.from_tensors(tensors, SIZE)
