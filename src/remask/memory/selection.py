"""How methods with a memory of their own choose samples: at random, by herding, or by score."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.memory.kept import KeptRows

Floats = NDArray[np.floating[Any]]

_TINY = 1e-12


def choose_rows(randoms: Sequence[np.random.Generator], rows: Tensor, quota: int) -> Tensor:
    """Choose min(quota, N) of N rows per trial, without replacement: [N] -> [S, n]."""
    count = min(quota, len(rows))
    chosen = np.stack([random.choice(len(rows), count, replace=False) for random in randoms])
    return rows[torch.from_numpy(chosen).to(rows.device)]


def herd(features: Tensor, count: int) -> Tensor:
    """Choose min(count, N) samples per trial, in order: [S, N, F] -> int64 [S, n].

    Each one brings the mean of the chosen samples closest to the mean of all (Welling 2009).
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


def challenge(
    memory: KeptRows,
    ratings: Floats,
    trial: int,
    random: np.random.Generator,
    rows: Tensor,
    scores: Floats,
) -> None:
    """Let each row [n] replace one in a trial's full memory, likely one with a higher score.

    Updates `ratings` [M], the scores of the rows in memory. (Aljundi et al. 2019)
    """
    if not (np.isfinite(scores).all() and np.isfinite(ratings).all()):
        return  # the trial has diverged
    ends, replaced = _ends(ratings), {}
    for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
        slot = int(ends.searchsorted(random.random(), side="right"))
        if random.random() < ratings[slot] / max(ratings[slot] + score, _TINY):
            replaced[slot] = row
            ratings[slot] = score
            ends = _ends(ratings)
    memory.replace(trial, replaced)


def _ends(ratings: Floats) -> Floats:
    """Return the cumulative probabilities of random.choice(p=...), without its slow checks."""
    shares = np.maximum(ratings, _TINY)
    ends: Floats = (shares / shares.sum()).cumsum()
    ends /= ends[-1]
    return ends
