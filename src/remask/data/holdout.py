"""Holding out a share of every class, which a trial never learns from."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.data.classes import SplitError
from remask.randomness import generator


@dataclass(frozen=True, eq=False)
class Subset:
    """A part of a data set, with the same labels but other samples in each trial of a stack."""

    labels: Tensor
    """int64 [N], one per row."""
    places: Tensor | None = None
    """int64 [S, N]: the index of each trial's rows in the whole set; None: the whole set."""


def held_out(labels: Tensor, share: float, seed: int) -> Tensor:
    """Mark the samples to hold out, bool [N]: of every class at least one, and never all."""
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    by_class = torch.split(labels.argsort(stable=True), torch.bincount(labels).tolist())
    for label, rows in enumerate(by_class):
        count = min(max(round(share * len(rows)), 1), len(rows) - 1)
        if count > 0:
            drawn = generator(seed, "validation", label).permutation(len(rows))[:count]
            chosen[rows[drawn]] = True
    return chosen


def hold_out(labels: Tensor, share: float, seeds: Sequence[int]) -> tuple[Subset, Subset | None]:
    """Split labels [N] into the rows to learn and, if `share` is not 0, the rows to hold out.

    The samples are drawn per trial; their number per class is the same. Rows are sorted by class.
    """
    if not share:
        return Subset(labels), None
    order = labels.argsort(stable=True)
    chosen = [held_out(labels, share, seed)[order] for seed in seeds]
    learnt = torch.stack([order[~mask] for mask in chosen])
    apart = torch.stack([order[mask] for mask in chosen])
    return Subset(labels[learnt[0]], learnt), Subset(labels[apart[0]], apart)


def set_apart(subset: Subset, share: float, seeds: Sequence[int]) -> tuple[Subset, Subset | None]:
    """Split a subset again, as `hold_out` splits a whole set."""
    learnt, apart = hold_out(subset.labels, share, seeds)
    if apart is None or subset.places is None or learnt.places is None or apart.places is None:
        return (subset, None) if apart is None else (learnt, apart)
    return (
        Subset(learnt.labels, subset.places.gather(1, learnt.places)),
        Subset(apart.labels, subset.places.gather(1, apart.places)),
    )


def check_share(labels: Tensor, share: float, name: str, class_names: Sequence[str]) -> None:
    """Raise SplitError if a class has one sample only, which cannot be held out."""
    alone = (torch.bincount(labels) == 1).nonzero().flatten().tolist() if share else []
    if alone:
        names = ", ".join(repr(class_names[label]) for label in alone[:5])
        raise SplitError(
            f"cannot hold out {share:g} of every class of {name}: {names}"
            f"{', ...' if len(alone) > 5 else ''} has one training sample. Hold out nothing, "
            f"add samples, or drop the class."
        )
