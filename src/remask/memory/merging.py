"""A reservoir that merges the samples that it does not keep.

A sample x without a slot moves the nearest sample c of its class: c <- c + (x - c) / min(n, MOST),
where n counts the samples merged into that slot, including x. A slot thus becomes the mean of its
neighbourhood. A few means represent a class better than single samples; many do not, so merging
starts when the memory holds less than one in SPARSE of the samples so far.

The nearest sample is searched among WINDOW slots, different ones in every step, so the cost of a
step does not depend on the size of the memory.
"""

from typing import NamedTuple

import torch
from torch import Tensor

SPARSE = 16
MOST = 4
WINDOW = 256


class Places(NamedTuple):
    """The memories of S trials with M slots each, concatenated."""

    inputs: Tensor
    """[S * M, *shape], floating point or uint8."""
    labels: Tensor
    """int64 [S * M]."""
    logits: Tensor | None
    """[S * M, K]."""
    counts: Tensor
    """uint8 [S * M]: samples merged into each slot, at most MOST; initially 1."""


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

    `kept` are the numbers, among all S * B, of samples with a slot of their own. The `number` of
    the step selects the window. Does not wait for the host.
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
    """Return the nearest slot [S, C, D] of the same class for inputs [S, B, D], and if any is."""
    squares = torch.linalg.vector_norm(places, dim=2).square().unsqueeze(1)
    distances = torch.baddbmm(squares, inputs, places.transpose(1, 2), alpha=-2)
    others = labels.unsqueeze(2) != classes.unsqueeze(1)
    least, near = distances.masked_fill(others, torch.inf).min(2)
    return near, least.isfinite()


def _last_at_each_place(near: Tensor, loose: Tensor) -> Tensor:
    """Mark the last of the loose samples that go to the same slot: bool [S, B]."""
    same = near.unsqueeze(2) == near.unsqueeze(1)
    later = (same & loose.unsqueeze(1)).triu(1).any(2)
    return loose & ~later


def _move(stored: Tensor, rows: Tensor, towards: Tensor, shares: Tensor) -> None:
    """Move stored rows [n] towards others [n, ...], by a share [n] of the distance."""
    old = stored.index_select(0, rows)
    shares = shares.view(-1, *[1] * (old.ndim - 1))
    change = (towards.float() - old.float()) * shares
    change = change.masked_fill(shares == 0, 0)  # 0 * inf is NaN
    if not stored.is_floating_point():  # uint8 wraps around: adding 255 subtracts 1
        change = change.round().to(torch.int16)
    stored.index_add_(0, rows, change.to(stored.dtype))
