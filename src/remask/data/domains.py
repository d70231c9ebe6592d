"""The images of domain-incremental benchmarks: every task has all classes, seen in its own way."""

import torch
import torch.nn.functional as F
from torch import Tensor

from remask.randomness import generator


def in_domains(images: Tensor, kind: str, tasks: int) -> tuple[Tensor, Tensor]:
    """Deal images [N, C, H, W] to tasks in turn, and change those of each task in its own way.

    Returns the images, and the task of each: int64 [N]. No image is in two tasks.
    """
    changed = images.clone()
    for task in range(tasks):
        own = images[task::tasks]
        changed[task::tasks] = (
            permute(own, task) if kind == "permuted" else rotate(own, 180 * task / tasks)
        )
    return changed, torch.arange(len(images)) % tasks


def permute(images: Tensor, task: int) -> Tensor:
    """Permute the pixels of images [N, C, H, W], all in the same way; those of task 0 stay."""
    pixels = images.flatten(2)
    order = torch.arange(pixels.shape[2])
    if task:
        order = torch.from_numpy(generator(task, "permuted pixels").permutation(len(order)))
    return pixels[..., order].view_as(images)


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Rotate bytes [N, C, H, W] anticlockwise about their centre; corners become 0."""
    angle = torch.tensor(degrees).deg2rad()
    cosine, sine, zero = angle.cos(), angle.sin(), torch.zeros(())
    turn = torch.stack([cosine, -sine, zero, sine, cosine, zero]).view(1, 2, 3)
    places = F.affine_grid(turn, [1, *images.shape[1:]], align_corners=False)
    turned = F.grid_sample(
        images.float(), places.expand(len(images), -1, -1, -1), align_corners=False
    )
    return turned.round().clamp(0, 255).to(torch.uint8)
