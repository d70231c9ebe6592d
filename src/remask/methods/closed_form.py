"""Linear heads in closed form, and the methods NCM, SLDA and ridge that fit them to the inputs.

Each head depends on `ClassStatistics` alone, so not on the order of visits, and a class whose
statistics are removed leaves no trace. The methods do not use the net.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from remask.data.tasks import Task
from remask.errors import MethodError
from remask.methods.base import Method
from remask.methods.statistics import ClassStatistics, StatisticsError, accumulate
from remask.methods.step import Step

RIDGE_GRID = tuple(10 ** (exponent / 4) for exponent in range(-16, 13))
"""Penalties to choose from, in units of the mean variance of a feature: 1e-4 to 1e3."""
_TIE = 1e-9
_LEAST_LEFT = 1e-6  # of the degrees of freedom, below which GCV is a quotient of rounding errors


class LinearHead(NamedTuple):
    """A linear classifier: scores = features @ weight.T + bias."""

    weight: Tensor
    """float64 [K, D]; 0 for a class without samples."""
    bias: Tensor
    """float64 [K]; -inf for a class without samples."""
    regularisation: float
    """The shrinkage or penalty that was used; 0 for `ncm`."""

    def scores(self, features: Tensor) -> Tensor:
        """Rate the classes for features [n, D]: [n, K], the highest wins."""
        return features.to(self.weight.dtype) @ self.weight.T + self.bias


def ncm(stats: ClassStatistics) -> LinearHead:
    """Score -|x - mean_c|^2 / 2, up to what is the same for all classes."""
    means = stats.means
    centre = _centre(stats)
    # Without what all classes share, the numbers are smaller and float32 is more precise.
    bias = -((means + centre) * (means - centre)).sum(1) / 2
    return _head(stats.seen, means - centre, bias, 0.0)


def slda(stats: ClassStatistics, shrinkage: float | None = None) -> LinearHead:
    """Linear discriminant analysis with equal priors: log p(x | c) up to what all classes share.

    The covariance within classes, the same for all, is (1 - shrinkage) S + shrinkage tr(S) / D I.
    `None` chooses the shrinkage from the statistics, see `choose_shrinkage`.

    The mean of n samples has noise of covariance S / n, which adds tr(P S) / n to its squared
    length under the precision P. This is subtracted: few samples do not count against a class.
    """
    if shrinkage is None:
        shrinkage = choose_shrinkage(stats)
    if not 0 <= shrinkage <= 1:
        raise StatisticsError(f"shrinkage must be from 0 to 1, got {shrinkage}")
    within, scale = _within(stats)
    covariance = within * (1 - shrinkage)
    covariance.diagonal().add_(shrinkage * scale)
    centre = _centre(stats)
    weight = _solve(covariance, stats.means - centre)
    noise = _solve(covariance, within).trace() / stats.counts
    bias = (noise - (weight * (stats.means + centre)).sum(1)) / 2
    return _head(stats.seen, weight, bias, shrinkage)


def ridge(stats: ClassStatistics, penalty: float | None = None) -> LinearHead:
    """Ridge regression to one-hot targets with a free bias, every class with the same weight.

    The penalty is in units of the mean variance of a feature. `None` chooses it by generalised
    cross-validation, see `choose_penalty`.

    If classes have the same number of samples, it is ordinary ridge regression. Otherwise samples
    are weighted such that all classes count the same, with one covariance within classes as in
    `slda`.
    """
    if penalty is None:
        penalty = choose_penalty(stats)
    if not penalty > 0:
        raise StatisticsError(f"the penalty must be above 0, got {penalty}")
    regression = _regression(stats)
    covariance = regression.covariance.clone()
    covariance.diagonal().add_(penalty * regression.scale)
    weight = _solve(covariance, regression.cross)
    bias = regression.priors - weight @ regression.centre
    return _head(stats.seen, weight, bias, penalty)


def choose_penalty(stats: ClassStatistics, grid: Sequence[float] = RIDGE_GRID) -> float:
    """Choose the penalty of `ridge` by generalised cross-validation, from the statistics alone.

    Samples that are weighted differently count as fewer: as (sum w)^2 / sum w^2, their effective
    number.
    """
    if not bool(stats.seen.any()):
        return max(grid)
    regression = _regression(stats)
    values, vectors = _spectrum(regression.covariance)
    cross = regression.cross @ vectors
    samples = stats.seen.sum().square() / (1 / stats.counts[stats.seen]).sum()
    scores = []
    for penalty in grid:
        inverse = 1 / (values + penalty * regression.scale)
        explained = cross.square() * inverse * (2 - values * inverse)
        residual = (regression.priors * (1 - regression.priors)).sum() - explained.sum()
        left = 1 - (1 + (values * inverse).sum()) / samples
        scores.append(residual.clamp(min=0) / left.clamp(min=_LEAST_LEFT).square())
    found = torch.stack(scores)
    best = found <= found.min() * (1 + _TIE)  # the strongest of equals, despite rounding
    return max(penalty for penalty, good in zip(grid, best.tolist(), strict=True) if good)


def choose_shrinkage(stats: ClassStatistics) -> float:
    """Choose the shrinkage of `slda` from the statistics alone.

    It is the one that adds to the covariance what the penalty of `choose_penalty` adds.
    """
    regression = _regression(stats)
    added = choose_penalty(stats) * regression.scale
    return float(added / (added + _within(stats)[1]))


def _within(stats: ClassStatistics) -> tuple[Tensor, float]:
    """Return the unbiased covariance within classes [D, D], and the mean of its diagonal.

    If all features are constant, these are 0 and 1.
    """
    if stats.gram is None:
        raise StatisticsError("these statistics have no second moments, which slda, ridge need")
    free = stats.counts.sum() - stats.seen.sum()
    within = (stats.gram - stats.sums.T @ stats.means) / free.clamp(min=1)
    within = (within + within.T) / 2
    # The variance of equal numbers is rounding error, which cannot be a scale.
    noise = 1e-12 * float(stats.gram.diagonal().mean())
    scale = float(within.diagonal().mean())
    return (within, scale) if scale > noise else (torch.zeros_like(within), 1.0)


class _Regression(NamedTuple):
    """What ridge regression is computed from, with the same weight for every class."""

    covariance: Tensor  # [D, D]: of all samples
    cross: Tensor  # [K, D]: with the targets
    priors: Tensor  # [K]: the weight of each class, and the mean of its target
    centre: Tensor  # [D]: the mean of all samples
    scale: float  # the mean of the covariance's diagonal; 1 where it is 0


def _regression(stats: ClassStatistics) -> _Regression:
    within, _ = _within(stats)
    priors = stats.seen / stats.seen.sum().clamp(min=1).to(torch.float64)
    centre = priors @ stats.means
    apart = stats.means - centre
    cross = apart * priors.unsqueeze(1)
    samples = stats.counts.sum().clamp(min=1)
    free = (samples - stats.seen.sum()).clamp(min=1)
    covariance = within * (free / samples) + apart.T @ cross
    scale = float(covariance.diagonal().mean()) or 1.0
    return _Regression(covariance, cross, priors, centre, scale)


def _centre(stats: ClassStatistics) -> Tensor:
    """The mean of the means of all classes that have samples, [D]."""
    return stats.means.sum(0) / stats.seen.sum().clamp(min=1)


def _spectrum(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, none below 0, and eigenvectors of a symmetric matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    return values.clamp(min=0), vectors


def _solve(matrix: Tensor, rows: Tensor) -> Tensor:
    """Rows @ matrix^-1 for a symmetric matrix; its pseudo-inverse if that is singular."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if not bool(failed):
        return torch.cholesky_solve(rows.T, factor).T
    values, vectors = _spectrum(matrix)
    kept = values > values.max() * len(values) * torch.finfo(values.dtype).eps
    inverse = torch.where(kept, 1 / values.clamp(min=torch.finfo(values.dtype).tiny), 0.0)
    return (rows @ vectors * inverse) @ vectors.T


def _head(seen: Tensor, weight: Tensor, bias: Tensor, regularisation: float) -> LinearHead:
    return LinearHead(
        weight.masked_fill(~seen.unsqueeze(1), 0.0),
        bias.masked_fill(~seen, -torch.inf),
        regularisation,
    )


_MOST_FEATURES = 4096


class ClosedForm(Method):
    """A head that is a function of sums over all samples so far, so it forgets nothing.

    The inputs, flattened, are the features. The order of samples and tasks does not matter.
    """

    trains_net = False
    confidence = False
    uses_tasks = False  # `end_task` refits the head, but so does every evaluation
    unmaskable = "it has no softmax loss"
    second_moments: ClassVar[bool] = True
    """Whether it needs the sum of x x^T."""
    remembers = ("counts", "sums", "gram", "weight", "bias")
    predicts_with = ("counts", "weight", "bias")

    def prepare(self) -> None:
        """Start with sums of 0."""
        context = self.context
        size = math.prod(context.input_shape)
        if self.second_moments and size > _MOST_FEATURES:
            raise MethodError(
                f"{self.title} supports at most {_MOST_FEATURES} inputs, got {size}; use ncm, or "
                f"the features of an encoder as inputs"
            )
        self.bias = torch.zeros(context.trials, context.num_classes, device=context.device)
        self.weight = self.bias.new_zeros((*self.bias.shape, size))
        self.counts, self.sums = self.bias.double(), self.weight.double()
        side = size if self.second_moments else 0
        self.gram = self.counts.new_zeros((context.trials, side, side))
        self._fitted = True

    def after_step(self, step: Step) -> None:
        """Add the samples of the step, as they are, to the sums."""
        batch = self.context.batch(step.rows, augment=False)
        features = batch.inputs.flatten(2).to(torch.float64)
        for stats, own, labels in zip(self._statistics(), features, batch.labels, strict=True):
            accumulate(stats.counts, stats.sums, stats.gram, own, labels)
        self._fitted = False

    def end_task(self, task: Task) -> None:
        self._fit()

    @torch.no_grad()
    def _fit(self) -> None:
        """Compute the heads."""
        for trial, stats in enumerate(self._statistics()):
            head = self.fit(stats, trial)
            self.weight[trial] = head.weight
            self.bias[trial] = head.bias.nan_to_num(neginf=0.0)
        self._fitted = True

    def _statistics(self) -> list[ClassStatistics]:
        """Return the sums of each trial, not copies of them."""
        grams = self.gram if self.second_moments else [None] * self.context.trials
        return [ClassStatistics(*own) for own in zip(self.counts, self.sums, grams, strict=True)]

    @abstractmethod
    def fit(self, stats: ClassStatistics, trial: int) -> LinearHead:
        """Compute the head of one trial."""

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """Return the scores of the linear heads; -inf for classes without samples."""
        return self.own_scores(inputs.expand(self.context.trials, *inputs.shape), task)

    def own_scores(self, inputs: Tensor, task: int) -> Tensor:
        """Return the same for inputs of each trial's own."""
        if not self._fitted:  # measured within a task
            self._fit()
        parts = zip(inputs.flatten(2), self.weight, self.bias, strict=True)
        rated = torch.stack([nn.functional.linear(own, *head) for own, *head in parts])
        return rated.masked_fill((self.counts == 0).unsqueeze(1), -torch.inf)

    @classmethod
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        """Return one linear layer on the flattened inputs."""
        weight, bias = own["weight"], own["bias"].masked_fill(own["counts"] == 0, -torch.inf)
        linear = nn.Linear(weight.shape[1], len(weight), device=weight.device)
        with torch.no_grad():
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        return nn.Sequential(nn.Flatten(), linear)


class NCM(ClosedForm):
    """score = -|x - mean of class c|^2 / 2."""

    name = "ncm"
    second_moments = False

    def fit(self, stats: ClassStatistics, trial: int) -> LinearHead:
        """Take the means."""
        return ncm(stats)


class SLDA(ClosedForm):
    """score = log N(x | mean of class c, S), with one covariance S, shrunk towards the identity."""

    name = "slda"
    weights: ClassVar = {"shrinkage": 0.0}  # 0: chosen
    confidence = True
    shrinkage: Tensor

    def fit(self, stats: ClassStatistics, trial: int) -> LinearHead:
        """Invert the covariance."""
        return slda(stats, float(self.shrinkage[trial]) or None)


class Ridge(ClosedForm):
    """score = w_c x + b_c, the least squares to one-hot targets with a penalty on |w|^2."""

    name = "ridge"
    title = "RIDGE"
    weights: ClassVar = {"penalty": 0.0}  # 0: chosen
    penalty: Tensor

    def fit(self, stats: ClassStatistics, trial: int) -> LinearHead:
        """Solve the normal equations."""
        return ridge(stats, float(self.penalty[trial]) or None)
