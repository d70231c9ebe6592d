"""Measure random crops and mirrorings of batches of bytes against a loop of Pillow calls.

Run with ``python benchmarks/augmentation.py``; without Pillow only our own time is measured. One
process and one thread; CPU time; the contestants take turns, medians. Images of CIFAR's shape.

- batched: `Cropper`, from a tensor of bytes to a tensor of bytes.
- Pillow: image by image, from an array to an array, as the dataset of a data loader does it.
- Pillow, calls only: the same from image to image, without the arrays at both ends.
"""

import argparse
import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from remask.data.augmentation import Cropper, plan_views

PADDING, SIZE = 4, 32


def contestants(count: int) -> dict[str, Callable[[], object]]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (1, count, 3, SIZE, SIZE), dtype=torch.uint8, generator=generator)
    views = plan_views(steps=1, samples=count, padding=PADDING, flip=True, seeds=[0], key=())
    cropper = Cropper((3, SIZE, SIZE), PADDING)
    starts = cropper.starts(views)[0]
    work: dict[str, Callable[[], object]] = {"batched": lambda: cropper(images, starts)}
    try:
        pillow: Any = importlib.import_module("PIL.Image")
        operations: Any = importlib.import_module("PIL.ImageOps")
    except ImportError:
        print("Pillow is not installed: pip install pillow")
        return work

    arrays = list(images[0].permute(0, 2, 3, 1).contiguous().numpy())
    pictures = [pillow.fromarray(array) for array in arrays]
    drawn = (views.tops, views.lefts, views.mirrored)
    places = list(zip(*[part.flatten().tolist() for part in drawn], strict=True))

    def see(picture: Any, top: int, left: int, mirrored: bool) -> Any:
        framed = operations.expand(picture, PADDING)
        crop = framed.crop((left, top, left + SIZE, top + SIZE))
        return crop.transpose(pillow.Transpose.FLIP_LEFT_RIGHT) if mirrored else crop

    def from_array_to_array() -> np.ndarray[Any, Any]:
        pairs = zip(arrays, places, strict=True)
        return np.stack([np.asarray(see(pillow.fromarray(array), *at)) for array, at in pairs])

    ours = cropper(images, starts)[0].permute(0, 2, 3, 1).numpy()
    np.testing.assert_array_equal(from_array_to_array(), ours)
    work["Pillow"] = from_array_to_array
    work["Pillow, calls only"] = lambda: [
        see(picture, *at) for picture, at in zip(pictures, places, strict=True)
    ]
    return work


def contest(count: int, rounds: int) -> dict[str, float]:
    """Microseconds an image of each contestant."""
    work = contestants(count)
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            start = time.process_time()
            for _ in range(10):
                run()
            seconds[name].append(time.process_time() - start)
    return {name: 1e6 * statistics.median(s) / (10 * count) for name, s in seconds.items()}


def main(arguments: Sequence[str] | None = None) -> dict[int, dict[str, float]]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="of 10 batches each, at least 1")
    options = parser.parse_args(arguments)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measured = {count: contest(count, options.rounds) for count in (32, 96)}
    finally:
        torch.set_num_threads(threads)
    for count, microseconds in measured.items():
        print(f"{count} images at once")
        for name, value in microseconds.items():
            ratio = value / microseconds["batched"]
            target = "   (target: at least 10)" if name == "Pillow" else ""
            print(f"  {name:20s} {value:8.2f} us an image   {ratio:6.1f} times batched{target}")
    return measured


if __name__ == "__main__":
    main()
