"""What the losses accept: reading arguments, and refusing what cannot be meant."""

import operator
from collections.abc import Iterable, Sequence
from typing import NoReturn, TypeAlias

import torch
from torch import Tensor

Active: TypeAlias = Tensor | Iterable[int] | None
"""A boolean mask, class ids, or None for no mask."""

INF = float("inf")


def mask_constant(mask_value: float | Tensor, shape: Sequence[int], check: bool) -> float | Tensor:
    """Return m as a float, or as a constant tensor that broadcasts to ``shape``."""
    check_mask_value(mask_value, check)
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


def class_ids(
    active: Tensor | Iterable[int], num_classes: int, device: torch.device, check: bool
) -> Tensor:
    """Return the class ids in ascending order, ``[A]``. Ids from a tensor may repeat."""
    if isinstance(active, Tensor):
        if active.ndim != 1 or active.is_floating_point() or active.is_complex():
            raise ValueError(
                "active needs to be a boolean mask or a 1-D tensor of integer class ids; "
                f"got {describe(active)}"
            )
        ids = active.to(device).long().sort().values
        if check and len(ids) and is_true((ids[0] < 0) | (ids[-1] >= num_classes)):
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


def as_labels(target: Tensor, shape: Sequence[int]) -> Tensor:
    """Return integer targets as int64 after comparing them with the ``[..., K]`` they belong to."""
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise ValueError(
            f"target needs integer class ids; got {describe(target)}. Class probabilities are not "
            "supported, because a masked class could not have any"
        )
    if list(target.shape) != list(shape[:-1]):
        raise ValueError(
            f"target has shape {list(target.shape)}; {list(shape)} with classes or features last "
            f"needs targets {list(shape[:-1])}"
        )
    return target.long()


def check_options(reduction: str, label_smoothing: float) -> None:
    """Refuse an option that torch's cross-entropy would not take."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}; choose 'none', 'mean' or 'sum'")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is {label_smoothing}; it needs to be in [0, 1]")


def check_shape(name: str, tensor: Tensor, num_classes: int) -> None:
    """Refuse what is not one value per class."""
    if tensor.shape != (num_classes,):
        raise ValueError(
            f"{name} has shape {list(tensor.shape)}; it needs one value per class, [{num_classes}]"
        )


def check_mask_value(mask_value: float | Tensor, check: bool) -> None:
    """Refuse an m outside [-inf, 0]."""
    # "not <=" rather than ">", so that NaN is refused too.
    if isinstance(mask_value, Tensor):
        wrong = ~(mask_value <= 0)
        if not check or not is_true(wrong.any()):
            return
        mask_value = mask_value[wrong][0].item()
    if not mask_value <= 0:
        raise ValueError(f"mask_value is {mask_value}; it needs to be in [-inf, 0]")


def check_labels(labels: Tensor, mask: Tensor | None, num_classes: int, ignore_index: int) -> None:
    """Refuse a label that is no class, or not in its sample's active set."""
    kept = labels != ignore_index
    nearest = labels.clamp(0, num_classes - 1)
    wrong = kept & (labels != nearest)
    if is_true(wrong.any()):
        raise ValueError(f"target {labels[wrong][0].item()} is not in 0..{num_classes - 1}")
    if mask is not None:
        rows = mask.expand(*labels.shape, num_classes)
        wrong = kept & ~rows.gather(-1, nearest.unsqueeze(-1)).squeeze(-1)
        if is_true(wrong.any()):
            refuse_label(labels[wrong], rows[wrong][0].nonzero().squeeze(1))


def refuse_label(wrong: Tensor, ids: Tensor) -> NoReturn:
    """Say which label is outside which active set."""
    classes = sorted(set(ids.tolist()))
    shown = [*classes[:6], "...", classes[-1]] if len(classes) > 8 else classes
    raise ValueError(
        f"target {wrong[0].item()} is not in its active set {{{', '.join(map(str, shown))}}} "
        f"of {len(classes)} classes; add it to active, or leave the sample out with ignore_index"
    )


def _refuse_id(class_id: int, num_classes: int) -> NoReturn:
    raise ValueError(f"active has class id {class_id}, which is not in 0..{num_classes - 1}")


def describe(tensor: Tensor) -> str:
    """A tensor's dtype and shape, for messages."""
    return f"{tensor.dtype} {list(tensor.shape)}"


def is_true(condition: Tensor) -> bool:
    """Read a 0-d condition; False where it has no readable value (compiling, vmap, fake, meta)."""
    if torch.compiler.is_compiling():
        return False
    try:
        return bool(condition)
    except RuntimeError:  # what vmap, fake and meta tensors raise, each in a class of its own
        return False
