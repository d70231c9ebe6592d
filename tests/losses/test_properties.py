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
ANY_VALUES = st.one_of(MASK_VALUES, st.floats(0.0, 5.0), st.floats(0.0, 1e9))
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


# ---- m past 0, per class, and changing ----------------------------------------------------------


@quick
@given(problems(), st.data())
def test_whatever_m_is_for_each_class_the_gradient_is_bounded_and_zero_where_masked(
    problem: tuple[Tensor, Tensor, Tensor], data: st.DataObject
) -> None:
    logits, active, target = problem
    num_classes = logits.shape[-1]
    drawn = data.draw(st.lists(ANY_VALUES, min_size=num_classes, max_size=num_classes))
    m = torch.tensor(drawn, dtype=torch.float64)
    losses = masked_cross_entropy(logits, target, active, m, reduction="none", allow_positive=True)
    assert losses.isfinite().all()
    assert (losses >= 0).all()
    (grad,) = torch.autograd.grad(losses.sum(), logits)
    assert grad.isfinite().all()
    assert (grad.abs() <= 1).all()
    assert (grad[~active] == 0).all()
    truth = F.one_hot(target, num_classes).bool()
    assert (grad[truth] <= 0).all()
    assert (grad[active & ~truth] >= 0).all()
    # Together the active logits are pushed up, by the probability that the masked ones hold.
    held = torch.where(active, 0.0, torch.where(active, logits.detach(), m).softmax(-1)).sum(-1)
    torch.testing.assert_close(grad.sum(-1), -held, atol=1e-9, rtol=0)


@quick
@given(problems(), st.floats(0.0, 30.0), st.booleans())
def test_the_linear_head_and_the_trial_core_take_m_above_0_as_the_full_loss_does(
    problem: tuple[Tensor, Tensor, Tensor], m: float, per_class: bool
) -> None:
    logits, active, target = problem
    shared, num_classes = active.any(0), logits.shape[-1]
    value = torch.linspace(-1, m, num_classes).double() if per_class else torch.tensor(m).double()
    full = masked_cross_entropy(logits, target, shared, value, allow_positive=True)
    features, weight = torch.eye(len(target)).double(), logits.detach().T.contiguous()
    head = masked_linear_cross_entropy(
        features, weight, None, target, shared, value, allow_positive=True
    )
    torch.testing.assert_close(head, full)
    core = trial_cross_entropy(logits[None], target[None], shared, value.expand(1, 1, num_classes))
    torch.testing.assert_close(core[0], full)
