"""A memory that merges what it does not keep.

Its places are given as a reservoir gives them. But a sample x that gets none is not lost: the
nearest sample c of its class moves towards it, c <- c + (x - c) / min(n, MOST), where n counts what
has come to that place, x included. So a place comes to hold the mean of its neighbourhood, and then
of the latest in it. A few means say more about a class than as many single samples. Many say no
more, so nothing is merged while the memory has a place for one in SPARSE samples so far, or more.

The nearest is looked for among WINDOW places, in every step the next ones: what a step costs does
not depend on the size of the memory.
"""

from typing import NamedTuple

import torch
from torch import Tensor

SPARSE = 16
MOST = 4
WINDOW = 256


class Places(NamedTuple):
    """What the memories of S trials hold, M places each, one trial after the other."""

    inputs: Tensor
    """[S * M, *shape], numbers with a fraction or bytes."""
    labels: Tensor
    """int64 [S * M]."""
    logits: Tensor | None
    """[S * M, K]."""
    counts: Tensor
    """uint8 [S * M]: how many samples have come to each place, as far as is counted; at first 1."""


@torch.no_grad()
def merge(
    places: Places,
    inputs: Tensor,
    labels: Tensor,
    logits: Tensor | None,
    *,
    kept: Tensor | None,
    number: int,
) -> None:
    """Merge batches [S, B, *shape] with labels [S, B] and logits [S, B, K] into full memories.

    `kept` are the samples that have a place of their own, by their numbers among all S * B. The
    `number` of the step says where to look. Nothing waits for the host.
    """
    trials, batch = labels.shape
    capacity = len(places.labels) // trials
    first = number * WINDOW % capacity
    last = min(first + WINDOW, capacity)
    near, found = _nearest(
        inputs.flatten(2).float(),
        labels,
        places.inputs.view(trials, capacity, -1)[:, first:last].float(),
        places.labels.view(trials, capacity)[:, first:last],
    )
    loose = found.flatten()
    if kept is not None:
        loose = loose.index_fill(0, kept, False)
    moves = _last_at_each_place(near, loose.view(trials, batch)).flatten()
    offsets = capacity * torch.arange(trials, device=near.device).unsqueeze(1)
    rows = (near + first + offsets).flatten()
    counts = places.counts.index_add_(0, rows, moves.to(torch.uint8)).clamp_(max=MOST)
    shares = moves / counts.index_select(0, rows)
    _move(places.inputs, rows, inputs.flatten(0, 1), shares)
    if places.logits is not None and logits is not None:
        _move(places.logits, rows, logits.flatten(0, 1), shares)


def _nearest(
    inputs: Tensor, labels: Tensor, places: Tensor, classes: Tensor
) -> tuple[Tensor, Tensor]:
    """Of each input [S, B, D] the nearest of the places [S, C, D] of its class, and if any is."""
    squares = torch.linalg.vector_norm(places, dim=2).square().unsqueeze(1)
    distances = torch.baddbmm(squares, inputs, places.transpose(1, 2), alpha=-2)
    others = labels.unsqueeze(2) != classes.unsqueeze(1)
    least, near = distances.masked_fill(others, torch.inf).min(2)
    return near, least.isfinite()


def _last_at_each_place(near: Tensor, loose: Tensor) -> Tensor:
    """Of the loose samples that go to one place, only the last: bool [S, B]."""
    same = near.unsqueeze(2) == near.unsqueeze(1)
    later = (same & loose.unsqueeze(1)).triu(1).any(2)
    return loose & ~later


def _move(stored: Tensor, rows: Tensor, towards: Tensor, shares: Tensor) -> None:
    """Move rows [n] of what is stored towards others [n, ...], by shares [n] of the way."""
    old = stored.index_select(0, rows)
    shares = shares.view(-1, *[1] * (old.ndim - 1))
    change = (towards.float() - old.float()) * shares
    change = change.masked_fill(shares == 0, 0)  # of what is not finite, nothing would be NaN
    if not stored.is_floating_point():  # a sum of bytes wraps around: to add 255 is to take off 1
        change = change.round().to(torch.int16)
    stored.index_add_(0, rows, change.to(stored.dtype))
