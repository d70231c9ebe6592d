"""The heads against slow references, and what they must not depend on."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from remask.heads import (
    RIDGE_GRID,
    ClassStatistics,
    LinearHead,
    StatisticsError,
    choose_penalty,
    ncm,
    ridge,
    slda,
)

CLASSES, SIZE = 5, 12


def samples(counts: list[int], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian classes with one covariance and a common offset, in mixed order."""
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
    scale = centred.square().mean()
    errors = []
    for penalty in RIDGE_GRID:
        inverse = torch.linalg.inv(
            centred.T @ centred + len(labels) * penalty * scale * torch.eye(SIZE)
        )
        hat = centred @ inverse @ centred.T + 1 / len(labels)
        residual = (targets - hat @ targets).square().sum()
        errors.append(residual / (1 - hat.trace() / len(labels)) ** 2)
    chosen = choose_penalty(statistics(features, labels))
    assert chosen == RIDGE_GRID[int(torch.stack(errors).argmin())]
    assert RIDGE_GRID[0] < chosen < RIDGE_GRID[-1]


@pytest.mark.parametrize("head", [ncm, slda, ridge])
def test_a_class_without_samples_never_wins(head: object) -> None:
    features, labels = samples([5, 6, 7])
    found = head(statistics(features, labels, classes=6))  # type: ignore[operator]
    scores = found.scores(features)
    assert torch.equal(scores.isinf().any(0), torch.tensor([False] * 3 + [True] * 3))
    same = head(statistics(features, labels, classes=3))  # type: ignore[operator]
    torch.testing.assert_close(scores[:, :3], same.scores(features))


@pytest.mark.parametrize("head", [ncm, slda, ridge])
def test_batches_in_any_order_give_the_same_head(head: object) -> None:
    features, labels = samples([9, 30, 7, 5, 40])
    whole = head(statistics(features, labels)).scores(features)  # type: ignore[operator]
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    parts = [statistics(features[rows], labels[rows]) for rows in torch.split(order, 13)]
    merged = parts.pop()
    for part in parts:
        merged.merge(part)
    torch.testing.assert_close(head(merged).scores(features), whole)  # type: ignore[operator]


@pytest.mark.parametrize("head", [ncm, slda, ridge])
def test_removed_samples_leave_no_trace(head: object) -> None:
    features, labels = samples([9, 30, 7, 5, 40])
    kept = labels != 1
    stats = statistics(features, labels)
    stats.remove(statistics(features[~kept], labels[~kept]))
    never = statistics(features[kept], labels[kept])
    expected = head(never).scores(features)  # type: ignore[operator]
    torch.testing.assert_close(head(stats).scores(features), expected)  # type: ignore[operator]
    with pytest.raises(StatisticsError, match=r"classes \[1\] have fewer samples"):
        stats.remove(statistics(features[~kept], labels[~kept]))


@pytest.mark.parametrize("head", [ncm, slda, ridge])
@pytest.mark.parametrize("counts", [[1], [4], [1, 1, 1], [1, 40], []])
def test_few_samples_give_finite_heads(head: object, counts: list[int]) -> None:
    features, labels = samples(counts) if counts else (torch.zeros(0, SIZE), torch.zeros(0))
    found = head(statistics(features, labels))  # type: ignore[operator]
    assert bool(found.weight.isfinite().all())
    assert torch.equal(found.bias.isfinite(), torch.arange(CLASSES) < len(counts))
    if len(counts) > 2:
        assert right(found, features, labels) == 100


@pytest.mark.parametrize("head", [slda, ridge])
def test_constant_features_give_finite_heads(head: object) -> None:
    found = head(statistics(torch.full((6, SIZE), 3.0), torch.arange(6) % 2))  # type: ignore[operator]
    assert bool(found.weight.isfinite().all())


@pytest.mark.parametrize("head", [slda, ridge])
def test_few_samples_do_not_count_against_a_class(head: object) -> None:
    features, labels = samples([300, 8, 300, 8, 300])
    test_features, test_labels = samples([200] * CLASSES, seed=1)
    found = head(statistics(features, labels))  # type: ignore[operator]
    rare = (test_labels == 1) | (test_labels == 3)
    answers = found.scores(test_features).argmax(1)
    share = float(((answers == 1) | (answers == 3)).double().mean())
    assert 0.3 < share < 0.5  # 0.4 is right; ridge with the samples' own weights gives 0.2
    assert right(found, test_features[rare], test_labels[rare]) > 60


def test_statistics_are_read_back_as_they_were_written() -> None:
    stats = statistics(*samples([9, 3, 7, 0, 4]))
    again = ClassStatistics.from_tensors(stats.to_tensors())
    for one, other in ((stats.counts, again.counts), (stats.sums, again.sums)):
        assert torch.equal(one, other)
    assert stats.gram is not None
    assert again.gram is not None
    torch.testing.assert_close(again.gram, stats.gram)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("counts", lambda t: t - 10, "whole numbers, 0 or more"),
        ("counts", lambda t: t[1:], "sums must be"),
        ("sums", lambda t: t / 0, "not finite"),
        ("sums", lambda t: t.float(), "must be torch.float64"),
        ("gram", lambda t: t[1:], r"\[78\]"),
        ("gram", lambda t: -t, "below 0"),
    ],
)
def test_damaged_statistics_are_refused(name: str, damage: object, message: str) -> None:
    tensors = statistics(*samples([9, 3, 7, 2, 4])).to_tensors()
    tensors[name] = damage(tensors[name])  # type: ignore[operator]
    with pytest.raises(StatisticsError, match=message):
        ClassStatistics.from_tensors(tensors)


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
