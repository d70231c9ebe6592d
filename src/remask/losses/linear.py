"""The masked cross-entropy of a linear head, at the cost of its active classes."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from remask.losses.arguments import (
    INF,
    Active,
    MaskValue,
    as_labels,
    cannot_be_read,
    check_layout,
    check_options,
    check_shape,
    classes_last,
    is_true,
    mask_constant,
    read_active,
    refuse_label,
)
from remask.losses.masked import masked_cross_entropy


def masked_linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    active: Active,
    mask_value: MaskValue = -INF,
    *,
    dim: int | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    sparse: bool = False,
    allow_positive: bool = False,
    check: bool = True,
) -> Tensor:
    """`masked_cross_entropy` of a linear head, computing the active columns only.

    Same value and gradients as ``masked_cross_entropy(F.linear(features, weight, bias), ...)``,
    but the masked classes enter as the one term ``(K - |A|) exp(m)``, so that with class ids the
    forward does not grow with K. (Where ``mask_value`` has a value per class the term is their
    sum, which does.) A boolean mask ``[K]`` is first turned into ids; where its values cannot be
    read (``torch.compile``, a mask batched by ``torch.vmap``) the full head is computed.

    Args:
        features: ``[..., D]``.
        weight: ``[K, D]``.
        bias: ``[K]`` or ``None``.
        target: integer class ids ``[...]``.
        active: one set for all samples: class ids or a boolean mask ``[K]``. ``None`` masks nothing
            and computes the full head.
        mask_value: as in `masked_cross_entropy`.
        dim: the axis of the features: ``None`` is the last one, 1 is that of ``[B, D, d1, ...]``.
        reduction: as in torch.
        ignore_index: as in torch.
        sparse: give ``weight`` and ``bias`` sparse gradients, as ``nn.Embedding`` does, so that the
            backward does not grow with K either. For eager first-order training with an optimiser
            that takes sparse gradients, such as ``torch.optim.SGD``.
        allow_positive: as in `masked_cross_entropy`.
        check: as in `masked_cross_entropy`. Unchecked, the loss of a target outside the
            active set is meaningless (infinite at m = -inf).

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``. Half-precision logits give a float32 loss,
        because m + log(K - |A|) has no accurate half-precision value.

    """
    check_options(reduction, 0.0)
    check_layout(features, target, dim)
    axis = -1 if dim is None else dim
    features, active, mask_value = classes_last(features, active, mask_value, axis)
    if weight.ndim != 2 or features.shape[-1:] != weight.shape[1:]:
        raise ValueError(
            f"features {list(features.shape)} and weight {list(weight.shape)} do not fit; "
            "they need to be [..., D] and [K, D]"
        )
    num_classes = weight.shape[0]
    if bias is not None:
        check_shape("bias", bias, num_classes)
    labels = as_labels(target, features.shape)
    shape = [*labels.shape, num_classes]
    ids = _shared_ids(active, shape, weight.device, check)
    if ids is None:
        if sparse:
            raise ValueError("sparse=True needs an active set whose values can be read; pass ids")
        logits = F.linear(features, weight, bias)
        options: dict[str, Any] = {"reduction": reduction, "ignore_index": ignore_index}
        options |= {"allow_positive": allow_positive, "check": check}
        return masked_cross_entropy(logits, target, active, mask_value, **options)

    m = mask_constant(mask_value, shape, check, allow_positive)
    rows = _sparse_rows if sparse else _dense_rows
    logits = F.linear(features, rows(weight, ids), None if bias is None else rows(bias, ids))
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    # Ids from a tensor may repeat (a batch's labels, say). Dropping repeats makes a shape depend on
    # values, which compiled code cannot have, so a repeat stays as a column of -inf.
    repeated = F.pad(ids[1:] == ids[:-1], (1, 0))
    if isinstance(m, Tensor) and m.ndim > 0 and m.shape[-1] != 1:
        among = torch.zeros(num_classes, dtype=torch.bool, device=ids.device).scatter(0, ids, True)
        rest = torch.where(among, -INF, m.to(logits)).logsumexp(-1, keepdim=True)
    else:
        num_masked = num_classes - (~repeated).sum()
        rest = num_masked.to(logits.dtype).log() + (m.to(logits) if isinstance(m, Tensor) else m)
    columns = [torch.where(repeated, -INF, logits), rest.expand(*labels.shape, 1)]

    position = torch.searchsorted(ids, labels).clamp(max=ids.shape[0] - 1)
    found = ids[position] == labels
    ignored = labels == ignore_index
    if check and is_true((~found & ~ignored).any()):
        refuse_label(labels[~found & ~ignored], ids)
    # Positions are renumbered, so ignore_index itself may be a valid one: mark with -100 instead.
    position = torch.where(ignored, -100, torch.where(found, position, ids.shape[0]))
    flat = torch.cat(columns, dim=-1).reshape(labels.numel(), ids.shape[0] + 1)
    loss = F.cross_entropy(flat, position.reshape(-1), reduction=reduction)
    return loss.reshape(labels.shape) if reduction == "none" else loss


def _shared_ids(
    active: Active, shape: Sequence[int], device: torch.device, check: bool
) -> Tensor | None:
    """Return the ascending ids of one shared active set, or None where they cannot be had."""
    if active is None:
        return None
    read = read_active(active, shape, device, check)
    if read.dtype != torch.bool:
        return read
    if read.ndim != 1:
        raise ValueError(
            f"active has shape {list(read.shape)}; a linear head takes one set for all samples, "
            f"class ids or a mask [{shape[-1]}] (masked_cross_entropy takes one set per sample)"
        )
    if torch.compiler.is_compiling():
        return None
    try:
        ids = read.nonzero().squeeze(1)
    except RuntimeError as error:
        if not cannot_be_read(error):
            raise
        return None
    if len(ids) == 0:
        raise ValueError("active is empty; every sample needs at least one class")
    return ids


class _SparseRows(torch.autograd.Function):
    """Rows of a table whose gradient is sparse; F.embedding does this for 2-D tables only."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table.index_select(0, ids)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        # index_select has already read these ids, so checking them again is wasted time.
        table_grad = torch.sparse_coo_tensor(
            ids.unsqueeze(0), grad, ctx.shape, check_invariants=False
        )
        return table_grad, None


def _sparse_rows(table: Tensor, ids: Tensor) -> Tensor:
    rows: Tensor = _SparseRows.apply(table, ids)  # type: ignore[no-untyped-call]
    return rows


def _dense_rows(table: Tensor, ids: Tensor) -> Tensor:
    return table.index_select(0, ids)
