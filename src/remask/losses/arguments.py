"""The arguments of the losses: reading them, and refusing invalid ones."""

import operator
import re
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
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

_WITHOUT_VALUES = re.compile("vmap|meta|data.?dependent|DynamicOutputShape", re.I)

_ACTIVE_FORMS = (
    "give class ids ([0, 1], also as a set, a range, or a 1-D integer tensor or array), one list "
    "of ids per sample ([[0, 1], [2]]), or a boolean mask"
)
_ALIGNED = "axes are aligned right, as everywhere in torch"


def read_mask_value(
    mask_value: MaskValue, check: bool, allow_positive: bool, shape: Sequence[int] | None = None
) -> float | Tensor:
    """Return m as a float or as a constant tensor that broadcasts to the logits' ``shape``."""
    mask_value = _from_numpy("mask_value", mask_value)
    if isinstance(mask_value, Tensor):
        if mask_value.dtype == torch.bool or mask_value.is_complex():
            raise TypeError(f"mask_value needs numbers; got {describe(mask_value)}")
        if shape is not None and not _broadcasts(mask_value.shape, shape):
            raise ValueError(
                f"mask_value has shape {list(mask_value.shape)}, which does not broadcast to the "
                f"logits' {list(shape)}; {_ALIGNED}: [{shape[-1]}] is one value per class, [B, 1] "
                "one per sample, [S, 1, 1] one per trial"
            )
        mask_value = mask_value.detach()
        # "not <=" rather than ">", so that NaN is refused too.
        wrong = ~(mask_value < INF if allow_positive else mask_value <= 0)
        if not check or not is_true(wrong.any()):
            return mask_value
        mask_value = mask_value[wrong][0].item()
    elif not isinstance(mask_value, int | float | np.number):
        raise TypeError(f"mask_value needs to be a number or a tensor; got {_show(mask_value)}")
    if allow_positive and not mask_value < INF:
        raise ValueError(f"mask_value is {mask_value}; it needs to be a number below infinity")
    if not (allow_positive or mask_value <= 0):
        raise ValueError(
            f"mask_value is {mask_value}; it needs to be in [-inf, 0], or below infinity with "
            "allow_positive=True"
        )
    return float(mask_value)


def read_active(
    active: Tensor | NDArray[Any] | Iterable[int] | Iterable[Iterable[int]],
    shape: Sequence[int],
    device: torch.device,
    check: bool,
) -> Tensor:
    """Return a boolean mask that broadcasts to ``shape``, or ascending class ids ``[A]``.

    Ids from a tensor may repeat.
    """
    active = _from_numpy("active", active)
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
        raise ValueError(f"active is {describe(active)}; {_ACTIVE_FORMS}")
    if len(active) == 0:
        raise ValueError("active is empty; every sample needs at least one class")
    ids = active.to(device).long().sort().values
    if check and is_true((ids[0] < 0) | (ids[-1] >= shape[-1])):
        _refuse_id(int(ids[0] if ids[0] < 0 else ids[-1]), shape[-1])
    return ids


def _read_collection(
    active: Iterable[int] | Iterable[Iterable[int]], shape: Sequence[int], device: torch.device
) -> Tensor:
    if isinstance(active, str | bytes) or not isinstance(active, Iterable):
        raise TypeError(f"active is {_show(active)}; {_ACTIVE_FORMS}")
    listed: list[Any] = list(active)
    if not listed:
        raise ValueError("active is empty; every sample needs at least one class")
    nested = [_is_collection(each) for each in listed]
    if not any(nested):
        return torch.tensor(_distinct(listed, shape[-1]), dtype=torch.long, device=device)
    if not all(nested):
        raise TypeError(f"active mixes class ids and collections of them; {_ACTIVE_FORMS}")
    if isinstance(active, AbstractSet):
        raise TypeError(f"active is a set of collections, which has no order; {_ACTIVE_FORMS}")
    if len(shape) < 2 or len(listed) != shape[0]:
        raise ValueError(
            f"active has {len(listed)} lists of class ids; it needs one per sample, the first axis "
            f"of the logits {list(shape)}. A boolean mask may have any shape that broadcasts"
        )
    num_classes, cells = shape[-1], []
    for sample, row in enumerate(listed):
        ids = list(row)
        if len(ids) == num_classes > 2 and all(c in (0, 1) for c in ids):
            raise ValueError(
                f"active[{sample}] has {num_classes} zeros and ones: ids of classes 0 and 1, or a "
                "mask? Pass torch.tensor(active, dtype=torch.bool) as a mask, or each id once"
            )
        if not ids:
            raise ValueError(f"active[{sample}] is empty; every sample needs at least one class")
        cells += [sample * num_classes + c for c in _distinct(ids, num_classes)]
    mask = torch.zeros(shape[0] * num_classes, dtype=torch.bool, device=device)
    chosen = torch.tensor(cells, dtype=torch.long, device=device)
    return mask.scatter(0, chosen, True).reshape(shape[0], *[1] * (len(shape) - 2), num_classes)


def _is_collection(each: object) -> bool:
    if isinstance(each, Tensor | np.ndarray):
        return each.ndim > 0
    return isinstance(each, Collection) and not isinstance(each, str | bytes)


def _distinct(listed: Collection[Any], num_classes: int) -> list[int]:
    """Return class ids in ascending order, each once."""
    if any(_is_boolean(c) for c in listed):
        raise ValueError("active is a list of booleans; pass torch.tensor(active) as a mask")
    distinct = sorted({_class_id(c) for c in listed})
    for c in distinct[:1] + distinct[-1:]:
        if not 0 <= c < num_classes:
            _refuse_id(c, num_classes)
    return distinct


def _class_id(each: Any) -> int:
    try:
        return operator.index(each)
    except TypeError:
        raise TypeError(f"active has {_show(each)}, among its class ids; {_ACTIVE_FORMS}") from None


def _is_boolean(each: object) -> bool:
    return isinstance(each, bool | np.bool_) or getattr(each, "dtype", None) == torch.bool


def _refuse_id(class_id: int, num_classes: int) -> NoReturn:
    raise ValueError(f"active has class id {class_id}, which is not in 0..{num_classes - 1}")


def _from_numpy(name: str, value: Any) -> Any:
    """Convert an array to a tensor; return anything else unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    try:
        return torch.from_numpy(value.copy())  # torch cannot share reversed or read-only arrays
    except TypeError:
        raise TypeError(f"{name} is an array of {value.dtype}, which torch cannot hold") from None


def _broadcasts(given: Sequence[int], shape: Sequence[int]) -> bool:
    sizes = zip(reversed(given), reversed(shape), strict=False)
    return len(given) <= len(shape) and all(have in (1, want) for have, want in sizes)


def _show(value: object) -> str:
    return f"{value!r:.60}, of type {type(value).__name__}"


def classes_last(
    logits: Tensor, active: Active, mask_value: MaskValue, dim: int
) -> tuple[Tensor, Active, MaskValue]:
    """Move the axis ``dim`` of the logits, and of what has all their axes, to the end."""
    ndim = logits.ndim
    if dim in (-1, ndim - 1):
        return logits, active, mask_value
    if not -ndim <= dim < ndim:
        raise ValueError(f"dim is {dim}; logits {list(logits.shape)} have no such axis")

    def moved(name: str, value: Any) -> Any:
        value = _from_numpy(name, value)
        if not isinstance(value, Tensor) or value.ndim <= 1:
            return value
        if value.ndim != ndim:
            raise ValueError(
                f"{name} has shape {list(value.shape)}; with dim={dim} it needs one value per "
                f"class, [K], or all {ndim} axes of the logits"
            )
        return value.movedim(dim, -1)

    return logits.movedim(dim, -1), moved("active", active), moved("mask_value", mask_value)


def check_layout(logits: Tensor, target: Tensor, dim: int | None) -> None:
    """Refuse logits of four or more axes whose classes may be the last axis or axis 1."""
    shape, given = list(logits.shape), list(target.shape)
    if dim is None and len(shape) > 3 and (given == shape or given == shape[:-1] == _torch(shape)):
        raise ValueError(
            f"{shape} with targets {given} may have the classes or features on the last axis or, "
            "as in torch, on axis 1: give dim=-1 or dim=1"
        )


def _torch(shape: list[int]) -> list[int]:
    """Return the shape of the targets where the classes are axis 1."""
    return [shape[0], *shape[2:]]


def as_labels(target: Tensor, shape: Sequence[int]) -> Tensor:
    """Return integer targets as int64 after comparing them with the ``[..., K]`` they belong to."""
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise ValueError(
            f"target needs integer class ids; got {describe(target)}. Class probabilities need the "
            "shape of the logits, and masked_cross_entropy"
        )
    if target.shape != shape[:-1]:
        hint = ""
        if len(shape) > 2 and list(target.shape) == _torch(list(shape)):
            hint = ". If axis 1 has the classes or features, as in torch, give dim=1"
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
    """Refuse a label that is no class, or not in its sample's active set."""
    nearest = labels.clamp(0, num_classes - 1)
    allowed, rows = labels == nearest, mask
    if rows is not None:
        rows = rows.expand(*labels.shape, num_classes)
        allowed &= rows.gather(-1, nearest.unsqueeze(-1)).squeeze(-1)
    wrong = ~allowed & (labels != ignore_index)
    if is_true(wrong.any()):
        ids = labels[:0] if rows is None else rows[wrong][0].nonzero().squeeze(1)
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
    """Raise for a label that is no class, or outside its active set."""
    if not 0 <= wrong[0] < num_classes:
        raise ValueError(f"target {wrong[0].item()} is not in 0..{num_classes - 1}")
    classes = sorted(set(ids.tolist()))
    shown = [*classes[:6], "...", classes[-1]] if len(classes) > 8 else classes
    raise ValueError(
        f"target {wrong[0].item()} is not in its active set {{{', '.join(map(str, shown))}}} "
        f"of {len(classes)} classes; add it to active, or leave the sample out with ignore_index"
    )


def describe(tensor: Tensor) -> str:
    """Return a tensor's dtype and shape, for messages."""
    return f"{tensor.dtype} {list(tensor.shape)}"


def is_true(condition: Tensor) -> bool:
    """Read a 0-d condition; False where it has no readable value (compiling, vmap, fake, meta)."""
    if torch.compiler.is_compiling():
        return False
    try:
        return bool(condition)
    except RuntimeError as error:
        if not cannot_be_read(error):
            raise
        return False


def cannot_be_read(error: RuntimeError) -> bool:
    """Whether torch raised this because a tensor has no values: under vmap, fake, meta, traced.

    Each raises a class of its own. Any other error, such as out of memory, is a real one.
    """
    return _WITHOUT_VALUES.search(f"{type(error).__name__}: {error}") is not None
