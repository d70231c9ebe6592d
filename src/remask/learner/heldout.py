"""Held-out memory: samples of every class that are never learnt from, to measure on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.memory import JoinedRows, fair_shares

SOURCES, LABELS, KEYS = "held_out/sources", "held_out/labels", "held_out/keys"
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Samples that are never learnt from, by their numbers among all samples that are kept."""

    sources: Tensor
    """int64 [n]."""
    labels: Tensor
    """int64 [n]: the outputs of their classes."""
    keys: Tensor
    """int64 [n]: those with the smallest keys stay when there are too many."""

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor] | None) -> "HeldOut":
        """Those that a saved state has."""
        none = torch.zeros(0, dtype=torch.int64)
        if tensors is None:
            return cls(none, none, none)
        return cls(tensors[SOURCES], tensors[LABELS], tensors[KEYS])

    def tensors(self) -> dict[str, Tensor]:
        """What a state saves."""
        return {SOURCES: self.sources, LABELS: self.labels, KEYS: self.keys}

    def __len__(self) -> int:
        return len(self.labels)

    def inputs(self, rows: JoinedRows) -> Iterator[Tensor]:
        """The samples as they are kept, a few at a time."""
        for sources in torch.split(self.sources, _ROWS_AT_ONCE):
            yield rows.take(sources)

    def and_also(self, sources: Tensor, labels: Tensor, keys: Tensor) -> "HeldOut":
        """These, and others."""
        return HeldOut(
            torch.cat([self.sources, sources]),
            torch.cat([self.labels, labels]),
            torch.cat([self.keys, keys]),
        )

    def of_labels(self, labels: Tensor) -> "HeldOut":
        """Those of some classes."""
        return self._chosen(torch.isin(self.labels, labels))

    def reduced(self, places: int) -> "HeldOut":
        """At most `places`, as many of each class as there can be, those with the smallest keys."""
        quotas = fair_shares(torch.bincount(self.labels).tolist(), places)
        rows = [torch.zeros(0, dtype=torch.int64)]
        for label, quota in enumerate(quotas):
            own = (self.labels == label).nonzero().squeeze(-1)
            rows.append(own[self.keys[own].argsort(stable=True)[:quota]])
        return self._chosen(torch.cat(rows).sort().values)

    def _chosen(self, rows: Tensor) -> "HeldOut":
        return HeldOut(self.sources[rows], self.labels[rows], self.keys[rows])
