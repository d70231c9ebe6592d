"""Tasks that share classes: all classes in every task, or borders that are blurred."""

import torch
import torch.nn.functional as F
from torch import Tensor

from remask.data.classes import Tasks
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


def blur(labels: Tensor, tasks: Tasks, share: float) -> tuple[Tensor, Tasks]:
    """Move a share of the samples of each class to the neighbours of its task, drawn at random.

    Returns the task of each sample, int64 [N], and the classes of each task.
    """
    assigned = torch.zeros_like(labels)
    for number, classes in enumerate(tasks):
        near = torch.tensor([n for n in (number - 1, number + 1) if 0 <= n < len(tasks)])
        for label in classes:
            rows = (labels == label).nonzero().flatten()
            assigned[rows] = number
            count = round(share * len(rows)) if len(near) else 0
            moved = generator(label, "blur").permutation(len(rows))[:count]
            assigned[rows[moved]] = near[torch.arange(count) % max(1, len(near))]
    found = ([*dict.fromkeys(labels[assigned == n].tolist())] for n in range(len(tasks)))
    return assigned, tuple(tuple(sorted(classes)) for classes in found)
