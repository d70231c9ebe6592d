"""A memory that merges what it does not keep.

Its places are given as a reservoir gives them. But a sample x that gets none is not lost: the
nearest sample c of its class moves towards it, c <- c + (x - c) / min(n, MOST), where n counts what
has come to that place, x included. So a place comes to hold the mean of its neighbourhood, and then
of the latest in it. A few means say more about a class than as many single samples. Many say no
more, so nothing is merged while the memory has a place for one in SPARSE samples so far, or more.

The nearest is looked for among WINDOW places, in every step the next ones: what a step costs does
not depend on the size of the memory.
"""

import torch
from torch import Tensor

from remask.memory.contents import Reservoir

SPARSE = 16
MOST = 4
WINDOW = 256


@torch.no_grad()
def merge(
    memory: Reservoir,
    inputs: Tensor,
    labels: Tensor,
    logits: Tensor,
    *,
    kept: Tensor | None,
    number: int,
) -> None:
    """Merge a batch of stored type, [S, B, *shape], with labels [S, B] and logits [S, B, K].

    `kept` are those that have a place of their own, as numbers in the batches of all trials
    [n]. `number` is that of the step, which says where to look. Nothing waits for the host.
    """
    places, counts = memory.inputs, memory.counts
    assert isinstance(places, Tensor)
    assert counts is not None  # it is a memory that merges
    trials, batch = labels.shape
    capacity = len(places) // trials
    first = number * WINDOW % capacity
    last = min(first + WINDOW, capacity)
    near, found = _nearest(
        inputs.flatten(2).float(),
        labels,
        places.view(trials, capacity, -1)[:, first:last].float(),
        memory.classes[:, first:last],
    )
    loose = found.flatten()
    if kept is not None:
        loose = loose.index_fill(0, kept, False)
    loose = _last_at_each_place(near, loose.view(trials, batch))
    offsets = capacity * torch.arange(trials, device=near.device).unsqueeze(1)
    rows = (near + first + offsets).flatten()
    moves = loose.flatten()
    counts.index_add_(0, rows, moves.to(counts.dtype)).clamp_(max=MOST)
    shares = moves / counts.index_select(0, rows)
    _move(places, rows, inputs.flatten(0, 1), shares)
    if memory.logits is not None:
        _move(memory.logits, rows, logits.flatten(0, 1), shares)


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
    change = (towards.float() - old.float()) * shares.view(-1, *[1] * (old.ndim - 1))
    if not stored.is_floating_point():  # a sum of bytes wraps around: to add 255 is to take off 1
        change = change.round().to(torch.int16)
    stored.index_add_(0, rows, change.to(stored.dtype))
