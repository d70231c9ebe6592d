"""What the recipes share: ten digits in five tasks, and a comparison with and without the mask."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from remask import load_benchmark

_DIGITS = load_benchmark("split-digits")  # 8 x 8 pixels; they ship with remask


def tasks() -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Give five times the classes of a task, their images [N, 1, 8, 8] and their labels [N]."""
    for classes in _DIGITS.tasks:
        chosen = torch.isin(_DIGITS.train_labels, torch.tensor(classes))
        yield (
            list(classes),
            _DIGITS.train_inputs[chosen] * _DIGITS.scale,
            _DIGITS.train_labels[chosen],
        )


def compare(train: Callable[[bool], Callable[[Tensor], Tensor]]) -> None:
    """Train with and without the mask; print the accuracy on all but the last task, and on all."""
    is_old = ~torch.isin(_DIGITS.test_labels, torch.tensor(_DIGITS.tasks[-1]))
    for name, masked in (("without the mask", False), ("with the mask", True)):
        torch.manual_seed(0)
        guesses = train(masked)(_DIGITS.test_inputs * _DIGITS.scale).argmax(-1)
        right = (guesses == _DIGITS.test_labels).double()
        print(f"{name}: {right[is_old].mean():.1%} of old classes, {right.mean():.1%} of all")
