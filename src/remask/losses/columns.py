"""The masked cross-entropy from the active columns alone, where samples share one active set."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from remask.losses.arguments import INF, is_true, refuse_label


def shared_ids(active: Tensor) -> Tensor | None:
    """Return the ascending ids of one active set for all samples, or None if there is none."""
    if active.dtype != torch.bool:
        return active
    if active.numel() != active.shape[-1] or torch.compiler.is_compiling():
        return None
    try:
        ids = active.flatten().nonzero().squeeze(1)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # vmap, fake and meta tensors have no values
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
    log_masked: float | Tensor = math.log(num_classes - last) if last < num_classes else -INF
    if repeats:
        repeated = F.pad(ids[1:] == ids[:-1], (1, 0))
        logits = torch.where(repeated, -INF, logits)
        log_masked = (num_classes - (~repeated).sum()).to(logits).log()
    if isinstance(m, Tensor):
        m = m.to(logits)
    if isinstance(m, Tensor) and m.ndim and m.shape[-1] != 1:  # one value per class
        among = torch.zeros(num_classes, dtype=torch.bool, device=ids.device)
        rest = torch.where(among.scatter(0, ids, True), -INF, m).logsumexp(-1, keepdim=True)
    else:
        rest = torch.as_tensor(m + log_masked, dtype=logits.dtype, device=logits.device)
    logits = torch.cat([logits, rest.expand(*labels.shape, 1)], dim=-1)
    # Positions are renumbered, so ignore_index itself may be a valid one: mark with -100 instead.
    position = torch.where(kept, torch.where(inside, position, last), -100)
    loss = F.cross_entropy(logits.reshape(-1, last + 1), position.reshape(-1), reduction=reduction)
    return loss.reshape(labels.shape) if reduction == "none" else loss
