"""The masked cross-entropy from the active columns alone, where samples share one active set."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from remask.losses.arguments import INF, cannot_be_read, is_true, refuse_label


def shared_ids(active: Tensor) -> Tensor | None:
    """Return the ascending ids of one active set for all samples, or None if there is none."""
    if active.dtype != torch.bool:
        return active
    if active.numel() != active.shape[-1] or torch.compiler.is_compiling():
        return None
    try:
        ids = active.flatten().nonzero().squeeze(1)
    except RuntimeError as error:
        if not cannot_be_read(error):
            raise
        return None
    if len(ids) == 0:
        raise ValueError("active is empty; every sample needs at least one class")
    return ids


def cross_entropy_of_columns(
    logits: Tensor,
    ids: Tensor,
    labels: Tensor,
    num_classes: int,
    m: float | Tensor,
    repeats: bool,
    check: bool,
    *,
    reduction: str,
    ignore_index: int,
) -> Tensor:
    """Return the masked cross-entropy from the columns ``ids`` [A] of the logits, [..., A].

    The masked classes enter as one more column, ``log(K - A) + m``. If ``ids`` may contain
    `repeats`, these stay as columns of -inf: compiled code cannot drop them.
    """
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()  # m + log(K - A) has no accurate half-precision value
    last = ids.shape[0]
    position = torch.searchsorted(ids, labels).clamp(max=last - 1)
    inside = ids[position] == labels
    kept = labels != ignore_index
    if check and is_true((kept & ~inside).any()):
        refuse_label(labels[kept & ~inside], ids, num_classes)
    per_class = isinstance(m, Tensor) and m.ndim > 0 and m.shape[-1] != 1
    if not repeats and not isinstance(m, Tensor):
        masked = num_classes - last
        logits = F.pad(logits, (0, 1), value=m + math.log(masked) if masked else -INF)
    else:
        repeated = F.pad(ids[1:] == ids[:-1], (1, 0))
        m = torch.as_tensor(m).to(logits)
        if per_class:
            among = torch.zeros(num_classes, dtype=torch.bool, device=ids.device)
            rest = torch.where(among.scatter(0, ids, True), -INF, m).logsumexp(-1, keepdim=True)
        else:
            rest = m + (num_classes - (~repeated).sum()).to(logits).log()
        columns = [torch.where(repeated, -INF, logits), rest.expand(*labels.shape, 1)]
        logits = torch.cat(columns, dim=-1)
    # Positions are renumbered, so ignore_index itself may be a valid one: mark with -100 instead.
    position = torch.where(kept, torch.where(inside, position, last), -100)
    loss = F.cross_entropy(logits.reshape(-1, last + 1), position.reshape(-1), reduction=reduction)
    return loss.reshape(labels.shape) if reduction == "none" else loss
