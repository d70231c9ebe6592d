"""Guards: a visit that learns nothing, or costs earlier classes too much, is not committed."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from remask.learner.calibration import class_weights
from remask.learner.errors import VisitRejectedError

MAX_DROP = 25.0
"""Points that a visit may cost earlier classes by default."""
_Z = 1.64  # guesses pass in one of 20 visits
_LEAST = 20  # held-out samples; fewer decide nothing


def check_chance(name: str, scores: Tensor, truth: Tensor, advice: str) -> None:
    """Raise VisitRejectedError if the accuracy on held-out samples is not above guessing.

    `scores` are [n, C] and `truth` [n]. Accuracy is averaged over classes; guessing gives 1 / C. It
    must be higher by 1.64 standard deviations of guessing. Nothing is raised with fewer than 20
    samples (those of larger classes count less), or if that is more than half of the way to 100 %.
    """
    classes = scores.shape[1]
    if classes < 2 or _effective(truth) < _LEAST:
        return
    weights = class_weights(truth)
    accuracy = float((weights * (scores.argmax(1) == truth)).sum())
    guess = 1 / classes
    noise = _Z * math.sqrt(guess * (1 - guess) * float(weights.square().sum()))
    if noise > (1 - guess) / 2 or accuracy > guess + noise:
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
    their samples among earlier classes alone, so that a larger number of classes costs nothing.
    Second, the share of their samples that are predicted as a new class, minus the share of new
    samples that are predicted as an earlier one: mutual confusion costs nothing, but a preference
    for new classes does. The cost must exceed `max_drop` by 1.64 standard deviations. Nothing is
    raised with fewer than 20 samples of earlier classes.
    """
    columns = torch.tensor(list(old))
    scores, truth = after
    is_old = torch.isin(truth, columns)
    if _effective(before[1]) < _LEAST:
        return
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
    if drop - noise <= max_drop:
        return
    raise VisitRejectedError(
        f"{name} was not committed: it costs earlier classes {drop:.0f} ±{noise:.0f} points on "
        f"{len(labels)} held-out samples, and at most {max_drop:g} are allowed. The learner is as "
        f"it was. {advice}"
    )


def _effective(truth: Tensor) -> float:
    """The number of samples, where those of larger classes count less."""
    return 1 / float(class_weights(truth).square().sum()) if len(truth) else 0.0
