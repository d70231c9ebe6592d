"""Held-out memory: samples of every class that are never learnt from, to measure on."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.learner.manifest import InputFormat
from remask.randomness import generator


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Samples that are never learnt from, as they are kept, with the outputs of their classes."""

    inputs: Tensor
    labels: Tensor

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor] | None, kept: InputFormat) -> "HeldOut":
        """Those that a saved state has."""
        if tensors is None:
            dtype = torch.uint8 if kept.dtype == "uint8" else torch.float32
            return cls(torch.zeros(0, *kept.shape, dtype=dtype), torch.zeros(0, dtype=torch.int64))
        return cls(tensors["held_out/inputs"], tensors["held_out/labels"])

    def tensors(self) -> dict[str, Tensor]:
        """What a state saves."""
        return {"held_out/inputs": self.inputs, "held_out/labels": self.labels}

    def and_also(self, inputs: Tensor, labels: Tensor) -> "HeldOut":
        """These, and others."""
        return HeldOut(torch.cat([self.inputs, inputs]), torch.cat([self.labels, labels]))

    def of_labels(self, labels: Tensor) -> "HeldOut":
        """Those of some classes."""
        rows = torch.isin(self.labels, labels)
        return HeldOut(self.inputs[rows], self.labels[rows])

    def reduced(self, places: int, seed: int, visit: int) -> "HeldOut":
        """At most so many, as many of each class as there can be, chosen at random."""
        counts = torch.bincount(self.labels)
        quotas = fair_shares(counts.tolist(), places)
        rows = []
        for label, quota in enumerate(quotas):
            own = (self.labels == label).nonzero().squeeze(-1)
            order = generator(seed, "kept of held-out memory", visit, label).permutation(len(own))
            rows.append(own[torch.from_numpy(order[:quota]).long()])
        chosen = torch.cat(rows).sort().values if rows else torch.zeros(0, dtype=torch.int64)
        return HeldOut(self.inputs[chosen], self.labels[chosen])


def fair_shares(counts: list[int], places: int) -> list[int]:
    """Divide places among classes that have so many samples each: equally, as far as they have."""
    shares = [0] * len(counts)
    open_classes = [label for label, count in enumerate(counts) if count]
    while places and open_classes:
        each, rest = divmod(places, len(open_classes))
        for number, label in enumerate(open_classes):
            more = min(counts[label] - shares[label], each + (number < rest))
            shares[label] += more
            places -= more
        open_classes = [label for label in open_classes if shares[label] < counts[label]]
    return shares
