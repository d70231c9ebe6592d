"""Products of stacked matrices, by the faster of the two libraries that torch has for them.

torch multiplies float32 matrices with MKL, which leaves AVX-512 unused on AMD's processors. oneDNN,
which torch has for convolutions, uses it wherever it is: large products take half the time.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_LEAST_WORK = 2_500_000  # multiplications per trial: with fewer, calls trial by trial gain nothing
_CPUINFO = Path("/proc/cpuinfo")
# What torch.compile makes of linear layers on a CPU; None in a torch that does not have it.
_OPERATOR: Any = getattr(getattr(torch.ops.mkldnn, "_linear_pointwise", None), "default", None)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer of each trial: [S, n, in], [S, out, in], [S, out] -> [S, n, out]."""
    across = weight.mT
    if _by_onednn(inputs, across):
        return _stacked([_onednn(*own) for own in zip(inputs, across, bias, strict=True)])
    return torch.baddbmm(bias.unsqueeze(1), inputs, across)


def product(one: Tensor, other: Tensor) -> Tensor:
    """The product of each trial's matrices: [S, n, k], [S, k, m] -> [S, n, m]."""
    if _by_onednn(one, other):
        return _stacked([_onednn(*own) for own in zip(one, other, strict=True)])
    return torch.bmm(one, other)


def add_product_(total: Tensor, one: Tensor, other: Tensor) -> None:
    """Add it to [S, n, m]."""
    if _by_onednn(one, other):
        for own, *factors in zip(total, one, other, strict=True):
            own.add_(_onednn(*factors))
    else:
        total.baddbmm_(one, other)


def _by_onednn(one: Tensor, other: Tensor) -> bool:
    """Whether oneDNN is faster. It depends on what one trial has: its bits are those it has alone.

    Autograd does not support the operator well enough.
    """
    work = one.numel() * other.shape[2]  # of all trials; most products end here
    return work >= _LEAST_WORK and (
        work >= _LEAST_WORK * len(one)
        and one.device.type == "cpu"
        and one.dtype == torch.float32
        and not (torch.is_grad_enabled() and (one.requires_grad or other.requires_grad))
        and _mkl_leaves_avx512_unused()
    )


@cache
def _mkl_leaves_avx512_unused() -> bool:
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch._C.has_mkl:
        return False
    try:
        described = _CPUINFO.read_text()
    except OSError:
        return False
    return "AuthenticAMD" in described and _operator_works()


def _operator_works() -> bool:
    """Whether this torch has the operator, and as it is called here: nothing promises that."""
    if _OPERATOR is None:
        return False
    try:
        said = _onednn(torch.ones(2, 3), torch.ones(3, 4), torch.ones(4))
    except (RuntimeError, TypeError):
        return False
    return said.tolist() == [[4.0] * 4] * 2


def _onednn(one: Tensor, other: Tensor, bias: Tensor | None = None) -> Tensor:
    """[n, k], [k, m] and perhaps [m] -> [n, m], whatever their strides."""
    product: Tensor = _OPERATOR(one, other.mT, bias, "none", [], "")
    return product


def _stacked(products: list[Tensor]) -> Tensor:
    return products[0].unsqueeze(0) if len(products) == 1 else torch.stack(products)
