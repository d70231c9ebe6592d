"""Measure the engine's DER++ step of a ResNet-18 against a bare step.

Run with ``python benchmarks/resnet_step.py``. One process and one thread; CPU time. They take turns
step by step; the medians of the ratios of each turn.

- engine: a stack of one trial on random images of CIFAR's shape. All that belongs to a step counts:
  gathering, cropping, mirroring, normalising, three forwards, the descent, filling the memory.
- bare: the same module with channels last and torch.optim.SGD, on the very batches that the engine
  has just made: three forwards, one backward, one step, and nothing else.

Both start from the same weights. The largest difference between the engine's weights and the bare
ones after the first step with replay is printed: it shows that they do the same work. Later it says
nothing, because training multiplies rounding errors (by about 10 per step at first, also between
two bare loops).
"""

import argparse
import functools
import statistics
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from timing import cpu_seconds, one_thread
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.data.classes import split_classes
from remask.engine import TrialStack
from remask.methods import DERpp, Step
from remask.nets.builders import net_builder

CLASSES = 10


class Watched(DERpp):
    """DER++ that leaves its latest step behind for the bare loop to repeat."""

    latest: Step

    def loss(self, step: Step) -> Tensor:
        """The loss of DER++."""
        type(self).latest = step
        return super().loss(step)


def random_images(samples: int, size: int) -> Benchmark:
    generator = torch.Generator().manual_seed(0)

    def part(count: int) -> tuple[Tensor, Tensor]:
        images = torch.randint(256, (count, 3, size, size), dtype=torch.uint8, generator=generator)
        return images, torch.arange(count) % CLASSES

    return Benchmark(
        "random",
        *part(samples),
        *part(CLASSES),
        split_classes(CLASSES, 1),
        scale=1 / 255,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2615),
        crop_padding=4,
        flip=True,
    )


class Bare:
    """The module and its optimiser, and nothing around them."""

    def __init__(self, net: nn.Module, config: TrialConfig) -> None:
        self.net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.net.train()
        self.optimiser = torch.optim.SGD(self.net.parameters(), lr=config.lr)
        self.config = config

    def prepare(self, step: Step) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """The engine's batches as plain tensors: (images, labels, recorded logits)."""
        recalled, *_ = step.replays or (None,)
        return [
            (
                batch.inputs[0].contiguous(memory_format=torch.channels_last),
                batch.labels[0],
                batch.recorded[0] if batch is recalled else None,
            )
            for batch in (step.stream, *step.replays)
        ]

    def step(self, batches: list[tuple[Tensor, Tensor, Tensor | None]]) -> None:
        """Learn from three batches, or from the first alone."""
        (images, labels, _), *replays = batches
        self.optimiser.zero_grad()
        loss = F.cross_entropy(self.net(images), labels)
        for images, labels, recorded in replays:
            if recorded is None:
                loss = loss + self.config.beta * F.cross_entropy(self.net(images), labels)
            else:
                loss = loss + self.config.alpha * F.mse_loss(self.net(images), recorded)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()


def largest_difference(stack: TrialStack, net: nn.Module) -> float:
    return max(
        float((stack.state()[f"net/{name}"][0] - value).abs().max().detach())
        for name, value in net.named_parameters()
    )


def contest(width: int, size: int, steps: int) -> dict[str, float]:
    config = TrialConfig(
        benchmark="random",
        method="derpp",
        net=f"resnet18:{width}",
        buffer=200,
        lr=0.01,
        batch=32,
        replay_batch=32,
        epochs=1,
        alpha=0.1,
        beta=0.5,
    )
    benchmark = random_images(32 * (steps + 2), size)
    stack = TrialStack([config], benchmark, method=Watched)
    net = net_builder(config.net)(benchmark.input_shape, CLASSES)
    net.load_state_dict(
        {
            name.removeprefix("net/"): value[0]
            for name, value in stack.state().items()
            if name.startswith("net/")
        }
    )
    bare = Bare(net, config)
    running: Iterator[object] = stack.run()
    seconds: dict[str, list[float]] = {"engine": [], "bare": []}
    apart = float("nan")
    # The first step has no memory to draw from yet, and the second meets three forwards for the
    # first time: both go uncounted.
    for turn in range(steps + 2):
        times = {"engine": cpu_seconds(functools.partial(next, running))}
        batches = bare.prepare(Watched.latest)
        times["bare"] = cpu_seconds(functools.partial(bare.step, batches))
        if turn == 1:
            apart = largest_difference(stack, net)
        if turn >= 2:
            for name, measured in seconds.items():
                measured.append(times[name])
    return {
        **{f"{name}_seconds": statistics.median(measured) for name, measured in seconds.items()},
        "engine_over_bare": statistics.median(
            engine / bare for engine, bare in zip(seconds["engine"], seconds["bare"], strict=True)
        ),
        "weights_apart": apart,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=9, help="of each, at least 1")
    parser.add_argument("--width", type=int, default=64, help="at least 16")
    parser.add_argument("--size", type=int, default=32, help="of the images, in pixels")
    options = parser.parse_args(arguments)
    if options.width < 16:
        # The engine would not, and with channels last oneDNN writes past its memory.
        parser.error("a width below 16 cannot be trained with channels last")
    with one_thread():
        measured = contest(options.width, options.size, options.steps)
    print(
        f"ResNet-18 of width {options.width}, images 3x{options.size}x{options.size}, DER++ with "
        f"three batches of 32; {options.steps} steps, 1 thread, CPU time"
    )
    for name in ("engine", "bare"):
        print(f"{name:7s} {measured[f'{name}_seconds']:8.3f} s per step")
    print(f"engine / bare   {measured['engine_over_bare']:.3f}")
    apart = measured["weights_apart"]
    print(f"largest difference of a weight after the first step with replay: {apart:.1e}")


if __name__ == "__main__":
    main()
