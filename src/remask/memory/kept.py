"""The memory of methods that choose which samples to keep: at random, by herding, or by score."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.floating[Any]]

_TINY = 1e-12


class KeptRows:
    """Row numbers of the samples that each trial keeps, in groups such as tasks or classes.

    All trials keep the same number of samples of a group, but not the same samples. Groups lie one
    after the other.
    """

    def __init__(
        self, *, trials: int, places: int, groups: int = 1, device: torch.device | str = "cpu"
    ) -> None:
        """Make an empty memory."""
        self._rows = torch.zeros((trials, places), dtype=torch.int64, device=device)
        self._sizes = torch.zeros((trials, groups), dtype=torch.int64)  # on the host

    @property
    def sizes(self) -> list[int]:
        """Samples per group."""
        return [*map(int, self._sizes[0])]

    @property
    def filled(self) -> int:
        """Samples per trial."""
        return sum(self.sizes)

    def at(self, slots: Tensor) -> Tensor:
        """Return the rows in slots of each trial, int64 [S, n] -> [S, n]."""
        return self._rows.gather(1, slots)

    def group(self, number: int) -> Tensor:
        """Return the rows of a group: int64 [S, n]."""
        end = sum(self.sizes[: number + 1])
        return self._rows[:, end - self.sizes[number] : end]

    def rows(self) -> Tensor:
        """Return all rows, by group: int64 [S, filled]."""
        return self._rows[:, : self.filled]

    def renumber(self) -> None:
        """Renumber the rows 0, 1, 2, ..., by group."""
        self.rows().copy_(torch.arange(self.filled))

    def put(self, rows: Tensor, group: int = 0) -> None:
        """Append rows [S, n] to a group."""
        self.grow(group + 1)
        end, filled = sum(self.sizes[: group + 1]), self.filled
        moved = torch.cat([rows, self._rows[:, end:filled]], dim=1)
        self._rows[:, end : end + moved.shape[1]] = moved
        self._sizes[:, group] += rows.shape[1]

    def grow(self, groups: int) -> None:
        """Grow to `groups` groups."""
        more = groups - self._sizes.shape[1]
        if more > 0:
            self._sizes = torch.nn.functional.pad(self._sizes, (0, more))

    def replace(self, trial: int, rows: Mapping[int, int]) -> None:
        """Replace rows of one trial: slot -> row."""
        if rows:
            slots = torch.tensor(list(rows), device=self._rows.device)
            self._rows[trial, slots] = torch.tensor(list(rows.values()), device=self._rows.device)

    def trim(self, quota: int, *, without: Collection[int] = ()) -> Tensor:
        """Keep the first `quota` rows of every group, and none of the groups `without`.

        Returns the previous slots of the rows that are left: int64 [n].
        """
        limits = [0 if group in without else quota for group in range(len(self.sizes))]
        slots = torch.split(torch.arange(self.filled, device=self._rows.device), self.sizes)
        left = torch.cat([own[:most] for own, most in zip(slots, limits, strict=True)])
        self._rows[:, : len(left)] = self._rows[:, left]
        self._sizes.clamp_(max=torch.tensor(limits))
        return left

    def state(self) -> dict[str, Tensor]:
        """Return the tensors to save and restore, not copies of them."""
        return {"rows": self._rows, "sizes": self._sizes}


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
