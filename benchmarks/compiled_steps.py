"""How long a step takes with `compile=True`, as a ratio to one without; how long compiling takes.

DER++ on random images, one thread, CPU time. Blocks of steps with and without it take turns, so
that a busy machine slows both alike.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from functools import partial

import torch
from contest import trial_configs
from timing import cpu_seconds, take
from torch import Tensor

from remask.benchmarks import Benchmark
from remask.classes import split_classes
from remask.engine import TrialStack

CASES = {
    "mlp, S = 1": ("mlp", 1),
    "mlp, S = 10": ("mlp", 10),
    "resnet18:20, S = 1": ("resnet18:20", 1),
}


def random_images(shape: tuple[int, ...], count: int) -> Benchmark:
    """One task of ten classes."""
    generator = torch.Generator().manual_seed(0)

    def part(size: int) -> tuple[Tensor, Tensor]:
        images = torch.randint(256, (size, *shape), dtype=torch.uint8, generator=generator)
        return images, torch.arange(size) % 10

    return Benchmark("random", *part(count), *part(100), split_classes(10, 1), 1 / 255)


def measure(net: str, trials: int) -> None:
    """Print the ratio for one net and number of trials."""
    wide = net != "mlp"
    batch, warm, block, blocks = (32, 3, 1, 15) if wide else (10, 30, 25, 40)
    benchmark = random_images(
        (3, 32, 32) if wide else (1, 28, 28), batch * (warm + block * blocks + 1)
    )
    configs = trial_configs(trials, benchmark="random", net=net, batch=batch, replay_batch=batch)
    compiled = TrialStack(configs, benchmark, compile=True).run()
    plain = TrialStack(configs, benchmark).run()
    began = time.perf_counter()
    take(compiled, warm)
    compiling = time.perf_counter() - began
    take(plain, warm)
    ratios = []
    for _ in range(blocks):
        seconds = [cpu_seconds(partial(take, steps, block)) for steps in (compiled, plain)]
        ratios.append(seconds[0] / seconds[1])
    low, middle, high = statistics.quantiles(ratios, n=4)
    spread = f"{middle:.2f} ({low:.2f} to {high:.2f})"
    print(f"{net}, S = {trials}: {spread}, first steps in {compiling:.0f} s")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("case", nargs="*", help=f"of {', '.join(map(repr, CASES))}; default: all")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print("compiled / not compiled, CPU time per step: median (middle half)")
    for case in options.case or CASES:
        measure(*CASES[case])


if __name__ == "__main__":
    main()
