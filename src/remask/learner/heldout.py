"""Held-out memory: samples of every class that are never learnt from, to measure on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.memory import JoinedRows, fair_shares
from remask.randomness import generator

SOURCES, LABELS = "held_out/sources", "held_out/labels"
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Samples that are never learnt from, by their numbers among all samples that are kept."""

    sources: Tensor
    """int64 [n]."""
    labels: Tensor
    """int64 [n]: the outputs of their classes."""

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor] | None) -> "HeldOut":
        """Those that a saved state has."""
        none = torch.zeros(0, dtype=torch.int64)
        return cls(none, none) if tensors is None else cls(tensors[SOURCES], tensors[LABELS])

    def tensors(self) -> dict[str, Tensor]:
        """What a state saves."""
        return {SOURCES: self.sources, LABELS: self.labels}

    def __len__(self) -> int:
        return len(self.labels)

    def inputs(self, rows: JoinedRows) -> Iterator[Tensor]:
        """The samples as they are kept, a few at a time."""
        for sources in torch.split(self.sources, _ROWS_AT_ONCE):
            yield rows.take(sources)

    def and_also(self, sources: Tensor, labels: Tensor) -> "HeldOut":
        """These, and others."""
        return HeldOut(torch.cat([self.sources, sources]), torch.cat([self.labels, labels]))

    def of_labels(self, labels: Tensor) -> "HeldOut":
        """Those of some classes."""
        rows = torch.isin(self.labels, labels)
        return HeldOut(self.sources[rows], self.labels[rows])

    def reduced(self, places: int, seed: int, visit: int) -> "HeldOut":
        """At most so many, as many of each class as there can be, chosen at random."""
        quotas = fair_shares(torch.bincount(self.labels).tolist(), places)
        rows = [torch.zeros(0, dtype=torch.int64)]
        for label, quota in enumerate(quotas):
            own = (self.labels == label).nonzero().squeeze(-1)
            order = generator(seed, "kept of held-out memory", visit, label).permutation(len(own))
            rows.append(own[torch.from_numpy(order[:quota]).long()])
        chosen = torch.cat(rows).sort().values
        return HeldOut(self.sources[chosen], self.labels[chosen])
