"""Losses of stacked trials, for inner loops: one value per trial, nothing checked.

Each exists for autograd, and with its gradient in the logits for steps without autograd.
"""

import torch
from torch import Tensor

from remask.losses.arguments import INF

Weight = Tensor | float
"""A factor of a loss: one for all trials, or ``[S]``."""


def logit_mse(logits: Tensor, stored: Tensor) -> Tensor:
    """Mean squared difference of logits ``[..., B, K]`` over B and K: one value per trial."""
    if logits.shape != stored.shape or logits.ndim < 2:
        raise ValueError(
            f"logits {list(logits.shape)} and stored {list(stored.shape)} need to be [..., B, K]"
        )
    return _mean_square(logits - stored)


def trial_cross_entropy(
    logits: Tensor, target: Tensor, active: Tensor | None, mask_value: Tensor | None
) -> Tensor:
    """Masked cross-entropy of each stacked trial, meant for inner loops: nothing is checked.

    Args:
        logits: ``[S, B, K]``.
        target: int64 ``[S, B]``.
        active: boolean, broadcastable to ``[S, B, K]``; ``None`` masks nothing.
        mask_value: ``[S, 1, 1]``, or ``[S, 1, K]`` for one per class, in the logits' dtype;
            ``None`` means -inf. A constant: no gradient reaches it.

    Returns:
        The mean over B, ``[S]``.

    """
    return _mean_of_labels(_log_probabilities(logits, active, mask_value), target)


def mse_and_slope(logits: Tensor, stored: Tensor, weight: Weight) -> tuple[Tensor, Tensor]:
    """``weight * logit_mse(logits, stored)``, and its gradient in the logits, without autograd."""
    difference = logits - stored
    share = weight / (logits.shape[-2] * logits.shape[-1])
    slope = difference * (2 * share if isinstance(share, float) else (2 * share).view(-1, 1, 1))
    return weight * _mean_square(difference), slope


def cross_entropy_and_slope(
    logits: Tensor,
    target: Tensor,
    active: Tensor | None,
    mask_value: Tensor | None,
    weight: Weight,
) -> tuple[Tensor, Tensor]:
    """``weight * trial_cross_entropy(...)``, and its gradient in the logits, without autograd."""
    known = _log_probabilities(logits, active, mask_value)
    share, places = weight / -target.shape[1], target.unsqueeze(2)
    of_labels = torch.zeros_like(known)
    if isinstance(share, Tensor):
        of_labels.scatter_(2, places, share.view(-1, 1, 1).expand_as(places))
    else:
        of_labels.scatter_(2, places, share)
    slope = torch._log_softmax_backward_data(of_labels, known, 2, known.dtype)
    if active is not None:
        slope = slope * active  # a third of the time that `where` takes
    return weight * _mean_of_labels(known, target), slope


def _mean_square(difference: Tensor) -> Tensor:
    return difference.square().mean((-2, -1))


def _log_probabilities(logits: Tensor, active: Tensor | None, mask_value: Tensor | None) -> Tensor:
    if active is not None:
        logits = torch.where(active, logits, -INF if mask_value is None else mask_value)
    return logits.log_softmax(2)


def _mean_of_labels(log_probabilities: Tensor, target: Tensor) -> Tensor:
    own = log_probabilities.gather(2, target.unsqueeze(2))
    return own.sum((1, 2)).div(-target.shape[1])
