"""Measure how much faster a masked linear head is than the full one, forward and backward.

Run with ``python benchmarks/linear_head.py``. One thread, CPU time; the contestants take turns
within one run, so that a busy machine slows them alike; medians.
"""

import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from timing import cpu_seconds, one_thread
from torch import Tensor

from remask.losses import masked_linear_cross_entropy


def seconds(step: Callable[[], Tensor], parameters: list[Tensor]) -> float:
    """The CPU time of one forward and backward, with fresh gradients."""
    for parameter in parameters:
        parameter.grad = None
    return cpu_seconds(lambda: torch.autograd.backward(step()))


def main(
    num_classes: int = 100_000,
    num_features: int = 512,
    num_active: int = 100,
    batch: int = 32,
    rounds: int = 15,
) -> dict[str, float]:
    """Return the median seconds of each head and the ratios to the full one."""
    torch.manual_seed(0)
    features = torch.randn(batch, num_features, requires_grad=True)
    weight = torch.randn(num_classes, num_features).mul_(0.01).requires_grad_()
    bias = torch.zeros(num_classes, requires_grad=True)
    ids = torch.randperm(num_classes)[:num_active].tolist()
    target = torch.tensor(ids)[torch.randint(num_active, (batch,))]

    def full() -> Tensor:
        return F.cross_entropy(F.linear(features, weight, bias), target)

    def masked(sparse: bool) -> Tensor:
        return masked_linear_cross_entropy(features, weight, bias, target, ids, -1.0, sparse=sparse)

    contestants: dict[str, Callable[[], Tensor]] = {
        "full": full,
        "masked_sparse": lambda: masked(sparse=True),
        "masked_dense": lambda: masked(sparse=False),
    }
    times: dict[str, list[float]] = {name: [] for name in contestants}
    with one_thread():
        for _ in range(rounds + 2):
            for name, step in contestants.items():
                times[name].append(seconds(step, [features, weight, bias]))
    # The first two rounds warm up the allocator and the caches.
    measured = {name: statistics.median(values[2:]) for name, values in times.items()}
    for name in ("masked_sparse", "masked_dense"):
        measured[f"ratio_{name}"] = measured["full"] / measured[name]
    print(
        f"K={num_classes:,}, {num_features} features, {num_active} active, batch {batch}, 1 thread"
    )
    print(f"full head           {measured['full'] * 1e3:9.3f} ms")
    for name in ("masked_sparse", "masked_dense"):
        print(
            f"{name:19s} {measured[name] * 1e3:9.3f} ms   {measured[f'ratio_{name}']:.1f}x faster"
        )
    return measured


if __name__ == "__main__":
    main()
