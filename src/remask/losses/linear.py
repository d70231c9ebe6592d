"""The masked cross-entropy of a linear head, at the cost of its active classes."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from remask.losses.arguments import (
    INF,
    Active,
    MaskValue,
    as_labels,
    check_layout,
    check_options,
    check_shape,
    classes_last,
    read_active,
    read_mask_value,
)
from remask.losses.columns import cross_entropy_of_columns, shared_ids
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
    check_options(reduction)
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
    shape = torch.Size([*labels.shape, num_classes])
    options: dict[str, Any] = {"reduction": reduction, "ignore_index": ignore_index}
    read = None if active is None else read_active(active, shape, weight.device, check)
    if read is not None and read.dtype == torch.bool and read.numel() != num_classes:
        raise ValueError(
            f"active has shape {list(read.shape)}; a linear head takes one set for all samples, "
            f"class ids or a mask [{num_classes}] (masked_cross_entropy takes one set per sample)"
        )
    ids = None if read is None else shared_ids(read)
    if ids is None:
        if sparse:
            raise ValueError("sparse=True needs an active set whose values can be read; pass ids")
        logits = F.linear(features, weight, bias)
        options |= {"allow_positive": allow_positive, "check": check}
        return masked_cross_entropy(logits, target, active, mask_value, **options)

    m = read_mask_value(mask_value, check, allow_positive, shape)
    rows = _SparseRows.apply if sparse else _rows
    logits = F.linear(features, rows(weight, ids), None if bias is None else rows(bias, ids))
    repeats = read is ids and isinstance(active, Tensor)
    return cross_entropy_of_columns(logits, ids, labels, num_classes, m, repeats, check, **options)


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


def _rows(table: Tensor, ids: Tensor) -> Tensor:
    return table.index_select(0, ids)
