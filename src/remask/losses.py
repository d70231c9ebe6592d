"""The general masked softmax and the losses built on it.

For a sample whose active classes are the set A, the logits outside A are replaced by a constant m::

    z'_c = z_c  if c in A,  else m        with m in [-inf, 0], a constant that receives no gradient
    loss = -log softmax(z')[y]            with y in A

The gradient is ``softmax(z')_c - 1[c = y]`` on A and exactly zero elsewhere. At m = -inf the masked
classes vanish; at a finite m they stay as K - |A| fixed competitors that push the active logits up.

Letters in shapes: S stacked trials, B batch, K classes (always the last axis), D features.
"""

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = [
    "MaskedCrossEntropy",
    "logit_mse",
    "masked_cross_entropy",
    "masked_linear_cross_entropy",
    "masked_log_softmax",
    "masked_softmax",
    "trial_cross_entropy",
]

Active: TypeAlias = Tensor | Iterable[int] | None

_INF = float("inf")


def masked_softmax(
    logits: Tensor, active: Active, mask_value: float | Tensor = -_INF, *, check: bool = True
) -> Tensor:
    """Softmax over the last axis of ``[..., K]`` with every class outside ``active`` held at m.

    The arguments are those of :func:`masked_cross_entropy`.
    """
    return torch.softmax(_replace_masked(logits, active, mask_value, check)[0], dim=-1)


def masked_log_softmax(
    logits: Tensor, active: Active, mask_value: float | Tensor = -_INF, *, check: bool = True
) -> Tensor:
    """Logarithm of :func:`masked_softmax`, computed stably. Masked classes are -inf at m = -inf."""
    return torch.log_softmax(_replace_masked(logits, active, mask_value, check)[0], dim=-1)


def masked_cross_entropy(
    input: Tensor,  # noqa: A002 - torch's name for it
    target: Tensor,
    active: Active,
    mask_value: float | Tensor = -_INF,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    check: bool = True,
) -> Tensor:
    """Cross-entropy of the general masked softmax; reads like ``F.cross_entropy``.

    Args:
        input: logits ``[..., K]``. Unlike torch's, the classes are always the last axis.
        target: integer class ids ``[...]``, each in its sample's active set.
        active: a boolean mask ``[K]`` or one that broadcasts to ``[..., K]`` (aligned right, so
            one mask per trial of ``[S, B, K]`` logits has shape ``[S, 1, K]``); or the class ids
            themselves as a list, tuple, range, set or 1-D integer tensor, in any order. ``None``
            masks nothing.
        mask_value: m in [-inf, 0]. A tensor is aligned left with the leading axes: with
            ``[S, B, K]`` logits, ``[S]`` or ``[S, 1]`` is one value per trial and ``[S, B]`` one
            per sample. It is a constant: no gradient reaches it.
        weight: one factor per class ``[K]``, as in torch.
        ignore_index: targets with this value add nothing to the loss, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, as in torch.
        label_smoothing: as in torch, but spread over the active classes only.
        check: whether to look at the values of ``target``, ``active`` and a tensor ``mask_value``.
            Looking synchronises a GPU. Values that cannot be read (under ``torch.compile``, in
            ``torch.vmap``, on fake and meta tensors) are not looked at. Unchecked, a target
            outside its active set costs its distance from m, which is infinite at m = -inf.

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``.

    Raises:
        ValueError: for a shape, value or option that cannot be meant; the message says which.
    """
    _check_options(reduction, label_smoothing)
    masked, mask = _replace_masked(input, active, mask_value, check)
    labels, num_classes = _labels(target, input.shape), input.shape[-1]
    if weight is not None:
        _check_shape("weight", weight, num_classes)
        weight = weight.to(masked)
    if check and not torch.compiler.is_compiling():
        _check_labels(labels, mask, num_classes, ignore_index)
    flat, flat_labels = masked.reshape(labels.numel(), num_classes), labels.reshape(-1)
    options: dict[str, Any] = {"weight": weight, "ignore_index": ignore_index}
    if mask is None or label_smoothing == 0:
        options |= {"reduction": reduction, "label_smoothing": label_smoothing}
        loss = F.cross_entropy(flat, flat_labels, **options)
        return loss.reshape(labels.shape) if reduction == "none" else loss

    log_probs = torch.log_softmax(flat, dim=-1)
    own = F.nll_loss(log_probs, flat_labels, reduction="none", **options)
    # Zero the masked classes before weighting: -inf times a class weight of 0 would be NaN.
    others = torch.where(mask, log_probs.reshape(input.shape), 0.0)
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
    """:func:`masked_cross_entropy` as a module; the active set is given at each call."""

    mask_value: float | Tensor
    weight: Tensor | None

    def __init__(
        self,
        mask_value: float | Tensor = -_INF,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        """Keep the options of :func:`masked_cross_entropy`; tensors become buffers."""
        super().__init__()
        _check_options(reduction, label_smoothing)
        _check_mask_value(mask_value, check=True)
        if isinstance(mask_value, Tensor):
            self.register_buffer("mask_value", mask_value.detach())
        else:
            self.mask_value = float(mask_value)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor, active: Active) -> Tensor:  # noqa: A002
        """Return the loss of logits ``[..., K]`` against targets ``[...]``."""
        return masked_cross_entropy(
            input,
            target,
            active,
            self.mask_value,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )

    def extra_repr(self) -> str:
        """Show m, the reduction, and whatever else differs from its default."""
        m = self.mask_value
        shown = f"tensor{list(m.shape)}" if isinstance(m, Tensor) else f"{m:g}"
        parts = [f"mask_value={shown}", f"reduction={self.reduction!r}"]
        if self.weight is not None:
            parts.append(f"weight={list(self.weight.shape)}")
        if self.ignore_index != -100:
            parts.append(f"ignore_index={self.ignore_index}")
        if self.label_smoothing != 0:
            parts.append(f"label_smoothing={self.label_smoothing:g}")
        return ", ".join(parts)


def masked_linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    active: Active,
    mask_value: float | Tensor = -_INF,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
    sparse: bool = False,
    check: bool = True,
) -> Tensor:
    """:func:`masked_cross_entropy` of a linear head, computing the active columns only.

    Same value and gradients as ``masked_cross_entropy(F.linear(features, weight, bias), ...)``,
    but the masked classes enter as the one term ``(K - |A|) exp(m)``, so that with class ids the
    forward does not grow with K. A boolean mask ``[K]`` is first turned into ids; where its values
    cannot be read (``torch.compile``, a mask batched by ``torch.vmap``) the full head is computed.

    Args:
        features: ``[..., D]``.
        weight: ``[K, D]``.
        bias: ``[K]`` or ``None``.
        target: integer class ids ``[...]``.
        active: one set for all samples: class ids or a boolean mask ``[K]``. ``None`` masks nothing
            and computes the full head.
        mask_value: as in :func:`masked_cross_entropy`.
        reduction: as in torch.
        ignore_index: as in torch.
        sparse: give ``weight`` and ``bias`` sparse gradients, as ``nn.Embedding`` does, so that the
            backward does not grow with K either. For eager first-order training with an optimiser
            that takes sparse gradients, such as ``torch.optim.SGD``.
        check: as in :func:`masked_cross_entropy`. Unchecked, the loss of a target outside the
            active set is meaningless (infinite at m = -inf).

    Returns:
        A scalar, or ``[...]`` with ``reduction="none"``. Half-precision logits give a float32 loss,
        because m + log(K - |A|) has no accurate half-precision value.
    """
    _check_options(reduction, 0.0)
    if weight.ndim != 2 or features.shape[-1:] != weight.shape[1:]:
        raise ValueError(
            f"features {list(features.shape)} and weight {list(weight.shape)} do not fit; "
            "they need to be [..., D] and [K, D]"
        )
    num_classes = weight.shape[0]
    if bias is not None:
        _check_shape("bias", bias, num_classes)
    labels = _labels(target, features.shape)
    ids = _shared_ids(active, num_classes, weight.device, check)
    if ids is None:
        if sparse:
            raise ValueError("sparse=True needs an active set whose values can be read; pass ids")
        logits = F.linear(features, weight, bias)
        options: dict[str, Any] = {"reduction": reduction, "ignore_index": ignore_index}
        return masked_cross_entropy(logits, target, active, mask_value, check=check, **options)

    m = _mask_constant(mask_value, features.shape, check)
    rows = _sparse_rows if sparse else _dense_rows
    logits = F.linear(features, rows(weight, ids), None if bias is None else rows(bias, ids))
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    # Ids from a tensor may repeat (a batch's labels, say). Dropping repeats makes a shape depend on
    # values, which compiled code cannot have, so a repeat stays as a column of -inf.
    repeated = F.pad(ids[1:] == ids[:-1], (1, 0))
    num_masked = num_classes - (~repeated).sum()
    rest = num_masked.to(logits.dtype).log() + (m.to(logits) if isinstance(m, Tensor) else m)
    columns = [torch.where(repeated, -_INF, logits), rest.expand(*labels.shape, 1)]

    position = torch.searchsorted(ids, labels).clamp(max=ids.shape[0] - 1)
    found = ids[position] == labels
    ignored = labels == ignore_index
    if check and _is_true((~found & ~ignored).any()):
        _refuse_label(labels[~found & ~ignored], ids)
    # Positions are renumbered, so ignore_index itself may be a valid one: mark with -100 instead.
    position = torch.where(ignored, -100, torch.where(found, position, ids.shape[0]))
    flat = torch.cat(columns, dim=-1).reshape(labels.numel(), ids.shape[0] + 1)
    loss = F.cross_entropy(flat, position.reshape(-1), reduction=reduction)
    return loss.reshape(labels.shape) if reduction == "none" else loss


def logit_mse(logits: Tensor, stored: Tensor) -> Tensor:
    """Mean squared difference of logits ``[..., B, K]`` over B and K: one value per trial."""
    if logits.shape != stored.shape or logits.ndim < 2:
        raise ValueError(
            f"logits {list(logits.shape)} and stored {list(stored.shape)} need to be [..., B, K]"
        )
    return (logits - stored).square().mean((-2, -1))


def trial_cross_entropy(
    logits: Tensor, target: Tensor, active: Tensor | None, mask_value: Tensor | None
) -> Tensor:
    """Masked cross-entropy of each stacked trial, meant for inner loops: nothing is checked.

    Args:
        logits: ``[S, B, K]``.
        target: int64 ``[S, B]``.
        active: boolean, broadcastable to ``[S, B, K]``; ``None`` masks nothing.
        mask_value: ``[S, 1, 1]`` in the logits' dtype; ``None`` means -inf.

    Returns:
        The mean over B, ``[S]``.
    """
    if active is not None:
        logits = torch.where(active, logits, -_INF if mask_value is None else mask_value)
    own = logits.log_softmax(2).gather(2, target.unsqueeze(2))
    # sum and div instead of mean and neg: two operations fewer in forward and backward.
    return own.sum((1, 2)).div(-target.shape[1])


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


def _replace_masked(
    logits: Tensor, active: Active, mask_value: float | Tensor, check: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the logits with m at the masked classes, and the mask (broadcastable to them)."""
    if logits.ndim == 0 or not logits.is_floating_point():
        raise ValueError(
            f"logits need a floating dtype and a last axis of classes; got {_describe(logits)}"
        )
    m = _mask_constant(mask_value, logits.shape, check)
    num_classes = logits.shape[-1]
    if active is None:
        return logits, None
    if isinstance(active, Tensor) and active.dtype == torch.bool:
        sizes = zip(reversed(active.shape), reversed(logits.shape), strict=False)
        fits = 0 < active.ndim <= logits.ndim and all(have in (1, want) for have, want in sizes)
        if not fits or active.shape[-1] != num_classes:
            raise ValueError(
                f"active has shape {list(active.shape)}, which does not broadcast to the logits' "
                f"{list(logits.shape)}; give [{num_classes}] or [..., {num_classes}]"
            )
        mask = active.to(logits.device)
        if check and _is_true((~mask.any(-1)).any()):
            raise ValueError("active is empty for at least one sample; every sample needs a class")
    else:
        ids = _class_ids(active, num_classes, logits.device, check)
        mask = torch.zeros(num_classes, dtype=torch.bool, device=logits.device)
        mask = mask.scatter(0, ids, True)
    return torch.where(mask, logits, m.to(logits) if isinstance(m, Tensor) else m), mask


def _mask_constant(mask_value: float | Tensor, shape: Sequence[int], check: bool) -> float | Tensor:
    """Return m as a float, or as a constant tensor that broadcasts to ``shape``."""
    _check_mask_value(mask_value, check)
    if not isinstance(mask_value, Tensor):
        return float(mask_value)
    lead, given = list(shape[:-1]), list(mask_value.shape)
    sizes = zip(given, lead, strict=False)
    if len(given) > len(lead) or any(have not in (1, want) for have, want in sizes):
        raise ValueError(
            f"mask_value has shape {given}, which does not fit the leading axes {lead} from the "
            "left; give one value per trial [S], or one per sample"
        )
    return mask_value.detach().reshape(given + [1] * (len(shape) - len(given)))


def _class_ids(
    active: Tensor | Iterable[int], num_classes: int, device: torch.device, check: bool
) -> Tensor:
    """Return the class ids in ascending order, ``[A]``. Ids from a tensor may repeat."""
    if isinstance(active, Tensor):
        if active.ndim != 1 or active.is_floating_point() or active.is_complex():
            raise ValueError(
                "active needs to be a boolean mask or a 1-D tensor of integer class ids; "
                f"got {_describe(active)}"
            )
        ids = active.to(device).long().sort().values
        if check and len(ids) and _is_true((ids[0] < 0) | (ids[-1] >= num_classes)):
            _refuse_id(int(ids[0] if ids[0] < 0 else ids[-1]), num_classes)
    else:
        listed = list(active)
        if any(isinstance(c, bool) for c in listed):
            raise ValueError("active is a list of booleans; pass torch.tensor(active) as a mask")
        distinct = sorted({operator.index(c) for c in listed})
        for c in distinct[:1] + distinct[-1:]:
            if not 0 <= c < num_classes:
                _refuse_id(c, num_classes)
        ids = torch.tensor(distinct, dtype=torch.long, device=device)
    if len(ids) == 0:
        raise ValueError("active is empty; every sample needs at least one class")
    return ids


def _shared_ids(
    active: Active, num_classes: int, device: torch.device, check: bool
) -> Tensor | None:
    """Return the ascending ids of one shared active set, or None where they cannot be had."""
    if active is None:
        return None
    if not isinstance(active, Tensor) or active.dtype != torch.bool:
        return _class_ids(active, num_classes, device, check)
    if active.shape != (num_classes,):
        raise ValueError(
            f"active has shape {list(active.shape)}; a linear head takes one set for all samples, "
            f"class ids or a mask [{num_classes}] (masked_cross_entropy takes per-sample masks)"
        )
    if torch.compiler.is_compiling():
        return None
    try:
        ids = active.to(device).nonzero().squeeze(1)
    except RuntimeError:
        return None
    return _class_ids(ids, num_classes, device, check=False)


def _labels(target: Tensor, shape: Sequence[int]) -> Tensor:
    """Return integer targets as int64 after comparing them with the ``[..., K]`` they belong to."""
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise ValueError(
            f"target needs integer class ids; got {_describe(target)}. Class probabilities are not "
            "supported, because a masked class could not have any"
        )
    if list(target.shape) != list(shape[:-1]):
        raise ValueError(
            f"target has shape {list(target.shape)}; {list(shape)} with classes or features last "
            f"needs targets {list(shape[:-1])}"
        )
    return target.long()


def _check_options(reduction: str, label_smoothing: float) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}; choose 'none', 'mean' or 'sum'")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is {label_smoothing}; it needs to be in [0, 1]")


def _check_shape(name: str, tensor: Tensor, num_classes: int) -> None:
    if tensor.shape != (num_classes,):
        raise ValueError(
            f"{name} has shape {list(tensor.shape)}; it needs one value per class, [{num_classes}]"
        )


def _check_mask_value(mask_value: float | Tensor, check: bool) -> None:
    # "not <=" rather than ">", so that NaN is refused too.
    if isinstance(mask_value, Tensor):
        wrong = ~(mask_value <= 0)
        if not check or not _is_true(wrong.any()):
            return
        mask_value = mask_value[wrong][0].item()
    if not mask_value <= 0:
        raise ValueError(f"mask_value is {mask_value}; it needs to be in [-inf, 0]")


def _check_labels(labels: Tensor, mask: Tensor | None, num_classes: int, ignore_index: int) -> None:
    kept = labels != ignore_index
    nearest = labels.clamp(0, num_classes - 1)
    wrong = kept & (labels != nearest)
    if _is_true(wrong.any()):
        raise ValueError(f"target {labels[wrong][0].item()} is not in 0..{num_classes - 1}")
    if mask is not None:
        rows = mask.expand(*labels.shape, num_classes)
        wrong = kept & ~rows.gather(-1, nearest.unsqueeze(-1)).squeeze(-1)
        if _is_true(wrong.any()):
            _refuse_label(labels[wrong], rows[wrong][0].nonzero().squeeze(1))


def _refuse_label(wrong: Tensor, ids: Tensor) -> NoReturn:
    classes = sorted(set(ids.tolist()))
    shown = [*classes[:6], "...", classes[-1]] if len(classes) > 8 else classes
    raise ValueError(
        f"target {wrong[0].item()} is not in its active set {{{', '.join(map(str, shown))}}} "
        f"of {len(classes)} classes; add it to active, or leave the sample out with ignore_index"
    )


def _refuse_id(class_id: int, num_classes: int) -> NoReturn:
    raise ValueError(f"active has class id {class_id}, which is not in 0..{num_classes - 1}")


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


def _is_true(condition: Tensor) -> bool:
    """Read a 0-d condition; False where it has no readable value (compiling, vmap, fake, meta)."""
    if torch.compiler.is_compiling():
        return False
    try:
        return bool(condition)
    except RuntimeError:  # what vmap, fake and meta tensors raise, each in a class of its own
        return False
