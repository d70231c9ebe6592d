"""Losses of stacked trials, for inner loops: one value per trial, nothing checked twice.

Each is one function for autograd, with its gradient by hand: for a single trial of a small net, the
nodes that autograd would make of it cost more than what they compute.
"""

from typing import Any

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
    if torch.compiler.is_compiling():
        return _mean_square(logits - stored)
    loss: Tensor = _LogitMSE.apply(logits, stored)  # type: ignore[no-untyped-call]
    return loss


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
    if torch.compiler.is_compiling():
        return _mean_of_labels(_log_probabilities(logits, active, mask_value), target)
    loss: Tensor = _CrossEntropy.apply(logits, target, active, mask_value)  # type: ignore[no-untyped-call]
    return loss


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
    slope = _slope(known, target, weight / -target.shape[1], active)
    return weight * _mean_of_labels(known, target), slope


def _mean_square(difference: Tensor) -> Tensor:
    return difference.square().mean((-2, -1))


class _LogitMSE(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, stored: Tensor) -> Tensor:
        ctx.save_for_backward(logits, stored)
        return _mean_square(logits - stored)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (gradient,) = gradients
        logits, stored = ctx.saved_tensors
        share = gradient / (logits.shape[-2] * logits.shape[-1])
        slope = (logits - stored).mul(2).mul(share[..., None, None])
        return slope, -slope if ctx.needs_input_grad[1] else None


def _log_probabilities(logits: Tensor, active: Tensor | None, mask_value: Tensor | None) -> Tensor:
    if active is not None:
        logits = torch.where(active, logits, -INF if mask_value is None else mask_value)
    return logits.log_softmax(2)


def _mean_of_labels(log_probabilities: Tensor, target: Tensor) -> Tensor:
    own = log_probabilities.gather(2, target.unsqueeze(2))
    return own.sum((1, 2)).div(-target.shape[1])


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, active: Tensor | None, mask_value: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(logits, target, active, mask_value)
        ctx.log_probabilities = _log_probabilities(logits, active, mask_value)
        return _mean_of_labels(ctx.log_probabilities, target)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = gradients
        logits, target, active, mask_value = ctx.saved_tensors
        known = ctx.log_probabilities
        if torch.is_grad_enabled():  # for a gradient of this gradient, it must depend on the logits
            known = _log_probabilities(logits, active, mask_value)
        return _slope(known, target, gradient / -target.shape[1], active), None, None, None


def _slope(known: Tensor, target: Tensor, share: Weight, active: Tensor | None) -> Tensor:
    """The gradient, in the logits, of the sum over B of share * log probability of the label."""
    places, of_labels = target.unsqueeze(2), torch.zeros_like(known)
    if isinstance(share, Tensor):
        of_labels.scatter_(2, places, share.view(-1, 1, 1).expand_as(places))
    else:
        of_labels.scatter_(2, places, share)
    slope = torch._log_softmax_backward_data(of_labels, known, 2, known.dtype)
    return slope if active is None else slope * active  # a third of the time that `where` takes
