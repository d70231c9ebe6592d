"""Small nets, and stacks that are trained to their end."""

from torch import Tensor, nn

from remask.engine import TrialStack
from remask.nets import mlp, resnet18


def small_mlp(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return mlp(shape, num_classes, hidden=(8, 7))


def small_resnet(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return resnet18(shape, num_classes, width=4)


def batch_normed(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(shape[0], 4, 2, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, num_classes),
    )


def finish(stack: TrialStack) -> TrialStack:
    for _ in stack.run():
        pass
    return stack


def snapshot(stack: TrialStack) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in stack.state().items()}
