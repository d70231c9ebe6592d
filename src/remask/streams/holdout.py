"""Holding out: a share of every class's training data that a trial never learns from."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.classes import SplitError
from remask.randomness import generator


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a data set, whose rows have the same labels in all trials of a stack.

    Which sample stands in a row may differ from trial to trial. So what counts and lists rows is
    shared, and only what fetches inputs needs `places`.
    """

    labels: Tensor
    """int64 [N], row by row."""
    places: Tensor | None = None
    """int64 [S, N]: where in the whole set each trial's rows stand; None: it is the whole set."""


def hold_out(labels: Tensor, share: float, seeds: Sequence[int]) -> tuple[Part, Part | None]:
    """Divide labels [N] into what trials learn from and what they are validated on, if anything.

    Each trial draws its own samples, named by its seed and the class; all hold out as many of a
    class. Both parts come class by class.
    """
    if not share:
        return Part(labels), None
    by_class = torch.split(labels.argsort(stable=True), torch.bincount(labels).tolist())
    learnt, held_out = [], []
    for seed in seeds:
        chosen = [_chosen(len(rows), share, seed, label) for label, rows in enumerate(by_class)]
        held_out.append(torch.cat([rows[c] for rows, c in zip(by_class, chosen, strict=True)]))
        learnt.append(torch.cat([rows[~c] for rows, c in zip(by_class, chosen, strict=True)]))
    return _part(labels, learnt), _part(labels, held_out)


def set_apart(part: Part, share: float, seeds: Sequence[int]) -> tuple[Part, Part | None]:
    """Divide a part again, as `hold_out` divides a whole: what is learnt, and what is set apart."""
    learnt, apart = hold_out(part.labels, share, seeds)
    if apart is None:
        return part, None
    return _of(part, learnt), _of(part, apart)


def check_share(labels: Tensor, share: float, name: str, class_names: Sequence[str]) -> None:
    """Refuse to hold out of a class that has one sample only; raises SplitError."""
    alone = (torch.bincount(labels) == 1).nonzero().flatten().tolist() if share else []
    if alone:
        names = ", ".join(repr(class_names[label]) for label in alone[:5])
        raise SplitError(
            f"validation = {share:g} cannot hold out a sample of every class of {name}: "
            f"{names}{', ...' if len(alone) > 5 else ''} has one training sample, which is needed "
            f"to learn from. Leave validation out, keep more samples per class, or drop the class."
        )


def _chosen(size: int, share: float, seed: int, label: int) -> Tensor:
    """Which of a class's samples are held out, bool [size]: at least one, and never all."""
    chosen = torch.zeros(size, dtype=torch.bool)
    if size:
        count = min(max(round(share * size), 1), size - 1)
        chosen[generator(seed, "validation", label).permutation(size)[:count]] = True
    return chosen


def _of(whole: Part, part: Part) -> Part:
    """A part of a part, as a part of the whole set."""
    if whole.places is None or part.places is None:
        return part
    return Part(part.labels, whole.places.gather(1, part.places))


def _part(labels: Tensor, places: Sequence[Tensor]) -> Part:
    return Part(labels[places[0]], torch.stack(list(places)))
