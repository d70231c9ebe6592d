"""Heads against slow references, and statistics in any order of visits."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from remask.methods.closed_form import RIDGE_GRID, LinearHead, choose_penalty, ncm, ridge, slda
from remask.methods.statistics import ClassStatistics, PerClassStatistics, StatisticsError

CLASSES, SIZE = 5, 12
COUNTS = [9, 30, 7, 1, 40]  # fewer and more than features, and a single sample
Head = Callable[[ClassStatistics], LinearHead]
every_head = pytest.mark.parametrize("head", [ncm, slda, ridge])


def samples(counts: list[int], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian classes with one covariance and a common offset, shuffled."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=generator)]
    centres = torch.randn(len(counts), SIZE, generator=torch.Generator().manual_seed(99))
    mixing = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(98))
    noise = torch.randn(len(labels), SIZE, generator=generator)
    return (centres[labels] + noise @ mixing * 0.4 + 10).double(), labels


def statistics(features: Tensor, labels: Tensor, classes: int = CLASSES) -> ClassStatistics:
    stats = ClassStatistics.empty(classes, features.shape[1])
    stats.add(features, labels)
    return stats


def right(head: LinearHead, features: Tensor, labels: Tensor) -> float:
    return float((head.scores(features).argmax(1) == labels).double().mean()) * 100


def test_the_nearest_mean_wins() -> None:
    features, labels = samples([9, 3, 7, 5, 4])
    means = torch.stack([features[labels == label].mean(0) for label in range(CLASSES)])
    expected = torch.cdist(features, means).argmin(1)
    assert torch.equal(ncm(statistics(features, labels)).scores(features).argmax(1), expected)


def test_lda_scores_are_gaussian_log_likelihoods_without_the_noise_of_the_means() -> None:
    counts = [9, 30, 7, 5, 40]
    features, labels = samples(counts)
    shrinkage = 0.3
    means = torch.stack([features[labels == label].mean(0) for label in range(CLASSES)])
    apart = features - means[labels]
    pooled = apart.T @ apart / (len(labels) - CLASSES)
    shrunk = (1 - shrinkage) * pooled + shrinkage * pooled.trace() / SIZE * torch.eye(SIZE)
    offsets = features.unsqueeze(1) - means
    densities = -torch.einsum("nki,ij,nkj->nk", offsets, shrunk.inverse(), offsets) / 2
    densities += (shrunk.inverse() @ pooled).trace() / torch.tensor(counts) / 2
    scores = slda(statistics(features, labels), shrinkage).scores(features)
    torch.testing.assert_close(scores.log_softmax(1), densities.log_softmax(1))


def test_ridge_is_least_squares_with_a_penalty_and_a_free_bias() -> None:
    features, labels = samples([8] * CLASSES)
    targets = F.one_hot(labels, CLASSES).double()
    centred = features - features.mean(0)
    penalty = 0.7 * centred.square().mean() * len(labels)
    stacked = torch.cat([centred, penalty.sqrt() * torch.eye(SIZE)])
    wanted = torch.cat([targets - targets.mean(0), torch.zeros(SIZE, CLASSES)])
    weight = torch.linalg.lstsq(stacked, wanted).solution.T
    head = ridge(statistics(features, labels), 0.7)
    torch.testing.assert_close(head.weight, weight)
    torch.testing.assert_close(head.bias, targets.mean(0) - weight @ features.mean(0))


def test_the_penalty_minimises_generalised_cross_validation() -> None:
    features, labels = samples([6] * CLASSES)
    targets = F.one_hot(labels, CLASSES).double()
    centred = features - features.mean(0)
    ridges = len(labels) * centred.square().mean() * torch.eye(SIZE)
    errors = []
    for penalty in RIDGE_GRID:
        inverse = torch.linalg.inv(centred.T @ centred + penalty * ridges)
        hat = centred @ inverse @ centred.T + 1 / len(labels)
        residual = (targets - hat @ targets).square().sum()
        errors.append(residual / (1 - hat.trace() / len(labels)) ** 2)
    chosen = choose_penalty(statistics(features, labels))
    assert chosen == RIDGE_GRID[int(torch.stack(errors).argmin())]
    assert RIDGE_GRID[0] < chosen < RIDGE_GRID[-1]


@every_head
def test_a_class_without_samples_never_wins(head: Head) -> None:
    features, labels = samples([5, 6, 7])
    scores = head(statistics(features, labels, classes=6)).scores(features)
    assert torch.equal(scores.isinf().any(0), torch.tensor([False] * 3 + [True] * 3))
    same = head(statistics(features, labels, classes=3))
    torch.testing.assert_close(scores[:, :3], same.scores(features))


@every_head
def test_heads_do_not_depend_on_the_order_of_samples_or_on_removed_ones(head: Head) -> None:
    features, labels = samples([9, 30, 7, 5, 40])
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    merged = statistics(features[:0], labels[:0])
    for rows in torch.split(order, 13):
        merged.merge(statistics(features[rows], labels[rows]))
    whole = head(statistics(features, labels)).scores(features)
    torch.testing.assert_close(head(merged).scores(features), whole)
    kept = labels != 1
    merged.remove(statistics(features[~kept], labels[~kept]))
    never = head(statistics(features[kept], labels[kept])).scores(features)
    torch.testing.assert_close(head(merged).scores(features), never)
    with pytest.raises(StatisticsError, match=r"classes \[1\] have fewer samples"):
        merged.remove(statistics(features[~kept], labels[~kept]))


@every_head
@pytest.mark.parametrize("counts", [[1], [4], [1, 1, 1], [1, 40], []])
def test_few_samples_give_finite_heads(head: Head, counts: list[int]) -> None:
    features, labels = samples(counts) if counts else (torch.zeros(0, SIZE), torch.zeros(0))
    found = head(statistics(features, labels))
    assert bool(found.weight.isfinite().all())
    assert torch.equal(found.bias.isfinite(), torch.arange(CLASSES) < len(counts))
    if len(counts) > 2:
        assert right(found, features, labels) == 100
    same = head(statistics(torch.full((6, SIZE), 3.0), torch.arange(6) % 2))
    assert bool(same.weight.isfinite().all())


@pytest.mark.parametrize("head", [slda, ridge])
def test_few_samples_do_not_count_against_a_class(head: Head) -> None:
    features, labels = samples([300, 8, 300, 8, 300])
    test_features, test_labels = samples([200] * CLASSES, seed=1)
    found = head(statistics(features, labels))
    rare = (test_labels == 1) | (test_labels == 3)
    answers = found.scores(test_features).argmax(1)
    share = float(((answers == 1) | (answers == 3)).double().mean())
    assert 0.3 < share < 0.5  # 0.4 is right; ridge with the samples' own weights gives 0.2
    assert right(found, test_features[rare], test_labels[rare]) > 60


def per_class(features: Tensor, labels: Tensor, stored: bool = False) -> PerClassStatistics:
    """Statistics of samples that arrive in several visits, shuffled."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(len(labels)))
    found = PerClassStatistics(SIZE)
    for rows in torch.split(order, 17):
        for label in sorted(set(labels[rows].tolist())):
            found.add(label, features[rows][labels[rows] == label])
        if stored:
            found = PerClassStatistics.from_tensors(found.to_tensors(), SIZE)
    return found


@every_head
@pytest.mark.parametrize("stored", [False, True])
def test_some_classes_give_the_heads_of_a_learner_that_never_saw_the_others(
    head: Head, stored: bool
) -> None:
    features, labels = samples(COUNTS)
    found, rest = per_class(features, labels, stored), PerClassStatistics(SIZE)
    rest.take(found, {0: 0, 2: 2, 4: 4})
    kept = (labels != 1) & (labels != 3)
    never = statistics(features[kept], labels[kept])
    assert torch.equal(rest.total(CLASSES).counts, never.counts)
    for one, other in (
        (found.total(CLASSES), statistics(features, labels)),
        (rest.total(5), never),
    ):
        expected = head(other).scores(features)
        torch.testing.assert_close(head(one).scores(features), expected, rtol=1e-5, atol=1e-5)


def test_drawn_samples_have_the_moments_of_a_class() -> None:
    features, labels = samples([40, 3])
    noise = torch.randn(20_000, SIZE, generator=torch.Generator().manual_seed(0))
    drawn = per_class(features, labels).draw(0, noise)
    own = features[labels == 0]
    torch.testing.assert_close(drawn.mean(0), own.mean(0), atol=0.05, rtol=0)
    torch.testing.assert_close(drawn.T.cov(), own.T.cov(), atol=0.15, rtol=0)


def test_statistics_are_read_back_as_they_were_written() -> None:
    stats = statistics(*samples([9, 3, 7, 0, 4]))
    again = ClassStatistics.from_tensors(stats.to_tensors()).to_tensors()
    assert all(torch.equal(again[name], own) for name, own in stats.to_tensors().items())


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("counts", lambda t: t - 10, "whole numbers, 0 or more"),
        ("counts", lambda t: t[1:], "sums must be torch.float64 [4, 12]"),
        ("sums", lambda t: t / 0, "not finite"),
        ("sums", lambda t: t.float(), "must be torch.float64"),
        ("gram", lambda t: t[1:], "[78]"),
        ("gram", lambda t: -t, "below 0"),
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
def test_damaged_statistics_are_refused(
    name: str, damage: Callable[[Tensor], Tensor], message: str
) -> None:
    tensors = statistics(*samples(COUNTS)).to_tensors()
    if "/" in name:
        tensors = per_class(*samples(COUNTS)).to_tensors()
    tensors[name] = damage(tensors.get(name, next(iter(tensors.values()))))
    read: Callable[..., Any] = ClassStatistics.from_tensors
    if "/" in name:
        read = partial(PerClassStatistics.from_tensors, features=SIZE)
    with pytest.raises(StatisticsError, match=re.escape(message)):
        read(tensors)


def test_samples_that_do_not_fit_are_refused_and_change_nothing() -> None:
    stats = statistics(*samples([9, 3, 7, 2, 4]))
    before = {name: tensor.clone() for name, tensor in stats.to_tensors().items()}
    for features, labels, message in (
        (torch.zeros(2, SIZE + 1), torch.zeros(2), "features must be"),
        (torch.zeros(2, SIZE), torch.tensor([0, 5]), "labels must be 0 to 4"),
        (torch.full((2, SIZE), torch.nan), torch.zeros(2), r"rows \[0, 1\] are not"),
    ):
        with pytest.raises(StatisticsError, match=message):
            stats.add(features, labels)
    assert all(torch.equal(before[name], tensor) for name, tensor in stats.to_tensors().items())
