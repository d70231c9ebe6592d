"""The memory of methods that choose which samples to keep: at random, by herding, or by score."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.floating[Any]]

_TINY = 1e-12


class KeptRows:
    """Row numbers of the samples that each trial keeps, in groups such as tasks or classes.

    All trials keep the same number of samples of a group, but not the same samples.
    """

    def __init__(
        self,
        *,
        trials: int,
        places: int,
        groups: int = 1,
        apart: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        """Make an empty memory.

        Groups share all places, one after the other, or each has its own `places` if `apart`.
        """
        self._apart, self._places = apart, places
        shape = (trials, groups, places) if apart else (trials, places)
        self._stored = torch.zeros(shape, dtype=torch.int64, device=device)
        self._rows = self._stored.flatten(1)  # the same memory
        self._sizes = torch.zeros((trials, groups), dtype=torch.int64)  # on the host

    @property
    def filled(self) -> int:
        """Samples per trial."""
        return int(self._sizes[0].sum())

    @property
    def sizes(self) -> list[int]:
        """Samples per group."""
        return [int(size) for size in self._sizes[0].tolist()]

    def at(self, slots: Tensor) -> Tensor:
        """Return the rows in slots of each trial, int64 [S, n] -> [S, n]; not if `apart`."""
        return self._rows.gather(1, slots)

    def group(self, number: int) -> Tensor:
        """Return the rows of a group: int64 [S, n]."""
        start = self._start(number)
        return self._rows[:, start : start + int(self._sizes[0, number])]

    def rows(self) -> Tensor:
        """Return all rows, by group: int64 [S, filled]."""
        return self._rows[:, self._slots()]

    def renumber(self) -> None:
        """Renumber the rows 0, 1, 2, ..., by group."""
        slots = self._slots()
        self._rows[:, slots] = torch.arange(len(slots), device=slots.device)

    def put(self, rows: Tensor, group: int = 0) -> None:
        """Append rows [S, n] to a group; unless `apart`, to the last one that has any."""
        count = rows.shape[1]
        if not self._apart:
            self.grow(group + 1)
        start = self._start(group) + int(self._sizes[0, group])
        self._rows[:, start : start + count] = rows
        self._sizes[:, group] += count

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

    def empty(self, group: int) -> None:
        """Empty a group; only if `apart`."""
        self._sizes[:, group] = 0

    def trim(self, quota: int) -> Tensor:
        """Keep the first `quota` rows of every group; return their previous slots: int64 [n]."""
        left = self._slots(quota)
        if not self._apart:
            self._rows[:, : len(left)] = self._rows[:, left]
        self._sizes.clamp_(max=quota)
        return left

    def state(self) -> dict[str, Tensor]:
        """Return the tensors to save and restore, not copies of them."""
        return {"rows": self._stored, "sizes": self._sizes}

    def _slots(self, most: int | None = None) -> Tensor:
        """Return the slots of the first `most` rows of every group: int64 [n]."""
        slots = []
        for number, size in enumerate(self._sizes[0].tolist()):
            start = self._start(number)
            slots.append(torch.arange(start, start + (size if most is None else min(size, most))))
        return torch.cat(slots).to(self._rows.device)

    def _start(self, group: int) -> int:
        return group * self._places if self._apart else int(self._sizes[0, :group].sum())


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
