"""Arithmetic that keeps trials apart."""

from torch import Tensor

from remask.nets import inner, trial_sums


def per_trial(values: Tensor, like: Tensor) -> Tensor:
    """One number per trial, [S], in the shape that multiplies a tensor [S, ...]."""
    return values.view(-1, *[1] * (like.ndim - 1))


__all__ = ["inner", "per_trial", "trial_sums"]
