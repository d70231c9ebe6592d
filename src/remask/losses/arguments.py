"""The arguments of the losses: converting them to one form, and refusing invalid ones."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Active: TypeAlias = Tensor | NDArray[Any] | Iterable[int] | Iterable[Iterable[int]] | None
"""A boolean mask, class ids, one collection of class ids per sample, or None for no mask."""

MaskValue: TypeAlias = float | Tensor | NDArray[Any]
"""m: a number, or a tensor or array of them that broadcasts to the logits."""

INF = float("inf")

_ACTIVE_FORMS = (
    "give class ids ([0, 1], also as a set, a range, or a 1-D integer tensor or array), one list "
    "of ids per sample ([[0, 1], [2]]), or a boolean mask"
)
_ALIGNED = "axes are aligned right, as everywhere in torch"


def read_arguments(
    logits: Tensor,
    active: Active,
    mask_value: MaskValue,
    dim: int,
    check: bool,
    allow_positive: bool,
) -> tuple[Tensor, Tensor | None, float | Tensor]:
    """Return logits [..., K]; a mask that broadcasts to them, class ids or None; and m."""
    check_tensor("logits", logits)
    if logits.ndim == 0 or not logits.is_floating_point():
        raise ValueError(
            f"logits need a floating dtype and a last axis of classes; got {_describe(logits)}"
        )
    logits, active, mask_value = classes_last(logits, active, mask_value, dim)
    m = read_mask_value(mask_value, check, allow_positive, logits.shape)
    if active is None:
        return logits, None, m
    return logits, read_active(active, logits.shape, logits.device, check), m


def classes_last(
    logits: Tensor, active: Active, mask_value: MaskValue, dim: int
) -> tuple[Tensor, Active, MaskValue]:
    """Move the axis ``dim`` of the logits, and of what has all their axes, to the end."""
    active, mask_value = _from_numpy(active), _from_numpy(mask_value)
    if dim in (-1, logits.ndim - 1):
        return logits, active, mask_value

    def moved(name: str, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.ndim <= 1:
            return value
        if value.ndim != logits.ndim:
            raise ValueError(
                f"{name} has shape {list(value.shape)}; with dim={dim} it needs one value per "
                f"class, [K], or all {logits.ndim} axes of the logits"
            )
        return value.movedim(dim, -1)

    return logits.movedim(dim, -1), moved("active", active), moved("mask_value", mask_value)


def read_mask_value(
    mask_value: MaskValue, check: bool, allow_positive: bool, shape: Sequence[int] | None = None
) -> float | Tensor:
    """Return m as a float or as a constant tensor that broadcasts to the logits' ``shape``."""
    value = _from_numpy(mask_value)
    if isinstance(value, Tensor):
        if value.dtype == torch.bool or value.is_complex():
            raise TypeError(f"mask_value needs numbers; got {_describe(value)}")
        if shape is not None and not _broadcasts(value.shape, shape):
            raise ValueError(
                f"mask_value has shape {list(value.shape)}, which does not broadcast to the "
                f"logits' {list(shape)}; {_ALIGNED}: [{shape[-1]}] is one value per class, [B, 1] "
                "one per sample, [S, 1, 1] one per trial"
            )
        value = value.detach()
        # "not <=" rather than ">", so that NaN is refused too.
        wrong = ~(value < INF if allow_positive else value <= 0)
        if not check or not is_true(wrong.any()):
            return value
        value = value[wrong][0].item()
    elif not isinstance(value, int | float | np.number):
        raise TypeError(f"mask_value needs to be a number or a tensor; got {value!r:.60}")
    if not (value < INF if allow_positive else value <= 0):
        allowed = "below infinity" if allow_positive else "in [-inf, 0], unless allow_positive=True"
        raise ValueError(f"mask_value is {value}; it needs to be {allowed}")
    return float(value)


def read_active(
    active: Tensor | NDArray[Any] | Iterable[int] | Iterable[Iterable[int]],
    shape: Sequence[int],
    device: torch.device,
    check: bool,
) -> Tensor:
    """Return a boolean mask that broadcasts to ``shape``, or ascending class ids ``[A]``.

    Ids from a tensor may repeat.
    """
    active = _from_numpy(active)
    if not isinstance(active, Tensor):
        return _read_collection(active, shape, device)
    if active.dtype == torch.bool:
        if not active.ndim or active.shape[-1] != shape[-1] or not _broadcasts(active.shape, shape):
            raise ValueError(
                f"active has shape {list(active.shape)}, which does not broadcast to the logits' "
                f"{list(shape)}; {_ALIGNED}: give [{shape[-1]}] or [..., {shape[-1]}]"
            )
        mask = active.to(device)
        if check and is_true((~mask.any(-1)).any()):
            raise ValueError("active is empty for at least one sample; every sample needs a class")
        return mask
    if active.ndim != 1 or active.is_floating_point() or active.is_complex():
        # Integers on two axes may be ids per sample, or a mask of 0 and 1: do not guess.
        raise ValueError(f"active is {_describe(active)}; {_ACTIVE_FORMS}")
    if len(active) == 0:
        raise ValueError("active is empty; every sample needs at least one class")
    ids = active.to(device).long().sort().values
    if check and is_true((ids[0] < 0) | (ids[-1] >= shape[-1])):
        _refuse_id(int(ids[0] if ids[0] < 0 else ids[-1]), shape[-1])
    return ids


def _read_collection(active: Any, shape: Sequence[int], device: torch.device) -> Tensor:
    """Return the class ids of one collection, or a mask for one collection per sample."""
    listed = list(active) if isinstance(active, Iterable) else active
    num_classes = shape[-1]
    if not isinstance(listed, list) or not listed or not _is_collection(listed[0]):
        return torch.tensor(_class_ids("active", listed, num_classes), device=device)
    if len(shape) < 2 or len(listed) != shape[0]:
        raise ValueError(
            f"active has {len(listed)} lists of class ids; it needs one per sample, the first axis "
            f"of the logits {list(shape)}. A boolean mask may have any shape that broadcasts"
        )
    cells = [
        sample * num_classes + class_id
        for sample, ids in enumerate(listed)
        for class_id in _class_ids(f"active[{sample}]", ids, num_classes)
    ]
    mask = torch.zeros(shape[0] * num_classes, dtype=torch.bool, device=device)
    mask = mask.scatter(0, torch.tensor(cells, device=device), True)
    return mask.reshape(shape[0], *[1] * (len(shape) - 2), num_classes)


def _is_collection(each: Any) -> bool:
    # Scalars of torch and NumPy have 0 axes.
    return isinstance(each, Iterable) and not isinstance(each, str) and getattr(each, "ndim", 1) > 0


def _class_ids(name: str, listed: Any, num_classes: int) -> list[int]:
    """Return class ids in ascending order, each once."""
    try:
        listed = list(listed)
        # First, because NumPy 1 takes its booleans for integers.
        if any(isinstance(each, bool | np.bool_) for each in listed):
            raise ValueError(f"{name} is a list of booleans; pass torch.tensor(active) as a mask")
        ids = sorted({operator.index(each) for each in listed})
    except TypeError:
        wrong = [each for each in listed if not _is_integer(each)] if _is_collection(listed) else []
        which = f": {wrong[0]!r:.60} is not a whole number" if wrong else ""
        raise TypeError(f"{name} is {listed!r:.60}{which}; {_ACTIVE_FORMS}") from None
    if not ids:
        raise ValueError(f"{name} is empty; every sample needs at least one class")
    for class_id in (ids[0], ids[-1]):
        if not 0 <= class_id < num_classes:
            _refuse_id(class_id, num_classes)
    return ids


def _is_integer(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def _refuse_id(class_id: int, num_classes: int) -> NoReturn:
    raise ValueError(f"active has class id {class_id}, which is not in 0..{num_classes - 1}")


def _from_numpy(value: Any) -> Any:
    """Convert an array to a tensor; return anything else unchanged."""
    # A copy, because torch cannot share reversed or read-only arrays.
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def _broadcasts(given: Sequence[int], shape: Sequence[int]) -> bool:
    sizes = zip(reversed(given), reversed(shape), strict=False)
    return len(given) <= len(shape) and all(have in (1, want) for have, want in sizes)


def check_tensor(name: str, value: object) -> None:
    """Refuse a list, an array or anything else that is not a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor; got {type(value).__name__}")


def check_layout(logits: Tensor, target: Tensor, dim: int | None) -> None:
    """Refuse logits of four or more axes whose classes may be the last axis or axis 1."""
    check_tensor("target", target)
    shape, given = list(logits.shape), list(target.shape)
    fits_both = given == shape or given == shape[:-1] == [shape[0], *shape[2:]]
    if dim is None and len(shape) > 3 and fits_both:
        raise ValueError(
            f"{shape} with targets {given} may have the classes or features on the last axis or, "
            "as in torch, on axis 1: give dim=-1 or dim=1"
        )


def as_labels(target: Tensor, shape: Sequence[int]) -> Tensor:
    """Return integer targets for ``[..., K]`` as int64."""
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise ValueError(
            f"target needs integer class ids; got {_describe(target)}. Class probabilities need "
            "the shape of the logits, and masked_cross_entropy"
        )
    if target.shape == shape:
        raise ValueError(f"class probabilities need a floating dtype; target is {target.dtype}")
    if target.shape != shape[:-1]:
        hint = ". If they are on axis 1, as in torch, give dim=1" if len(shape) > 2 else ""
        raise ValueError(
            f"target has shape {list(target.shape)}; {list(shape)} with classes or features last "
            f"needs targets {list(shape[:-1])}{hint}"
        )
    return target.long()


def check_options(reduction: str, label_smoothing: float = 0.0) -> None:
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


def check_labels(labels: Tensor, mask: Tensor | None, num_classes: int, ignore_index: int) -> None:
    """Refuse a label that is out of range, or not in its sample's active set."""
    nearest = labels.clamp(0, num_classes - 1)
    allowed = labels == nearest
    if mask is not None:
        mask = mask.expand(*labels.shape, num_classes)
        allowed &= mask.gather(-1, nearest.unsqueeze(-1)).squeeze(-1)
    wrong = ~allowed & (labels != ignore_index)
    if is_true(wrong.any()):
        ids = labels[:0] if mask is None else mask[wrong][0].nonzero().squeeze(1)
        refuse_label(labels[wrong], ids, num_classes)


def check_shares(target: Tensor, mask: Tensor) -> None:
    """Refuse class probabilities, or several labels, outside the active set."""
    wrong = (target != 0) & ~mask
    if is_true(wrong.any()):
        *sample, class_id = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"target{sample} has class {class_id}, which is not in its active set; classes outside "
            "it need 0"
        )


def refuse_label(wrong: Tensor, ids: Tensor, num_classes: int) -> NoReturn:
    """Raise for a label that is out of range, or outside its active set."""
    if not 0 <= wrong[0] < num_classes:
        raise ValueError(f"target {wrong[0].item()} is not in 0..{num_classes - 1}")
    classes = sorted(set(ids.tolist()))
    shown = [*classes[:6], "...", classes[-1]] if len(classes) > 8 else classes
    raise ValueError(
        f"target {wrong[0].item()} is not in its active set {{{', '.join(map(str, shown))}}} "
        f"of {len(classes)} classes; add it to active, or leave the sample out with ignore_index"
    )


def is_true(condition: Tensor) -> bool:
    """Read a 0-d condition; False where tensors have no values (compiling, vmap, fake, meta)."""
    if torch.compiler.is_compiling():
        return False
    try:
        return bool(condition)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return False


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"
