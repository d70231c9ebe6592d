"""Measurements on held-out samples: accuracy, temperature, abstaining, what is unknown.

Also the two checks that reject a visit: that it is above chance, and what it costs earlier classes.
"""

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from remask import metrics
from remask.learner.predictions import Abstention, Evaluation, Predictions, UnknownTest
from remask.learner.results import Calibration
from remask.learner.settings import LearnerError, VisitRejectedError
from remask.methods.statistics import ClassStatistics

MAX_DROP = 25.0
"""Points that a visit may cost earlier classes by default."""
_Z = 1.64  # guesses pass in one of 20 visits
_LEAST = 20  # held-out samples; fewer decide nothing
_LEAST_SAMPLES, _MOST_SCORES = 500, 500_000  # that a temperature is fitted to
_LOWEST, _HIGHEST = 0.05, 20.0
_FOLDS = 5
_SHRINKAGE = 10.0  # added to a covariance, in units of the mean variance of a feature


def calibrate(scores: Tensor, truth: Tensor) -> Calibration | None:
    """Fit a temperature to scores [n, C] and true columns [n]; None if there is nothing to fit to.

    It minimises the cross-entropy, in which every class weighs the same. It stays at 1 unless it
    also helps in cross-validation: with few samples, a fit can do more harm than good.
    """
    if not len(truth) or scores.shape[1] < 2:
        return None
    most = max(_LEAST_SAMPLES, _MOST_SCORES // scores.shape[1])
    if len(truth) > most:  # more take time and change nothing
        some = torch.linspace(0, len(truth) - 1, most).long()
        scores, truth = scores[some], truth[some]
    scores, weights = scores.double(), class_weights(truth)
    temperature = _best_temperature(scores, truth) if _scaling_helps(scores, truth) else 1.0
    return Calibration(
        temperature=temperature,
        ece_before=calibration_error(scores, truth, weights),
        ece_after=calibration_error(scores / temperature, truth, weights),
        samples=len(truth),
    )


def calibration_error(scores: Tensor, truth: Tensor, weights: Tensor | None = None) -> float:
    """Compute the expected calibration error of scores [n, C] for true columns [n], in percent."""
    confident, right = _predicted(scores.double(), truth)
    return metrics.expected_calibration_error(confident, right, weights)


def find_abstention(scores: Tensor, truth: Tensor, wanted: float) -> Abstention:
    """Find the lowest confidence above which a share `wanted` of the answers is right.

    `scores` [n, C] and true columns `truth` [n] are of held-out samples; every class weighs the
    same. One wrong answer is added to those above a confidence: otherwise one of many confidences
    would look good enough by chance where few samples are above it.
    """
    confident, right = _predicted(scores, truth)
    weights = class_weights(truth) * len(truth)
    order = confident.argsort(descending=True, stable=True)
    confident, right, weights = confident[order], right[order], weights[order]
    above, correct = weights.cumsum(0), (weights * right).cumsum(0)
    ends = torch.ones(len(order), dtype=torch.bool)  # the last of those with the same confidence
    ends[:-1] = confident[1:] < confident[:-1]
    reached = (ends & (correct / (above + 1) >= wanted)).nonzero().flatten()
    last = int(reached.max()) if len(reached) else None
    return Abstention(
        wanted=wanted,
        confidence=None if last is None else float(confident[last]),
        coverage=0.0 if last is None else float(above[last] / above[-1]),
        best=float((correct / (above + 1))[ends].max()) if len(order) else 0.0,
        held_out=len(truth),
    )


def class_weights(truth: Tensor) -> Tensor:
    """Return weights [n] that sum to 1, and to the same for each class."""
    counts = torch.bincount(truth).double()
    return 1 / (counts[truth] * int((counts > 0).sum()))


def _scaling_helps(scores: Tensor, truth: Tensor) -> bool:
    """Whether temperatures that are fitted without a fold suit the samples of that fold."""
    by_class = truth.argsort(stable=True)
    fold_of = torch.empty_like(truth)
    fold_of[by_class] = torch.arange(len(truth)) % _FOLDS  # spread each class over folds
    gain, weights = 0.0, class_weights(truth)
    for fold in range(min(_FOLDS, len(truth))):
        own = fold_of == fold
        if own.all():
            return False
        temperature = _best_temperature(scores[~own], truth[~own])
        fitted = _likelihood(scores[own] / temperature, truth[own], weights[own])
        gain += fitted - _likelihood(scores[own], truth[own], weights[own])
    return gain > 0


def _likelihood(scores: Tensor, truth: Tensor, weights: Tensor) -> float:
    """Return the weighted sum of the log-probabilities of the truth."""
    logs = torch.log_softmax(scores, dim=1).gather(1, truth.unsqueeze(1)).squeeze(1)
    return float((weights * logs).sum())


def _best_temperature(scores: Tensor, truth: Tensor) -> float:
    """Return the temperature of least cross-entropy, by golden section of its logarithm.

    The logarithm has a standard normal prior: otherwise a few samples that are all predicted
    correctly would make the learner certain of everything.
    """
    weights = class_weights(truth)

    def loss(logarithm: float) -> float:
        likelihood = _likelihood(scores / math.exp(logarithm), truth, weights)
        return logarithm**2 / (2 * len(truth)) - likelihood

    low, high = math.log(_LOWEST), math.log(_HIGHEST)
    ratio = (5**0.5 - 1) / 2
    for _ in range(40):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if loss(left) <= loss(right):
            high = right
        else:
            low = left
    return math.exp((low + high) / 2)


def _predicted(scores: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Return the probability of the most probable class, and whether it is true: each [n]."""
    confident, columns = scores.softmax(dim=1).max(dim=1)
    return confident, columns == truth


class Novelty:
    """Relative Mahalanobis distance (Ren et al. 2021) of features from the nearest class.

    It is the squared distance from the nearest class mean, under the covariance within classes,
    minus the squared distance from the mean of all samples, under the covariance of all samples.
    Both covariances are shrunk strongly towards a multiple of the identity.
    """

    def __init__(self, stats: ClassStatistics) -> None:
        assert stats.gram is not None
        seen, total = stats.seen, stats.counts.sum()
        sums, means, centre = stats.sums[seen], stats.means[seen], stats.sums[seen].sum(0) / total
        within = (stats.gram - sums.T @ means) / total
        spread = stats.gram / total - torch.outer(centre, centre)
        self._means, self._centre = means, centre
        self._within, self._spread = _inverse(within), _inverse(spread)

    def distances(self, features: Tensor) -> Tensor:
        """Compute the distances [n] of features [n, D]; they may be below 0."""
        apart = features.double() - self._centre
        means = self._means - self._centre
        own = _squared(apart, self._within)
        cross = apart @ self._within @ means.T
        nearest = (own.unsqueeze(1) - 2 * cross + _squared(means, self._within)).min(1).values
        return nearest - _squared(apart, self._spread)


def unknown_test(distances: Tensor, rate: float) -> UnknownTest:
    """Calibrate the threshold on the distances [n] of held-out samples of known classes.

    A new sample of the same kind is above it with a probability of at most `rate` (conformal
    prediction). Raises LearnerError if there are too few samples for the rate.
    """
    count = len(distances)
    rank = math.ceil((count + 1) * (1 - rate) - 1e-9)
    if rank > count:
        raise LearnerError(
            f"a false-alarm rate of {rate:g} needs at least {math.ceil(1 / rate - 1e-9) - 1} "
            f"held-out samples, and the learner has {count}: give unknown={1 / (count + 1):.2g} or "
            f"more, or learn with a larger memory"
        )
    threshold = float(distances.sort().values[max(rank, 1) - 1])
    return UnknownTest(rate, threshold, count)


def auroc(known: Tensor, unknown: Tensor) -> float:
    """Compute the probability that an unknown sample has a larger distance than a known one."""
    known = known.sort().values
    below = torch.searchsorted(known, unknown)
    not_above = torch.searchsorted(known, unknown, right=True)
    return float((below + not_above).double().sum() / (2 * len(known) * len(unknown)))


def _inverse(covariance: Tensor) -> Tensor:
    covariance = (covariance + covariance.T) / 2
    scale = float(covariance.diagonal().mean())
    covariance.diagonal().add_(_SHRINKAGE * scale if scale > 0 else 1.0)
    inverse: Tensor = torch.linalg.inv(covariance)
    return inverse


def _squared(rows: Tensor, precision: Tensor) -> Tensor:
    return ((rows @ precision) * rows).sum(1)


def check_share(name: str, value: object, meaning: str, example: str) -> None:
    """Raise LearnerError unless a value is None or a number between 0 and 1."""
    if value is None or (type(value) in (int, float) and 0 < value < 1):  # type: ignore[operator]
        return
    raise LearnerError(
        f"{name}={value!r:.60}: give the {meaning} as a number between 0 and 1, such as {example}"
    )


def evaluate(
    scores: Tensor,
    names: Sequence[str],
    classes: Sequence[str],
    predicted: Predictions,
    distances: Tensor | None = None,
) -> Evaluation:
    """Compare scores [n, C] over `classes`, and `predicted`, with the true classes `names`.

    `distances` [n] from known classes are given if samples were tested for being unknown.
    """
    column_of = {name: column for column, name in enumerate(classes)}
    columns = torch.tensor([column_of.get(name, -1) for name in names], dtype=torch.int64)
    known = columns >= 0
    scores, truth = scores[known], columns[known]
    accuracy, counts = per_class(scores, truth, classes)
    best = scores.argmax(1)
    right = best == truth
    answered = torch.tensor([name is not None for name in predicted.names], dtype=torch.bool)[known]
    marked = torch.tensor(predicted.unknown, dtype=torch.bool)
    measured: dict[str, float] = {}
    if predicted.abstention is not None:
        measured |= {"coverage": _percent(answered), "accuracy_answered": _percent(right[answered])}
    if predicted.unknown_test is not None:
        measured |= {"false_alarms": _percent(marked[known]), "detected": _percent(marked[~known])}
    if distances is not None and bool(known.any()) and not bool(known.all()):
        measured["auroc"] = auroc(distances[known], distances[~known])
    return Evaluation(
        accuracy=_percent(right),
        per_class=accuracy,
        counts=counts,
        ece=calibration_error(scores, truth),
        confusion=confusion_of(truth.tolist(), best.tolist(), classes),
        unknown_classes=dict(sorted(Counter(n for n in names if n not in column_of).items())),
        abstention=predicted.abstention,
        unknown_test=predicted.unknown_test,
        **measured,
    )


def confusion_of(
    truth: Sequence[int], predicted: Sequence[int], classes: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Count samples by true and predicted class, given as positions in `classes`."""
    found: dict[str, dict[str, int]] = {}
    for (true, own), count in sorted(Counter(zip(truth, predicted, strict=True)).items()):
        found.setdefault(classes[true], {})[classes[own]] = count
    return found


def _percent(chosen: Tensor) -> float:
    """Return the percentage of [n] that is true; NaN if there are none."""
    return 100 * float(chosen.double().mean()) if len(chosen) else math.nan


def per_class(
    scores: Tensor, truth: Tensor, names: Sequence[str]
) -> tuple[dict[str, float], dict[str, int]]:
    """Return the accuracy in percent and the number of samples of each class that has any."""
    right = (scores.argmax(1) == truth).double()
    counts = torch.bincount(truth, minlength=len(names)).tolist()
    sums = torch.bincount(truth, weights=right, minlength=len(names)).tolist()
    there = [column for column, count in enumerate(counts) if count]
    accuracy = {names[column]: 100 * sums[column] / counts[column] for column in there}
    return accuracy, {names[column]: counts[column] for column in there}


def check_chance(name: str, scores: Tensor, truth: Tensor, advice: str) -> None:
    """Raise VisitRejectedError if the accuracy on held-out samples is not above guessing.

    Scores are [n, C]. The mean accuracy over classes must exceed 1 / C by 1.64 standard deviations
    of guessing. Nothing is raised with fewer than 20 samples (those of larger classes count less),
    or if that is more than half of the way to 100 %.
    """
    classes, guess, weights = scores.shape[1], 1 / scores.shape[1], class_weights(truth)
    accuracy = float((weights * (scores.argmax(1) == truth)).sum())
    noise = _Z * math.sqrt(guess * (1 - guess) * float(weights.square().sum()))
    few = classes < 2 or _effective(truth) < _LEAST
    if few or noise > (1 - guess) / 2 or accuracy > guess + noise:
        return
    raise VisitRejectedError(
        f"{name} was not committed: {100 * accuracy:.1f} % of {len(truth)} held-out samples are "
        f"right, and guessing among {classes} classes gives {100 * guess:.1f} ±{100 * noise:.1f} "
        f"%. The learner is as it was. {advice}"
    )


def check_drop(
    name: str,
    before: tuple[Tensor, Tensor],
    after: tuple[Tensor, Tensor],
    old: Sequence[int],
    max_drop: float,
    advice: str,
) -> None:
    """Raise VisitRejectedError if a visit costs earlier classes more than `max_drop` points.

    `before` and `after` are scores [n, C] and true columns [n] of held-out samples, by the learner
    without and with the visit. `old` are the columns of `after` that `before` has, in their order,
    and the samples of `before` are the first of `after` among those of old classes.

    The cost is the sum of two numbers, averaged over earlier classes. First, the points lost on
    their samples among earlier classes alone. Second, the share of their samples that are predicted
    as a new class, minus the share of new samples that are predicted as an earlier one: mutual
    confusion costs nothing. The cost must exceed `max_drop` by 1.64 standard deviations. Nothing is
    raised with fewer than 20 samples of earlier classes.
    """
    columns, (scores, truth) = torch.tensor(list(old)), after
    if _effective(before[1]) < _LEAST:
        return
    is_old = torch.isin(truth, columns)
    position = torch.full((scores.shape[1],), -1)
    position[columns] = torch.arange(len(columns))
    own, labels = scores[is_old], position[truth[is_old]]
    was_right = before[0].argmax(1) == before[1]
    is_right = own[:, columns].argmax(1) == labels
    taken = ~torch.isin(own.argmax(1), columns)
    weights = class_weights(labels)
    cost = weights * (was_right.double() - is_right.double() + taken.double())
    lost, variance = float(cost.sum()), float(cost.square().sum())
    new, new_truth = scores[~is_old], truth[~is_old]
    if len(new):
        back = class_weights(new_truth) * torch.isin(new.argmax(1), columns)
        lost -= min(float(back.sum()), float((weights * taken).sum()))
        variance += float(back.square().sum())
    drop, noise = 100 * lost, 100 * _Z * math.sqrt(variance)
    if drop - noise > max_drop:
        raise VisitRejectedError(
            f"{name} was not committed: it costs earlier classes {drop:.0f} ±{noise:.0f} points on "
            f"{len(labels)} held-out samples, and at most {max_drop:g} are allowed. The learner is "
            f"as it was. {advice}"
        )


def _effective(truth: Tensor) -> float:
    """Return the number of samples, where those of larger classes count less."""
    return 1 / float(class_weights(truth).square().sum()) if len(truth) else 0.0
