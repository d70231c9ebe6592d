"""Whether saved tensors fit what they are to be put into."""

from collections.abc import Mapping

from torch import Tensor


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
