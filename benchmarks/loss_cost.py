"""Measure the losses against ``F.cross_entropy``: forward and backward, eager and compiled.

Run with ``python benchmarks/loss_cost.py``. One thread, CPU time; all take turns in one run;
medians of the ratios.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from timing import cpu_seconds, one_thread
from torch import Tensor

from remask import masked_cross_entropy

SIZES = ((128, 10, 2, 200), (128, 1000, 100, 30), (4096, 1000, 100, 5), (512, 100_000, 10_000, 1))
"""(samples, classes, active classes, calls per turn)."""


def ratios(
    samples: int, classes: int, active: int, calls: int, *, rounds: int, compiled: bool
) -> dict[str, float]:
    """How many times as long as ``F.cross_entropy`` each call takes."""
    logits = torch.randn(samples, classes, requires_grad=True)
    labels = torch.randint(active, (samples,))
    mask = torch.arange(classes) < active
    ids, each = list(range(active)), mask.expand(samples, classes).clone()
    losses: dict[str, Callable[[Tensor], Tensor]] = {
        "F.cross_entropy": lambda z: F.cross_entropy(z, labels),
        "mask [K], unchecked": lambda z: masked_cross_entropy(z, labels, mask, -1.0, check=False),
        "mask [B, K], unchecked": lambda z: masked_cross_entropy(
            z, labels, each, -1.0, check=False
        ),
        "class ids, unchecked": lambda z: masked_cross_entropy(z, labels, ids, -1.0, check=False),
        "class ids, checked": lambda z: masked_cross_entropy(z, labels, ids, -1.0),
    }

    def step(loss: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        function = torch.compile(loss, fullgraph=True, dynamic=False) if compiled else loss

        def run() -> None:
            for _ in range(calls):
                logits.grad = None
                torch.autograd.backward(function(logits))

        return run

    steps = {name: step(loss) for name, loss in losses.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 2):
        for name in [*steps] if turn % 2 else [*steps][::-1]:
            taken = cpu_seconds(steps[name])
            if turn >= 2:  # the first ones compile and warm up
                seconds[name].append(taken)
    usual = seconds.pop("F.cross_entropy")
    return {
        name: statistics.median(a / b for a, b in zip(own, usual, strict=True))
        for name, own in seconds.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args(arguments)
    with one_thread():
        for compiled in (False, True):
            for size in SIZES:
                found = ratios(*size, rounds=options.rounds, compiled=compiled)
                for name, ratio in found.items():
                    mode = "compiled" if compiled else "eager"
                    print(
                        f"[{size[0]}, {size[1]}], {size[2]} active, {mode}, {name}: {ratio:.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
