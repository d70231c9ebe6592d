"""The memory of methods that choose for themselves which samples to keep."""

from collections.abc import Mapping

import torch
from torch import Tensor


class KeptRows:
    """Which samples each trial keeps: rows of what is learnt from, in groups, as tasks or classes.

    All trials keep as many samples of a group; which ones may differ. What decides them is a policy
    of its own: a random choice (`quota`), herding, a challenge by score.
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

        Groups adjoin each other and share all places, or if `apart`, each has so many of its own.
        Without `groups`, all is one group. `names` are those of its two tensors in checkpoints.
        """
        self._apart, self._places, self._names = apart, places, names
        shape = (trials, groups or 1, places) if apart else (trials, places)
        self._stored = torch.zeros(shape, dtype=torch.int64, device=device)
        self._rows = self._stored.flatten(1)  # the same memory
        self._counts = torch.zeros(  # on the host, to count by
            (trials,) if groups is None else (trials, groups), dtype=torch.int64
        )
        self._sizes = self._counts.view(trials, -1)  # the same memory

    @property
    def filled(self) -> int:
        """How many samples each trial keeps."""
        return int(self._sizes[0].sum())

    @property
    def sizes(self) -> list[int]:
        """How many of them each group has."""
        return [int(size) for size in self._sizes[0].tolist()]

    def at(self, slots: Tensor) -> Tensor:
        """The rows in slots of each trial, int64 [S, n] -> [S, n]; of groups that adjoin."""
        return self._rows.gather(1, slots)

    def group(self, number: int) -> Tensor:
        """The rows of a group: int64 [S, n]."""
        start = self._start(number)
        return self._rows[:, start : start + int(self._sizes[0, number])]

    def rows(self) -> Tensor:
        """All rows that are kept, group after group: int64 [S, filled]."""
        return self._rows[:, self._slots()]

    def renumber(self) -> None:
        """Call the rows that are kept 0, 1, 2, ..., group after group."""
        slots = self._slots()
        self._rows[:, slots] = torch.arange(len(slots), device=slots.device)

    def put(self, rows: Tensor, group: int = 0) -> None:
        """Add rows [S, n] behind those of a group; if groups adjoin, of the last that has any."""
        count = rows.shape[1]
        if not self._apart:
            self.grow(group + 1)
        start = self._start(group) + int(self._sizes[0, group])
        self._rows[:, start : start + count] = rows
        self._sizes[:, group] += count

    def grow(self, groups: int) -> None:
        """Count so many groups; those that adjoin need no places of their own."""
        more = groups - self._sizes.shape[1]
        if more > 0:
            self._counts = self._sizes = torch.nn.functional.pad(self._sizes, (0, more))

    def grow_as(self, saved: Mapping[str, Tensor]) -> None:
        """Count as many groups as a saved state does."""
        counts = saved[self._names[1]]
        if counts.ndim == 2:
            self.grow(counts.shape[1])

    def replace(self, trial: int, rows: Mapping[int, int]) -> None:
        """Give slots of one trial to other rows."""
        if rows:
            slots = torch.tensor(list(rows), device=self._rows.device)
            self._rows[trial, slots] = torch.tensor(list(rows.values()), device=self._rows.device)

    def empty(self, group: int) -> None:
        """Keep nothing of a group whose places are its own."""
        self._sizes[:, group] = 0

    def trim(self, quota: int) -> Tensor:
        """Keep the first `quota` rows of every group; returns the slots they had: int64 [n]."""
        left = self._slots(quota)
        if not self._apart:
            self._rows[:, : len(left)] = self._rows[:, left]
        self._sizes.clamp_(max=quota)
        return left

    def state(self) -> dict[str, Tensor]:
        """The tensors to save and restore; they are the live ones, not copies."""
        return dict(zip(self._names, (self._stored, self._counts), strict=True))

    def _slots(self, most: int | None = None) -> Tensor:
        """The slots of the first `most` rows of every group, or of all: int64 [n]."""
        slots = []
        for number, size in enumerate(self._sizes[0].tolist()):
            start = self._start(number)
            slots.append(torch.arange(start, start + (size if most is None else min(size, most))))
        return torch.cat(slots).to(self._rows.device)

    def _start(self, group: int) -> int:
        return group * self._places if self._apart else int(self._sizes[0, :group].sum())
