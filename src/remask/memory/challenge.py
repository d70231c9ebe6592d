"""Challenge: arriving samples compete with those in memory, by scores (Aljundi et al. 2019)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from remask.memory.kept import KeptRows

Floats = NDArray[np.floating[Any]]

_TINY = 1e-12


def challenge(
    memory: KeptRows,
    ratings: Floats,
    trial: int,
    random: np.random.Generator,
    rows: Tensor,
    scores: Floats,
) -> None:
    """Let each row [n] of a trial challenge one in its full memory; the lower score likely stays.

    `ratings` [M], the scores of the rows in memory, are changed with it.
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
    """As random.choice(len(ratings), p=...) has them, without its checks, which take longer."""
    shares = np.maximum(ratings, _TINY)
    ends: Floats = (shares / shares.sum()).cumsum()
    ends /= ends[-1]
    return ends
