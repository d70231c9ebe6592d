"""Herding: choose samples whose mean stays near the mean of all (Welling 2009)."""

import torch
from torch import Tensor


def herd(features: Tensor, count: int) -> Tensor:
    """Order the first min(count, N) samples of every trial: [S, N, F] -> int64 [S, n].

    At each step the sample is taken that brings the mean of those taken nearest to the mean of
    all; none is taken twice.
    """
    trials, samples, _ = features.shape
    count = min(count, samples)
    mean = features.mean(1)
    # |mean - (taken + f) / n|^2 = const + (|f|^2 + 2 f (taken - n mean)) / n^2
    lengths = features.square().sum(2)
    taken = torch.zeros_like(mean)
    free = torch.zeros_like(lengths)
    chosen = torch.empty((trials, count), dtype=torch.int64, device=features.device)
    each = torch.arange(trials, device=features.device)
    for number in range(count):
        away = (taken - (number + 1) * mean).unsqueeze(2)
        cost = lengths + 2 * torch.bmm(features, away).squeeze(2) + free
        best = cost.argmin(1)
        chosen[:, number] = best
        free[each, best] = torch.inf
        taken += features[each, best]
    return chosen
