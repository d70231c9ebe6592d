"""The memory of methods that choose which samples to keep."""

from collections.abc import Mapping

import torch
from torch import Tensor


class KeptRows:
    """Row numbers of the samples that each trial keeps, in groups such as tasks or classes.

    All trials keep the same number of samples of a group, but not the same samples.
    """

    def __init__(
        self,
        *,
        trials: int,
        places: int,
        groups: int | None = None,
        apart: bool = False,
        device: torch.device | str = "cpu",
        names: tuple[str, str] = ("rows", "sizes"),
    ) -> None:
        """Make an empty memory.

        Groups share all places, one after the other, or each has its own `places` if `apart`.
        Without `groups`, there is one. `names` are the names of the tensors in checkpoints.
        """
        self._apart, self._places, self._names = apart, places, names
        shape = (trials, groups or 1, places) if apart else (trials, places)
        self._stored = torch.zeros(shape, dtype=torch.int64, device=device)
        self._rows = self._stored.flatten(1)  # the same memory
        self._counts = torch.zeros(  # on the host
            (trials,) if groups is None else (trials, groups), dtype=torch.int64
        )
        self._sizes = self._counts.view(trials, -1)  # the same memory

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
            self._counts = self._sizes = torch.nn.functional.pad(self._sizes, (0, more))

    def grow_as(self, saved: Mapping[str, Tensor]) -> None:
        """Grow to the number of groups of a saved state."""
        counts = saved[self._names[1]]
        if counts.ndim == 2:
            self.grow(counts.shape[1])

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
        return dict(zip(self._names, (self._stored, self._counts), strict=True))

    def _slots(self, most: int | None = None) -> Tensor:
        """Return the slots of the first `most` rows of every group: int64 [n]."""
        slots = []
        for number, size in enumerate(self._sizes[0].tolist()):
            start = self._start(number)
            slots.append(torch.arange(start, start + (size if most is None else min(size, most))))
        return torch.cat(slots).to(self._rows.device)

    def _start(self, group: int) -> int:
        return group * self._places if self._apart else int(self._sizes[0, :group].sum())
