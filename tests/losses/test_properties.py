"""Properties of the masked softmax family that hold for every input, searched by hypothesis."""

import math

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from remask.losses import (
    masked_cross_entropy,
    masked_linear_cross_entropy,
    masked_softmax,
    trial_cross_entropy,
)

MASK_VALUES = st.one_of(st.just(-math.inf), st.floats(-1e9, 0.0), st.floats(-5.0, 0.0))
quick = settings(max_examples=60, deadline=None)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Draw logits [B, K], one non-empty active set per sample [B, K], and a target inside each."""
    num_classes, batch = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    value = st.floats(-30.0, 30.0, width=32)
    rows = st.lists(value, min_size=num_classes, max_size=num_classes)
    logits = torch.tensor([draw(rows) for _ in range(batch)], dtype=torch.float64)
    active = torch.zeros(batch, num_classes, dtype=torch.bool)
    target = torch.zeros(batch, dtype=torch.long)
    for b in range(batch):
        ids = draw(st.sets(st.integers(0, num_classes - 1), min_size=1))
        active[b, sorted(ids)] = True
        target[b] = draw(st.sampled_from(sorted(ids)))
    return logits.requires_grad_(), active, target


@quick
@given(problems(), MASK_VALUES)
def test_probabilities_sum_to_one_and_follow_the_formula(
    problem: tuple[Tensor, Tensor, Tensor], m: float
) -> None:
    logits, active, _ = problem
    probs = masked_softmax(logits, active, m)
    weight = torch.where(active, logits.exp(), math.exp(m))
    torch.testing.assert_close(probs, weight / weight.sum(-1, keepdim=True))
    torch.testing.assert_close(probs.sum(-1), torch.ones_like(probs[:, 0]))


@quick
@given(problems(), MASK_VALUES)
def test_the_gradient_is_softmax_minus_one_hot_on_the_active_classes_and_zero_elsewhere(
    problem: tuple[Tensor, Tensor, Tensor], m: float
) -> None:
    logits, active, target = problem
    loss = masked_cross_entropy(logits, target, active, m, reduction="sum")
    (grad,) = torch.autograd.grad(loss, logits)
    weight = torch.where(active, logits.detach().exp(), math.exp(m))
    expected = weight / weight.sum(-1, keepdim=True) - F.one_hot(target, logits.shape[-1])
    assert (grad[~active] == 0).all()
    torch.testing.assert_close(grad[active], expected[active])


@quick
@given(problems(), MASK_VALUES, MASK_VALUES)
def test_a_higher_mask_value_never_lowers_the_loss(
    problem: tuple[Tensor, Tensor, Tensor], m: float, other: float
) -> None:
    logits, active, target = problem
    low, high = (
        masked_cross_entropy(logits, target, active, value, reduction="none")
        for value in sorted((m, other))
    )
    assert (low <= high + 1e-12).all()


@quick
@given(problems(), st.floats(0.0, 1.0))
def test_minus_infinity_is_torch_on_the_sliced_logits(
    problem: tuple[Tensor, Tensor, Tensor], smoothing: float
) -> None:
    logits, active, target = problem
    losses = masked_cross_entropy(
        logits, target, active, reduction="none", label_smoothing=smoothing
    )
    for b, loss in enumerate(losses):
        ids = active[b].nonzero().squeeze(1)
        label = (ids == target[b]).nonzero().squeeze()
        expected = F.cross_entropy(logits[b, ids], label, label_smoothing=smoothing)
        torch.testing.assert_close(loss, expected)


@quick
@given(problems(), MASK_VALUES)
def test_the_trial_core_agrees_with_the_checked_loss(
    problem: tuple[Tensor, Tensor, Tensor], m: float
) -> None:
    logits, active, target = problem
    value = torch.full((1, 1, 1), m, dtype=torch.float64)
    core = trial_cross_entropy(logits[None], target[None], active, value)
    torch.testing.assert_close(core[0], masked_cross_entropy(logits, target, active, m))


@quick
@given(problems(), MASK_VALUES, st.booleans())
def test_the_linear_head_agrees_with_the_full_one(
    problem: tuple[Tensor, Tensor, Tensor], m: float, sparse: bool
) -> None:
    # The drawn logits serve as the weight [K, B] of a head over one-hot features.
    logits, active, target = problem
    shared = active.any(0)
    weight = logits.detach().T.contiguous().requires_grad_()
    bias = torch.linspace(-1, 1, len(shared), dtype=torch.float64).requires_grad_()
    features = torch.eye(len(target), dtype=torch.float64)
    full = masked_cross_entropy(F.linear(features, weight, bias), target, shared, m)
    short = masked_linear_cross_entropy(features, weight, bias, target, shared, m, sparse=sparse)
    torch.testing.assert_close(short, full)
    wanted = torch.autograd.grad(full, (weight, bias))
    grads = torch.autograd.grad(short, (weight, bias))
    torch.testing.assert_close([g.to_dense() for g in grads], list(wanted))
