"""`dim`: the axis of the classes, for torch's layout."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from remask.losses import (
    MaskedCrossEntropy,
    masked_cross_entropy,
    masked_linear_cross_entropy,
    masked_log_softmax,
    masked_softmax,
)

B, K, H, W = 2, 4, 3, 5
ACTIVE = [1, 3]


def images(*shape: int) -> tuple[Tensor, Tensor]:
    """Logits [B, K, ...] and targets [B, ...] in ACTIVE."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()
    places = torch.randint(2, (shape[0], *shape[2:]), generator=generator)
    return logits, torch.tensor(ACTIVE)[places]


@pytest.mark.parametrize("shape", [(B, K), (B, K, H), (B, K, H, W), (B, K, K, K)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_without_a_mask_it_is_the_loss_of_torch(shape: tuple[int, ...], reduction: str) -> None:
    logits, target = images(*shape)
    weight = torch.linspace(0.5, 1.0, K, dtype=torch.float64)
    options: dict[str, Any] = {"reduction": reduction, "weight": weight, "label_smoothing": 0.1}
    loss = masked_cross_entropy(logits, target, None, dim=1, **options)
    torch.testing.assert_close(loss, F.cross_entropy(logits, target, **options))


@pytest.mark.parametrize("dim", [1, -3])
@pytest.mark.parametrize(
    "mask_value", [-1.0, torch.linspace(-2, 0, K), np.full((1, K, 1, 1), -3.0)]
)
def test_it_is_the_loss_with_the_classes_moved_last(dim: int, mask_value: Any) -> None:
    logits, target = images(B, K, H, W)
    last = logits.detach().movedim(1, -1).requires_grad_()
    moved = (
        torch.tensor(mask_value[0, :, 0, 0]) if isinstance(mask_value, np.ndarray) else mask_value
    )
    loss = masked_cross_entropy(logits, target, ACTIVE, mask_value, dim=dim)
    expected = masked_cross_entropy(last, target, ACTIVE, moved)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        torch.autograd.grad(loss, logits)[0].movedim(1, -1), torch.autograd.grad(expected, last)[0]
    )
    for function in (masked_softmax, masked_log_softmax):
        found = function(logits, ACTIVE, mask_value, dim=dim)
        assert found.shape == logits.shape
        torch.testing.assert_close(found.movedim(1, -1), function(last, ACTIVE, moved))
    module = MaskedCrossEntropy(mask_value, dim=dim)
    torch.testing.assert_close(module(logits, target, ACTIVE), expected)
    assert f"dim={dim}" in repr(module)


def test_a_mask_is_per_class_or_has_all_axes_of_the_logits() -> None:
    logits, target = images(B, K, H, W)
    mask = torch.zeros(K, dtype=torch.bool)
    mask[ACTIVE] = True
    expected = masked_cross_entropy(logits, target, ACTIVE, dim=1)
    whole = mask.view(1, K, 1, 1).expand(B, K, H, W)
    for form in (mask, mask.view(1, K, 1, 1), whole, whole.numpy()):
        loss = masked_cross_entropy(logits, target, form, dim=1)
        torch.testing.assert_close(loss, expected)
    with pytest.raises(
        ValueError, match=r"with dim=1 it needs one value per class, \[K\], or all 4"
    ):
        masked_cross_entropy(logits, target, whole[0], dim=1)


def test_a_linear_head_takes_features_in_that_layout() -> None:
    features, target = images(B, 6, H, W)
    weight = torch.randn(K, 6, dtype=torch.float64)
    loss = masked_linear_cross_entropy(features, weight, None, target, ACTIVE, -1.0, dim=1)
    logits = torch.einsum("kd,bdhw->bkhw", weight, features)
    expected = masked_cross_entropy(logits, target, ACTIVE, -1.0, dim=1)
    torch.testing.assert_close(loss, expected)


def test_the_layout_of_torch_is_refused_with_a_message_that_names_dim() -> None:
    logits, target = images(B, K, H, W)
    with pytest.raises(ValueError, match="on axis 1, as in torch, give dim=1"):
        masked_cross_entropy(logits, target, ACTIVE)
    ambiguous, target = images(B, K, K, K)
    with pytest.raises(ValueError, match="give dim=-1 or dim=1"):
        masked_cross_entropy(ambiguous, target, ACTIVE)
    with pytest.raises(ValueError, match="give dim=-1 or dim=1"):
        masked_linear_cross_entropy(ambiguous, torch.zeros(9, K), None, target, ACTIVE)
    assert masked_cross_entropy(ambiguous, target, ACTIVE, dim=-1).isfinite()


@pytest.mark.parametrize("dim", [4, -5])
def test_an_axis_that_the_logits_do_not_have_is_refused(dim: int) -> None:
    logits, target = images(B, K, H, W)
    with pytest.raises(IndexError, match=f"range of .* but got {dim}"):
        masked_cross_entropy(logits, target, ACTIVE, dim=dim)
