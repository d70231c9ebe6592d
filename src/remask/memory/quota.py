"""A quota: a random sample of every task, as large as every other's."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def choose_rows(randoms: Sequence[np.random.Generator], rows: Tensor, quota: int) -> Tensor:
    """Choose min(quota, N) of N rows, without replacement, for every trial: [N] -> [S, n]."""
    count = min(quota, len(rows))
    chosen = np.stack([random.choice(len(rows), count, replace=False) for random in randoms])
    return rows[torch.from_numpy(chosen).to(rows.device)]
