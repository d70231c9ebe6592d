"""Losses of stacked trials, for inner loops: one value a trial, nothing checked twice."""

import torch
from torch import Tensor

from remask.losses.arguments import INF


def logit_mse(logits: Tensor, stored: Tensor) -> Tensor:
    """Mean squared difference of logits ``[..., B, K]`` over B and K: one value per trial."""
    if logits.shape != stored.shape or logits.ndim < 2:
        raise ValueError(
            f"logits {list(logits.shape)} and stored {list(stored.shape)} need to be [..., B, K]"
        )
    return (logits - stored).square().mean((-2, -1))


def trial_cross_entropy(
    logits: Tensor, target: Tensor, active: Tensor | None, mask_value: Tensor | None
) -> Tensor:
    """Masked cross-entropy of each stacked trial, meant for inner loops: nothing is checked.

    Args:
        logits: ``[S, B, K]``.
        target: int64 ``[S, B]``.
        active: boolean, broadcastable to ``[S, B, K]``; ``None`` masks nothing.
        mask_value: ``[S, 1, 1]``, or ``[S, 1, K]`` for one per class, in the logits' dtype;
            ``None`` means -inf.

    Returns:
        The mean over B, ``[S]``.

    """
    if active is not None:
        logits = torch.where(active, logits, -INF if mask_value is None else mask_value)
    own = logits.log_softmax(2).gather(2, target.unsqueeze(2))
    # sum and div instead of mean and neg: two operations fewer in forward and backward.
    return own.sum((1, 2)).div(-target.shape[1])
