"""The order of an epoch, drawn ahead for every trial of a stack."""

from collections.abc import Sequence

import numpy as np
import torch

from remask.randomness import generator


def batch_sizes(num_samples: int, batch: int) -> list[int]:
    """The sizes of an epoch's batches; the last one may be smaller and is kept."""
    full, rest = divmod(num_samples, batch)
    return [batch] * full + [rest] * (rest > 0)


def epoch_batches(
    rows: torch.Tensor, batch: int, seeds: Sequence[int], key: tuple[int, ...]
) -> list[torch.Tensor]:
    """Every batch of an epoch: a list over steps of int64 [S * B], trial by trial.

    Each trial shuffles `rows`, [N] for all or [S, N], in an order named by its seed and `key`.
    """
    count = rows.shape[-1]
    orders = np.stack([generator(seed, "order", *key).permutation(count) for seed in seeds])
    order = torch.from_numpy(orders).to(rows.device)
    shuffled = rows[order] if rows.ndim == 1 else rows.gather(1, order)
    return [chunk.reshape(-1) for chunk in torch.split(shuffled, batch, dim=1)]
