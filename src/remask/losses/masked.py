"""The general masked softmax, and its cross-entropy as a function and as a module."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remask.losses.arguments import (
    INF,
    Active,
    MaskValue,
    as_labels,
    check_labels,
    check_layout,
    check_options,
    check_shape,
    check_shares,
    check_tensor,
    read_arguments,
    read_mask_value,
)
from remask.losses.columns import cross_entropy_of_columns, shared_ids

FEW_CLASSES = 64
"""With fewer classes, a loss computes all columns even where one active set is shared."""


def masked_softmax(
    logits: Tensor,
    active: Active,
    mask_value: MaskValue = -INF,
    *,
    dim: int = -1,
    allow_positive: bool = False,
    check: bool = True,
) -> Tensor:
    """Softmax over the classes of ``[..., K]`` with every class outside ``active`` held at m.

    The arguments are those of `masked_cross_entropy`.
    """
    given = read_arguments(logits, active, mask_value, dim, check, allow_positive)
    return torch.softmax(_replace_masked(*given)[0], dim=-1).movedim(-1, dim)


def masked_log_softmax(
    logits: Tensor,
    active: Active,
    mask_value: MaskValue = -INF,
    *,
    dim: int = -1,
    allow_positive: bool = False,
    check: bool = True,
) -> Tensor:
    """Logarithm of `masked_softmax`, computed stably. Masked classes are -inf at m = -inf."""
    given = read_arguments(logits, active, mask_value, dim, check, allow_positive)
    return torch.log_softmax(_replace_masked(*given)[0], dim=-1).movedim(-1, dim)


def masked_cross_entropy(
    input: Tensor,  # noqa: A002 - torch's name for it
    target: Tensor,
    active: Active,
    mask_value: MaskValue = -INF,
    *,
    dim: int | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    allow_positive: bool = False,
    check: bool = True,
) -> Tensor:
    """Cross-entropy of the general masked softmax; reads like ``F.cross_entropy``.

    Args:
        input: logits ``[..., K]``. Unlike torch's, the classes are the last axis; see ``dim``.
        target: class ids ``[...]``, each in its sample's active set; or class probabilities
            (mixup, CutMix, distillation) in the shape of the logits, 0 outside the active set.
        active: the classes that take part. Class ids in any order, as a list, tuple, range, set
            or 1-D integer tensor; one list of ids per sample, for the first axis of the logits;
            or a boolean mask that broadcasts to the logits (see below). ``None`` masks nothing.
        mask_value: m in [-inf, 0]: a number, or a tensor that broadcasts to the logits (see
            below). A constant, which may differ from call to call: no gradient reaches it.
        dim: the axis of the classes. ``None`` is the last one; 1 is torch's layout,
            ``[B, K, d1, ...]``. It must be given where four or more axes fit both.
        weight: one factor per class ``[K]``, as in torch.
        ignore_index: targets with this value add nothing to the loss, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, as in torch.
        label_smoothing: as in torch, but spread over the active classes only.
        allow_positive: whether m may be above 0 (not infinite). The gradient keeps its form and
            its bounds; the higher m, the more of it only raises the active logits.
        check: whether to look at the values of ``target``, ``active`` and a tensor ``mask_value``.
            Looking synchronises a GPU. Values that cannot be read (under ``torch.compile``, in
            ``torch.vmap``, on fake and meta tensors) are not looked at. Unchecked, the loss of a
            target outside its active set is meaningless (infinite at m = -inf).

    A mask and a tensor of mask values broadcast to the logits as everything does in torch: axes
    are aligned right, and an axis of size 1 stands for all. With ``[B, K]`` or ``[S, B, K]``
    logits:

        [K]        one for each class, the same in every sample
        [B, 1]     one for each sample (values only: a mask always names the classes)
        [B, K]     one for each class of each sample
        [S, 1, 1]  one for each stacked trial; as a mask, [S, 1, K]

    With another ``dim``, a mask and mask values are ``[K]`` or have all axes of the logits, in
    their order. NumPy arrays are taken as tensors are.

    With many classes and one active set for all samples, only the active columns are computed,
    except under ``torch.compile``.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Raises:
        ValueError: for an invalid shape, value or option; the message says which.
        TypeError: for something of another kind than those above.

    """
    axis = -1 if dim is None else dim
    if (  # the few operations of a training loop, which must not cost more than the loss
        not check
        and isinstance(active, Tensor)
        and active.dtype == torch.bool
        and isinstance(mask_value, float)
        and mask_value <= 0
        and weight is None
        and label_smoothing == 0
        and axis == -1
        and input.ndim == 2
        and input.shape[1:] == active.shape[-1:]
        and input.shape[1] < FEW_CLASSES
        and target.dtype == torch.int64
    ):
        masked = torch.where(active, input, mask_value)
        return F.cross_entropy(masked, target, ignore_index=ignore_index, reduction=reduction)

    check_options(reduction, label_smoothing)
    check_layout(input, target, dim)
    given = read_arguments(input, active, mask_value, axis, check, allow_positive)
    logits, found, m = given
    num_classes = logits.shape[-1]
    soft = target.is_floating_point() and target.shape == input.shape
    target = target.movedim(axis, -1) if soft else as_labels(target, logits.shape)
    if weight is not None:
        check_shape("weight", weight, num_classes)
        weight = weight.to(logits)

    options: dict[str, Any] = {"ignore_index": ignore_index, "reduction": reduction}
    by_columns = num_classes >= FEW_CLASSES and not soft and weight is None and label_smoothing == 0
    # In some graphs, torch 2.13 compiles the backward pass of index_select to wrong gradients.
    by_columns = by_columns and not torch.compiler.is_compiling()
    if found is not None and by_columns and (check or found.is_cpu or found.dtype != torch.bool):
        ids = shared_ids(found)
        if ids is not None:
            repeats = found is ids and isinstance(active, Tensor | np.ndarray)
            columns = logits.index_select(-1, ids), ids, target, num_classes, m
            return cross_entropy_of_columns(*columns, repeats, check, **options).to(logits.dtype)

    masked, mask = _replace_masked(*given)
    if check and not soft:
        check_labels(target, mask, num_classes, ignore_index)
    elif check and mask is not None:
        check_shares(target, mask)
    if mask is None or not (soft or label_smoothing):
        options |= {"weight": weight, "label_smoothing": label_smoothing}
        flat = target.reshape(-1, num_classes).to(masked) if soft else target.reshape(-1)
        loss = F.cross_entropy(masked.reshape(-1, num_classes), flat, **options)
        return loss.reshape(masked.shape[:-1]) if reduction == "none" else loss

    # Zero the masked classes before weighting: -inf times a share or weight of 0 would be NaN.
    log_probs = torch.where(mask, torch.log_softmax(masked, dim=-1), 0.0)
    if weight is not None:
        log_probs = log_probs * weight
    spread = mask.to(masked) / mask.sum(-1, keepdim=True)
    if soft:
        shares, counts = target.to(masked), masked.new_ones(masked.shape[:-1])
    else:
        kept, places = target != ignore_index, target.clamp(0, num_classes - 1)
        shares = torch.zeros_like(masked).scatter(-1, places.unsqueeze(-1), 1.0)
        shares, spread = (part * kept.unsqueeze(-1) for part in (shares, spread))
        counts = kept.to(masked) if weight is None else torch.where(kept, weight[places], 0.0)
    shares = (1 - label_smoothing) * shares + label_smoothing * spread
    losses = -(shares * log_probs).sum(-1)
    if reduction == "mean":
        return losses.sum() / counts.sum()
    return losses.sum() if reduction == "sum" else losses


def masked_binary_cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    active: Active,
    *,
    dim: int = -1,
    pos_weight: Tensor | None = None,
    reduction: str = "mean",
    check: bool = True,
) -> Tensor:
    """Binary cross-entropy of the active classes, for samples with several labels.

    Sigmoids do not compete, so a masked class adds nothing, whatever m is.

    Args:
        input: logits ``[..., K]``.
        target: labels or probabilities in the shape of the logits, 0 outside the active set.
        active: as in `masked_cross_entropy`.
        dim: the axis of the classes.
        pos_weight: a factor of positive labels for each class ``[K]``, as in torch.
        reduction: ``"mean"`` over all active classes of all samples, ``"sum"`` or ``"none"``.
        check: as in `masked_cross_entropy`.

    Returns:
        A scalar, or with ``reduction="none"`` the shape of the logits, 0 at masked classes.

    """
    check_options(reduction)
    check_tensor("target", target)
    given = read_arguments(input, active, -INF, dim, check, False)
    logits, mask = given[0], _replace_masked(*given)[1]
    if target.shape != input.shape:
        raise ValueError(f"target has shape {list(target.shape)}, but logits {list(input.shape)}")
    target = target.movedim(dim, -1).to(logits)
    if mask is not None:
        if check:
            check_shares(target, mask)
        logits = torch.where(mask, logits, 0.0)
    losses = F.binary_cross_entropy_with_logits(
        logits, target, pos_weight=pos_weight, reduction="none"
    )
    if mask is not None:
        losses = torch.where(mask, losses, 0.0)
    if reduction == "none":
        return losses.movedim(-1, dim)
    if reduction == "sum":
        return losses.sum()
    return losses.mean() if mask is None else losses.sum() / mask.expand_as(losses).sum()


class MaskedCrossEntropy(nn.Module):
    """`masked_cross_entropy` as a module; the active set is given at each call."""

    mask_value: float | Tensor
    weight: Tensor | None

    def __init__(
        self,
        mask_value: MaskValue = -INF,
        *,
        dim: int | None = None,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        allow_positive: bool = False,
    ) -> None:
        """Keep the options of `masked_cross_entropy`; tensors become buffers."""
        super().__init__()
        check_options(reduction, label_smoothing)
        m = read_mask_value(mask_value, check=True, allow_positive=allow_positive)
        if isinstance(m, Tensor):
            self.register_buffer("mask_value", m)
        else:
            self.mask_value = m
        self.register_buffer("weight", weight)
        self.options: dict[str, Any] = {
            "reduction": reduction,
            "dim": dim,
            "ignore_index": ignore_index,
            "label_smoothing": label_smoothing,
            "allow_positive": allow_positive,
        }

    def forward(self, input: Tensor, target: Tensor, active: Active) -> Tensor:  # noqa: A002
        """Return the loss of logits ``[..., K]`` against targets."""
        options = {"weight": self.weight, **self.options}
        return masked_cross_entropy(input, target, active, self.mask_value, **options)

    def extra_repr(self) -> str:
        """Show m, the reduction, and whatever else differs from its default."""
        m = self.mask_value
        shown = f"tensor{list(m.shape)}" if isinstance(m, Tensor) else f"{m:g}"
        parts = [f"mask_value={shown}", f"reduction={self.options['reduction']!r}"]
        if self.weight is not None:
            parts.append(f"weight={list(self.weight.shape)}")
        usual = {"dim": None, "ignore_index": -100, "label_smoothing": 0.0, "allow_positive": False}
        parts += [f"{k}={self.options[k]}" for k, v in usual.items() if self.options[k] != v]
        return ", ".join(parts)


def _replace_masked(
    logits: Tensor, active: Tensor | None, m: float | Tensor
) -> tuple[Tensor, Tensor | None]:
    """Return the logits with m at the masked classes, and the mask (broadcastable to them)."""
    if active is None:
        return logits, None
    mask, classes, is_mask = active, logits.shape[-1], active.dtype == torch.bool
    shared = not is_mask or mask.numel() == classes
    if shared and mask.is_cpu and classes >= FEW_CLASSES and torch.compiler.is_compiling():
        # Compiled code reads booleans three times slower than numbers, which scatter leaves here.
        # Expanded before the comparison, or the backward pass would be given its booleans.
        ids = torch.where(mask.flatten(), torch.arange(classes), classes) if is_mask else mask
        among = logits.new_zeros(classes + 1).scatter(0, ids, 1.0)[:classes]
        mask = among.expand_as(logits) > 0
    elif not is_mask:
        none = torch.zeros(classes, dtype=torch.bool, device=logits.device)
        mask = none.scatter(0, active, True)
    return torch.where(mask, logits, m.to(logits) if isinstance(m, Tensor) else m), mask
