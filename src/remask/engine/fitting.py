"""Whether saved tensors fit what they are to be put into."""

import math
import re
from collections.abc import Mapping

from torch import Tensor

_SHAPE = re.compile(r"\[([0-9]{1,15}(, [0-9]{1,15}){0,15})?\]")


def kinds(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Type and shape of each tensor, written down: `torch.float32 [10, 784]`."""
    return {name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in tensors.items()}


def is_like(kind: str, tensor: Tensor) -> bool:
    """Whether a tensor that is written down has the type and as many axes as another."""
    written = kind.startswith(f"{tensor.dtype} ") and _SHAPE.fullmatch(kind.partition(" ")[2])
    return bool(written) and len(_shape(kind)) == tensor.ndim


def bytes_of(kind: str, tensor: Tensor) -> int:
    """How many bytes a tensor takes that is written down, and has the type of another."""
    return math.prod(_shape(kind)) * tensor.element_size()


def check_fit(
    saved: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    owner: str,
    growing: tuple[str, ...] = (),
) -> None:
    """Refuse tensors of other names, shapes or types than the owner's; raises ValueError.

    Of those whose names begin with `growing`, only the number of axes must be the same.
    """
    if odd := sorted(saved.keys() ^ own.keys()):
        raise ValueError(f"{owner} has other tensors than were saved: {', '.join(odd[:5])}")
    for name, tensor in own.items():
        found = saved[name]
        may_grow = name.startswith(growing)
        fits = found.ndim == tensor.ndim if may_grow else found.shape == tensor.shape
        if not fits or found.dtype != tensor.dtype:
            raise ValueError(
                f"the saved {name} is {found.dtype} {list(found.shape)}, that of {owner} is "
                f"{tensor.dtype} {list(tensor.shape)}"
            )


def _shape(kind: str) -> list[int]:
    return [int(size) for size in re.findall("[0-9]+", kind.partition(" ")[2])]
