"""The general masked softmax, and its cross-entropy as a function and as a module."""

from typing import Any

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
    classes_last,
    describe,
    mask_constant,
    read_active,
    read_mask_value,
)


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
    given = classes_last(logits, active, mask_value, dim)
    masked, _ = _replace_masked(*given, check, allow_positive)
    return torch.softmax(masked, dim=-1).movedim(-1, dim)


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
    given = classes_last(logits, active, mask_value, dim)
    masked, _ = _replace_masked(*given, check, allow_positive)
    return torch.log_softmax(masked, dim=-1).movedim(-1, dim)


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
        target: integer class ids ``[...]``, each in its sample's active set.
        active: the classes that take part. Class ids in any order, as a list, tuple, range, set
            or 1-D integer tensor; for ``[B, K]`` logits also one list of ids per sample; or a
            boolean mask that broadcasts to the logits (see below). ``None`` masks nothing.
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
            ``torch.vmap``, on fake and meta tensors) are not looked at. Unchecked, a target
            outside its active set costs its distance from m, which is infinite at m = -inf.

    A mask and a tensor of mask values broadcast to the logits as everything does in torch: axes
    are aligned right, and an axis of size 1 stands for all. With ``[B, K]`` or ``[S, B, K]``
    logits:

        [K]        one for each class, the same in every sample
        [B, 1]     one for each sample (values only: a mask always names the classes)
        [B, K]     one for each class of each sample
        [S, 1, 1]  one for each stacked trial; as a mask, [S, 1, K]

    With another ``dim``, a mask and mask values are ``[K]`` or have all axes of the logits, in
    their order. NumPy arrays are taken as tensors are.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Raises:
        ValueError: for a shape, value or option that cannot be meant; the message says which.
        TypeError: for something of another kind than those above.

    """
    check_options(reduction, label_smoothing)
    check_layout(input, target, dim)
    given = classes_last(input, active, mask_value, -1 if dim is None else dim)
    masked, mask = _replace_masked(*given, check, allow_positive)
    labels, num_classes = as_labels(target, masked.shape), masked.shape[-1]
    if weight is not None:
        check_shape("weight", weight, num_classes)
        weight = weight.to(masked)
    if check and not torch.compiler.is_compiling():
        check_labels(labels, mask, num_classes, ignore_index)
    flat, flat_labels = masked.reshape(labels.numel(), num_classes), labels.reshape(-1)
    options: dict[str, Any] = {"weight": weight, "ignore_index": ignore_index}
    if mask is None or label_smoothing == 0:
        options |= {"reduction": reduction, "label_smoothing": label_smoothing}
        loss = F.cross_entropy(flat, flat_labels, **options)
        return loss.reshape(labels.shape) if reduction == "none" else loss

    log_probs = torch.log_softmax(flat, dim=-1)
    own = F.nll_loss(log_probs, flat_labels, reduction="none", **options)
    # Zero the masked classes before weighting: -inf times a class weight of 0 would be NaN.
    others = torch.where(mask, log_probs.reshape(masked.shape), 0.0)
    if weight is not None:
        others = others * weight
    ignored = labels == ignore_index
    spread = torch.where(ignored, 0.0, -others.sum(-1) / mask.sum(-1))
    losses = (1 - label_smoothing) * own.reshape(labels.shape) + label_smoothing * spread
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if weight is None:
        return losses.sum() / (~ignored).sum()
    return losses.sum() / torch.where(ignored, 0.0, weight[torch.where(ignored, 0, labels)]).sum()


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
        self.dim = dim
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.allow_positive = allow_positive

    def forward(self, input: Tensor, target: Tensor, active: Active) -> Tensor:  # noqa: A002
        """Return the loss of logits ``[..., K]`` against targets ``[...]``."""
        return masked_cross_entropy(
            input,
            target,
            active,
            self.mask_value,
            dim=self.dim,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            allow_positive=self.allow_positive,
        )

    def extra_repr(self) -> str:
        """Show m, the reduction, and whatever else differs from its default."""
        m = self.mask_value
        shown = f"tensor{list(m.shape)}" if isinstance(m, Tensor) else f"{m:g}"
        parts = [f"mask_value={shown}", f"reduction={self.reduction!r}"]
        if self.dim is not None:
            parts.append(f"dim={self.dim}")
        if self.weight is not None:
            parts.append(f"weight={list(self.weight.shape)}")
        if self.ignore_index != -100:
            parts.append(f"ignore_index={self.ignore_index}")
        if self.label_smoothing != 0:
            parts.append(f"label_smoothing={self.label_smoothing:g}")
        if self.allow_positive:
            parts.append("allow_positive=True")
        return ", ".join(parts)


def _replace_masked(
    logits: Tensor, active: Active, mask_value: MaskValue, check: bool, allow_positive: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the logits with m at the masked classes, and the mask (broadcastable to them)."""
    if logits.ndim == 0 or not logits.is_floating_point():
        raise ValueError(
            f"logits need a floating dtype and a last axis of classes; got {describe(logits)}"
        )
    m = mask_constant(mask_value, logits.shape, check, allow_positive)
    if active is None:
        return logits, None
    mask = read_active(active, logits.shape, logits.device, check)
    if mask.dtype != torch.bool:
        none = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
        mask = none.scatter(0, mask, True)
    return torch.where(mask, logits, m.to(logits) if isinstance(m, Tensor) else m), mask
