"""The masked softmax family against hand-made numbers, torch's own cross-entropy, and misuse."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from remask.losses import (
    Active,
    MaskedCrossEntropy,
    cross_entropy_and_slope,
    logit_mse,
    masked_binary_cross_entropy,
    masked_cross_entropy,
    masked_linear_cross_entropy,
    masked_log_softmax,
    masked_softmax,
    mse_and_slope,
    trial_cross_entropy,
)

INF = float("inf")
K = 6
ACTIVE = [1, 2, 4]
VALUES = [-INF, -1e9, -3.0, -0.5, 0.0]
PER_CLASS = torch.tensor([-INF, -9.0, -0.1, -2.0, -INF, 0.0], dtype=torch.float64)


def logits_and_targets(*lead: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(*lead, K, generator=generator, dtype=torch.float64).to(dtype)
    choice = torch.randint(len(ACTIVE), lead, generator=generator)
    return logits.requires_grad_(), torch.tensor(ACTIVE)[choice]


def bool_mask(ids: list[int], size: int = K) -> Tensor:
    mask = torch.zeros(size, dtype=torch.bool)
    mask[ids] = True
    return mask


def head(*lead: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Return features [*lead, 3], weight [K, 3] and bias [K], all wanting gradients."""
    generator = torch.Generator().manual_seed(3)
    shapes = [(*lead, 3), (K, 3), (K,)]
    features, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in shapes
    )
    return features, weight, bias


# ---- Values by hand ----------------------------------------------------------------------------


def test_minus_infinity_removes_the_masked_classes() -> None:
    logits = torch.tensor([[math.log(1.0), math.log(2.0), math.log(5.0)]])
    probs = masked_softmax(logits, [0, 1], -INF)
    torch.testing.assert_close(probs, torch.tensor([[1 / 3, 2 / 3, 0.0]]))
    loss = masked_cross_entropy(logits, torch.tensor([1]), [0, 1], -INF)
    assert loss.item() == pytest.approx(-math.log(2 / 3))


def test_a_finite_value_leaves_each_masked_class_as_a_fixed_competitor() -> None:
    # exp(z') is 1, 2 and twice exp(m) = 1/2, so the normaliser is 4.
    logits, m = torch.tensor([0.0, math.log(2.0), 8.0, -8.0]), math.log(1 / 2)
    probs = masked_softmax(logits, [0, 1], m)
    torch.testing.assert_close(probs, torch.tensor([1.0, 2.0, 0.5, 0.5]) / 4)
    loss = masked_cross_entropy(logits, torch.tensor(0), [0, 1], m)
    assert loss.item() == pytest.approx(math.log(4))


def test_the_value_of_a_masked_logit_does_not_matter_even_if_infinite() -> None:
    logits, target = logits_and_targets(5)
    changed = logits.detach().clone()
    changed[:, 0], changed[:, 3], changed[:, 5] = INF, -INF, math.nan
    changed.requires_grad_()
    values: list[float | Tensor] = [*VALUES, torch.tensor(-1.0), -torch.ones(5, 1), PER_CLASS]
    for m in values:
        a = masked_cross_entropy(logits, target, ACTIVE, m)
        b = masked_cross_entropy(changed, target, ACTIVE, m)
        assert a.item() == b.item()
        assert torch.equal(*torch.autograd.grad(a, logits), *torch.autograd.grad(b, changed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_very_low_values_agree_with_minus_infinity(dtype: torch.dtype) -> None:
    logits, target = logits_and_targets(16, dtype=dtype)
    limit = masked_cross_entropy(logits, target, ACTIVE, -INF)
    (limit_grad,) = torch.autograd.grad(limit, logits)
    for m in [-1e3, -1e6, -1e9]:
        loss = masked_cross_entropy(logits, target, ACTIVE, m)
        (grad,) = torch.autograd.grad(loss, logits)
        assert torch.equal(loss, limit)
        assert torch.equal(grad, limit_grad)


# ---- Special cases that torch already knows ----------------------------------------------------


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("targets", ["labels", "some ignored", "probabilities"])
@pytest.mark.parametrize("masked", [False, True])
def test_it_equals_torch_on_all_or_on_the_sliced_logits(
    reduction: str, smoothing: float, weighted: bool, targets: str, masked: bool
) -> None:
    logits, target = logits_and_targets(12)
    assert (target == 2).any()
    weight = torch.tensor([9.0, 0.5, 2.0, 0.0, 1.5, 7.0], dtype=torch.float64) if weighted else None
    active, kept = (ACTIVE, ACTIVE) if masked else (None, list(range(K)))
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
    renumbered = torch.tensor([kept.index(label) for label in target.tolist()])
    ignored = 2 if targets == "some ignored" else -100
    renumbered[target == ignored] = -100
    if targets == "probabilities":
        renumbered = torch.rand(12, len(kept), generator=torch.Generator().manual_seed(1)).double()
        target = torch.zeros(12, K)
        target[:, kept] = renumbered.float()
    loss = masked_cross_entropy(
        logits,
        target,
        active,
        -INF if masked else -2.0,
        weight=weight,
        ignore_index=ignored,
        **options,
    )
    expected = F.cross_entropy(
        logits[:, kept], renumbered, weight=None if weight is None else weight[kept], **options
    )
    torch.testing.assert_close(loss, expected)
    (ours,) = torch.autograd.grad(loss.sum(), logits)
    (theirs,) = torch.autograd.grad(expected.sum(), logits)
    torch.testing.assert_close(ours, theirs)


def test_label_smoothing_at_a_finite_value_spreads_over_the_active_classes() -> None:
    logits = torch.tensor([[0.0, 1.0, 5.0]], dtype=torch.float64)
    normaliser = math.log(1 + math.e + math.exp(-2.0))
    own, other = 1 - normaliser, 0 - normaliser
    loss = masked_cross_entropy(logits, torch.tensor([1]), [0, 1], -2.0, label_smoothing=0.1)
    assert loss.item() == pytest.approx(-(0.95 * own + 0.05 * other))


def test_smoothing_counts_each_samples_own_active_classes() -> None:
    logits, target = logits_and_targets(2)
    target = torch.tensor([1, 4])
    mask = torch.stack([bool_mask([1, 2, 4]), bool_mask([0, 4])])
    losses = masked_cross_entropy(logits, target, mask, reduction="none", label_smoothing=0.3)
    first = F.cross_entropy(logits[:1, [1, 2, 4]], torch.tensor([0]), label_smoothing=0.3)
    second = F.cross_entropy(logits[1:, [0, 4]], torch.tensor([1]), label_smoothing=0.3)
    torch.testing.assert_close(losses, torch.stack([first, second]))


def test_a_batch_of_ignored_targets_is_nan_in_the_mean_and_zero_in_the_sum_as_in_torch() -> None:
    logits, _ = logits_and_targets(3)
    target = torch.full((3,), -100)
    for smoothing in (0.0, 0.1):
        options: dict[str, Any] = {"label_smoothing": smoothing}
        assert masked_cross_entropy(logits, target, ACTIVE, **options).isnan()
        total = masked_cross_entropy(logits, target, ACTIVE, reduction="sum", **options)
        assert total.item() == 0


def test_one_hot_soft_targets_are_labels_at_any_mask_value() -> None:
    logits, target = logits_and_targets(8)
    for m in (-1.0, PER_CLASS):
        soft = F.one_hot(target, K).double()
        expected = masked_cross_entropy(logits, target, ACTIVE, m, label_smoothing=0.1)
        loss = masked_cross_entropy(logits, soft, ACTIVE, m, label_smoothing=0.1)
        torch.testing.assert_close(loss, expected)
        moved = masked_cross_entropy(logits.T, soft.T, ACTIVE, m, label_smoothing=0.1, dim=0)
        torch.testing.assert_close(moved, expected)


@pytest.mark.parametrize("active", [None, ACTIVE, bool_mask(ACTIVE).expand(4, K)])
def test_several_labels_have_the_binary_cross_entropy_of_the_active_classes(active: Active) -> None:
    logits, _ = logits_and_targets(4)
    kept = list(range(K)) if active is None else ACTIVE
    target = torch.zeros(4, K, dtype=torch.int64)
    target[0, 1] = target[0, 2] = target[3, 4] = 1
    factors = torch.linspace(0.5, 2.0, K, dtype=torch.float64)
    for reduction in ("mean", "sum"):
        loss = masked_binary_cross_entropy(
            logits, target, active, pos_weight=factors, reduction=reduction
        )
        expected = F.binary_cross_entropy_with_logits(
            logits[:, kept], target[:, kept].double(), pos_weight=factors[kept], reduction=reduction
        )
        torch.testing.assert_close(loss, expected)
    (grad,) = torch.autograd.grad(loss, logits)
    masked = [c for c in range(K) if c not in kept]
    assert (grad[:, masked] == 0).all()
    assert (grad[:, kept] != 0).all()
    each = masked_binary_cross_entropy(logits.T, target.T, kept, dim=0, reduction="none")
    assert each.shape == (K, 4)
    assert (each[masked] == 0).all()


def test_several_labels_are_refused_outside_the_active_set_and_in_another_shape() -> None:
    logits = torch.full((2, K), math.nan)
    with pytest.raises(ValueError, match=r"target\[1\] has class 3, which is not in its"):
        masked_binary_cross_entropy(logits, torch.eye(K)[[1, 3]], ACTIVE)
    with pytest.raises(ValueError, match=r"target has shape \[2\], but logits \[2, 6\]"):
        masked_binary_cross_entropy(logits, torch.tensor([1, 2]), ACTIVE)
    logits[:, ACTIVE] = 0.0
    loss = masked_binary_cross_entropy(logits, torch.eye(K)[[1, 2]], ACTIVE)
    assert loss.item() == pytest.approx(math.log(2))


# ---- Forms of the arguments --------------------------------------------------------------------


ONE_SET: list[Any] = [
    (4, 2, 1),
    {1, 2, 4},
    frozenset({1, 2, 4}),
    [1, 2, 4, 4, 1],
    torch.tensor([4, 1, 2, 2]),
    torch.tensor([1, 2, 4], dtype=torch.int32),
    np.array([4, 1, 2], dtype=np.uint8),
    np.array([1, 2, 4, 1])[::-1],
    [np.int64(1), np.uint8(2), torch.tensor(4)],
    bool_mask(ACTIVE),
    bool_mask(ACTIVE).numpy(),
]
FOR_ALL_SAMPLES: list[Active] = [
    bool_mask(ACTIVE).expand(2, 5, K),
    bool_mask(ACTIVE).view(1, 1, K),
    np.broadcast_to(bool_mask(ACTIVE).numpy(), (2, 5, K)),
]


@pytest.mark.parametrize("active", ONE_SET + FOR_ALL_SAMPLES)
def test_every_form_of_the_active_set_means_the_same(active: Active) -> None:
    logits, target = logits_and_targets(2, 5)
    expected = masked_cross_entropy(logits, target, ACTIVE, -1.0)
    assert torch.equal(masked_cross_entropy(logits, target, active, -1.0), expected)


@pytest.mark.parametrize("active", ONE_SET)
def test_the_linear_head_takes_every_form_of_one_set(active: Active) -> None:
    features, weight, bias = head(5)
    _, target = logits_and_targets(5)
    expected = masked_cross_entropy(F.linear(features, weight, bias), target, ACTIVE, -1.0)
    for sparse in (False, True):
        arguments = (features, weight, bias, target, active, -1.0)
        short = masked_linear_cross_entropy(*arguments, sparse=sparse)
        torch.testing.assert_close(short, expected)


def test_the_mask_value_is_a_constant_and_takes_the_dtype_of_the_logits() -> None:
    logits, target = logits_and_targets(2, 5, dtype=torch.float32)
    values = torch.tensor([[[-1.0]], [[-INF]]], dtype=torch.float64, requires_grad=True)
    loss = masked_cross_entropy(logits, target, ACTIVE, values)
    assert loss.dtype == torch.float32
    torch.autograd.backward(loss)
    assert values.grad is None
    assert masked_softmax(logits, ACTIVE, values).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_targets_may_have_any_integer_dtype(dtype: torch.dtype) -> None:
    logits, target = logits_and_targets(4)
    expected = masked_cross_entropy(logits, target, ACTIVE)
    assert torch.equal(masked_cross_entropy(logits, target.to(dtype), ACTIVE), expected)


def test_unsigned_targets_are_not_taken_for_the_ignored_one() -> None:
    # -100 wraps to 156 in uint8.
    logits = torch.zeros(1, 200)
    target = torch.tensor([156], dtype=torch.uint8)
    loss = masked_cross_entropy(logits, target, range(150, 160), reduction="sum")
    assert loss.item() == pytest.approx(math.log(10))


# ---- Precision and transformations -------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_half_precision_is_finite_and_close_to_double(dtype: torch.dtype, smoothing: float) -> None:
    values: list[float | Tensor] = [-INF, -1e9, -1.0, PER_CLASS]
    for m in values:
        logits, target = logits_and_targets(32, dtype=dtype)
        weight = torch.linspace(0.0, 2.0, K)
        options: dict[str, Any] = {"label_smoothing": smoothing, "weight": weight}
        loss = masked_cross_entropy(logits, target, ACTIVE, m, **options)
        (grad,) = torch.autograd.grad(loss, logits)
        exact = logits.detach().double().requires_grad_()
        expected = masked_cross_entropy(exact, target, ACTIVE, m, **options)
        (wanted,) = torch.autograd.grad(expected, exact)
        assert loss.dtype == dtype
        assert loss.item() == pytest.approx(expected.item(), rel=2e-2)
        torch.testing.assert_close(grad.double(), wanted, atol=2e-3, rtol=2e-2)


def test_autocast_is_finite_and_close_to_float32() -> None:
    features, weight, bias = head(16, dtype=torch.float32)
    _, target = logits_and_targets(16)
    values: list[float | Tensor] = [-INF, -1e9, -1.0, PER_CLASS]
    for m in values:
        expected = masked_cross_entropy(F.linear(features, weight, bias), target, ACTIVE, m)
        wanted = torch.autograd.grad(expected, weight)[0]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = F.linear(features, weight, bias)
            assert logits.dtype == torch.bfloat16
            full = masked_cross_entropy(logits, target, ACTIVE, m, label_smoothing=0.0)
            smooth = masked_cross_entropy(logits, target, ACTIVE, m, label_smoothing=0.1)
            linear = masked_linear_cross_entropy(features, weight, bias, target, ACTIVE, m)
        assert smooth.isfinite()
        for loss in (full, linear):
            assert loss.item() == pytest.approx(expected.item(), rel=2e-2)
            grad = torch.autograd.grad(loss, weight)[0]
            torch.testing.assert_close(grad, wanted, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("m", [-INF, -1.0, PER_CLASS])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_first_and_second_derivatives_match_finite_differences(
    m: float | Tensor, smoothing: float
) -> None:
    logits, target = logits_and_targets(4)

    def loss(z: Tensor) -> Tensor:
        return masked_cross_entropy(z, target, ACTIVE, m, label_smoothing=smoothing)

    assert torch.autograd.gradcheck(loss, (logits,))
    assert torch.autograd.gradgradcheck(loss, (logits,))
    assert torch.autograd.gradcheck(lambda z: masked_softmax(z, ACTIVE, m), (logits,))
    assert torch.autograd.gradgradcheck(lambda z: masked_softmax(z, ACTIVE, m), (logits,))


def test_the_trial_core_has_derivatives_of_both_orders() -> None:
    logits, target = logits_and_targets(2, 3)
    mask, m = bool_mask(ACTIVE), torch.tensor([-INF, -1.0], dtype=torch.float64).view(2, 1, 1)
    assert torch.autograd.gradcheck(lambda z: trial_cross_entropy(z, target, mask, m), (logits,))
    assert torch.autograd.gradgradcheck(
        lambda z: trial_cross_entropy(z, target, mask, m), (logits,)
    )


TRIAL_VALUES = [
    torch.tensor([-INF, -1.0, 0.0]),
    torch.stack([PER_CLASS, -torch.ones(K), torch.full((K,), -INF)]),
    -torch.arange(12.0).reshape(3, 4, 1),
]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("values", TRIAL_VALUES, ids=["per trial", "per class", "per sample"])
def test_vmap_over_trials_equals_a_loop(smoothing: float, values: Tensor) -> None:
    logits, target = logits_and_targets(3, 4)
    masks = torch.stack([bool_mask(ACTIVE), bool_mask([0, 1, 2, 4]), torch.ones(K).bool()])

    def loss(z: Tensor, y: Tensor, a: Tensor, m: Tensor) -> Tensor:
        return masked_cross_entropy(z, y, a, m, label_smoothing=smoothing)

    stacked = torch.vmap(loss)(logits, target, masks, values)
    loop = [loss(*row) for row in zip(logits, target, masks, values, strict=True)]
    torch.testing.assert_close(stacked, torch.stack(loop))
    grads = torch.vmap(torch.func.grad(loss))(logits, target, masks, values)
    (expected,) = torch.autograd.grad(torch.stack(loop).sum(), logits)
    torch.testing.assert_close(grads, expected)


def test_vmap_takes_batched_class_ids_and_shared_arguments() -> None:
    logits, target = logits_and_targets(2, 4)
    ids = torch.tensor([[1, 2, 4, 4], [0, 1, 2, 4]])
    stacked = torch.vmap(masked_cross_entropy)(logits, target, ids)
    loop = [masked_cross_entropy(z, y, i) for z, y, i in zip(logits, target, ids, strict=True)]
    torch.testing.assert_close(stacked, torch.stack(loop))
    shared = torch.vmap(lambda z, y: masked_cross_entropy(z, y, ACTIVE, -1.0))(logits, target)
    loop = [masked_cross_entropy(z, y, ACTIVE, -1.0) for z, y in zip(logits, target, strict=True)]
    torch.testing.assert_close(shared, torch.stack(loop))


@pytest.mark.parametrize("form", ["ids", "mask"])
@pytest.mark.parametrize("values", [torch.tensor([-INF, -1.0]), PER_CLASS.expand(2, K)])
def test_vmap_over_stacked_linear_heads_equals_a_loop(form: str, values: Tensor) -> None:
    features, weight, bias = head(2, 4)
    weights, biases = torch.stack([weight, -weight]), torch.stack([bias, 2 * bias])
    _, target = logits_and_targets(2, 4)
    ids = torch.tensor([[1, 2, 4, 4], [0, 1, 2, 4]])
    active = ids if form == "ids" else torch.stack([bool_mask(i) for i in ids.tolist()])
    args = (features, weights, biases, target, active, values)
    stacked = torch.vmap(masked_linear_cross_entropy)(*args)
    loop = [masked_linear_cross_entropy(*row) for row in zip(*args, strict=True)]
    torch.testing.assert_close(stacked, torch.stack(loop))


# Inductor imports a part of torch that warns of its own deprecation.
INDUCTOR = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=INDUCTOR)])
def test_compiled_without_graph_breaks_it_gives_the_same_numbers(backend: str) -> None:
    torch.compiler.reset()
    features, weight, bias = head(2, 5)
    _, target = logits_and_targets(2, 5)
    values = torch.tensor([-INF, -1.0], dtype=torch.float64).view(2, 1, 1)
    mask = bool_mask(ACTIVE)
    criterion = MaskedCrossEntropy(-1.0, weight=torch.ones(K), label_smoothing=0.1)

    def everything(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        z = F.linear(x, w, b)
        return torch.stack(
            [
                masked_cross_entropy(z, target, ACTIVE),
                masked_cross_entropy(z, target, range(K), -1.0, label_smoothing=0.1),
                masked_cross_entropy(z, target, {1, 2, 4}, -1.0),
                masked_cross_entropy(z, target, mask, values, weight=b.detach().exp()),
                masked_softmax(z, target.reshape(-1), -2.0).square().sum(),
                masked_linear_cross_entropy(x, w, b, target, (1, 2, 4), values),
                masked_linear_cross_entropy(x, w, b, target, target.reshape(-1), -1.0),
                masked_linear_cross_entropy(x, w, b, target, mask, -1.0),
                masked_cross_entropy(z[0], target[0], [ACTIVE] * 5, PER_CLASS),
                masked_linear_cross_entropy(x, w, b, target, ACTIVE, PER_CLASS),
                trial_cross_entropy(z, target, mask, values).sum(),
                criterion(z, target, ACTIVE),
            ]
        )

    compiled = torch.compile(everything, fullgraph=True, backend=backend)
    ours, theirs = compiled(features, weight, bias), everything(features, weight, bias)
    torch.testing.assert_close(ours, theirs)
    ours_grad = torch.autograd.grad(ours.sum(), (features, weight, bias))
    theirs_grad = torch.autograd.grad(theirs.sum(), (features, weight, bias))
    torch.testing.assert_close(ours_grad, theirs_grad)


def test_tensors_without_values_are_not_checked() -> None:
    with FakeTensorMode():
        target, mask = torch.zeros(3, dtype=torch.long), torch.ones(K).bool()
        for active in (mask, torch.arange(3), ACTIVE):
            loss = masked_cross_entropy(torch.randn(3, K), target, active, torch.zeros(3, 1))
            assert loss.shape == ()
            masked_linear_cross_entropy(torch.randn(3, 2), torch.randn(K, 2), None, target, active)
    meta = torch.zeros(3, K, device="meta")
    target = torch.zeros(3, dtype=torch.long, device="meta")
    assert masked_cross_entropy(meta, target, ACTIVE, reduction="none").shape == (3,)


# ---- The module --------------------------------------------------------------------------------


def test_the_module_is_the_function_with_its_options_kept() -> None:
    logits, target = logits_and_targets(6)
    weight = torch.linspace(0.5, 2.0, K, dtype=torch.float64)
    criterion = MaskedCrossEntropy(
        -1.0, weight=weight, ignore_index=2, reduction="sum", label_smoothing=0.1
    )
    expected = masked_cross_entropy(
        logits,
        target,
        ACTIVE,
        -1.0,
        weight=weight,
        ignore_index=2,
        reduction="sum",
        label_smoothing=0.1,
    )
    assert torch.equal(criterion(logits, target, ACTIVE), expected)
    assert list(criterion.state_dict()) == ["weight"]


def test_the_module_prints_what_differs_from_the_defaults() -> None:
    assert repr(MaskedCrossEntropy()) == "MaskedCrossEntropy(mask_value=-inf, reduction='mean')"
    criterion = MaskedCrossEntropy(
        -1, weight=torch.ones(4), ignore_index=0, reduction="sum", label_smoothing=0.1
    )
    assert repr(criterion) == (
        "MaskedCrossEntropy(mask_value=-1, reduction='sum', weight=[4], ignore_index=0, "
        "label_smoothing=0.1)"
    )
    assert "tensor[2]" in repr(MaskedCrossEntropy(torch.tensor([-1.0, -INF])))


def test_the_modules_tensors_move_with_it() -> None:
    criterion = MaskedCrossEntropy(torch.tensor([-1.0, -INF]), weight=torch.ones(K)).double()
    buffers = dict(criterion.named_buffers())
    assert set(buffers) == {"mask_value", "weight"}
    assert all(b.dtype == torch.float64 for b in buffers.values())


# ---- The linear head ---------------------------------------------------------------------------

TENSOR_VALUES = [
    torch.tensor(-1.5),
    torch.tensor([[[-INF]], [[-1.0]]]),
    -torch.arange(5.0).unsqueeze(1),
    PER_CLASS,
    PER_CLASS * torch.arange(1.0, 6.0).unsqueeze(1),
]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("m", [*VALUES, *TENSOR_VALUES])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
def test_the_linear_head_equals_masking_its_full_logits(
    reduction: str, m: float | Tensor, with_bias: bool, sparse: bool
) -> None:
    features, weight, bias = head(2, 5)
    _, target = logits_and_targets(2, 5)
    used = bias if with_bias else None
    inputs = (features, weight, bias) if with_bias else (features, weight)
    full = masked_cross_entropy(
        F.linear(features, weight, used), target, ACTIVE, m, reduction=reduction
    )
    short = masked_linear_cross_entropy(
        features, weight, used, target, ACTIVE, m, reduction=reduction, sparse=sparse
    )
    torch.testing.assert_close(short, full)
    expected = torch.autograd.grad(full.sum(), inputs)
    grads = torch.autograd.grad(short.sum(), inputs)
    assert [g.is_sparse for g in grads[1:]] == [sparse] * (len(inputs) - 1)
    dense = [g.to_dense() if g.is_sparse else g for g in grads]
    torch.testing.assert_close(dense, list(expected))
    assert (dense[1][[0, 3, 5]] == 0).all()


def test_a_linear_head_with_every_class_active_or_none_given_is_plain_cross_entropy() -> None:
    features, weight, bias = head(5)
    _, target = logits_and_targets(5)
    expected = F.cross_entropy(F.linear(features, weight, bias), target)
    for active in (None, range(K)):
        short = masked_linear_cross_entropy(features, weight, bias, target, active, -1.0)
        torch.testing.assert_close(short, expected)


def test_the_linear_head_ignores_a_target_whose_number_is_also_a_position() -> None:
    features, weight, bias = head(3)
    target = torch.tensor([1, 2, 4])  # at positions 0, 1, 2
    for ignore_index in (0, 1, 2, 4):
        losses = masked_linear_cross_entropy(
            features, weight, bias, target, ACTIVE, reduction="none", ignore_index=ignore_index
        )
        assert ((losses == 0) == (target == ignore_index)).all()


def test_half_precision_keeps_the_masked_classes_of_a_linear_head_accurate() -> None:
    # All 1,001 logits are 0, so the loss is log(1001). In bfloat16 m + log(1000) is 6.90625.
    features, weight = torch.zeros(1, 2).bfloat16(), torch.zeros(1001, 2).bfloat16()
    loss = masked_linear_cross_entropy(features, weight, None, torch.tensor([3]), [3], 0.0)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(math.log(1001), abs=1e-5)


def test_the_linear_head_allocates_nothing_of_the_size_of_the_classes() -> None:
    num_classes = 200_000
    weight = torch.zeros(num_classes, 2, requires_grad=True)
    bias = torch.zeros(num_classes, requires_grad=True)
    features, target = torch.randn(3, 2), torch.tensor([5, 7, 150_000])
    with torch.profiler.profile(profile_memory=True) as profile:
        loss = masked_linear_cross_entropy(
            features, weight, bias, target, [5, 7, 150_000], -1.0, sparse=True
        )
        torch.autograd.backward(loss)
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert 0 < largest < num_classes


# ---- The other losses --------------------------------------------------------------------------


@pytest.mark.parametrize("m", [None, -INF, -1.0])
@pytest.mark.parametrize("per_sample", [False, True])
def test_the_trial_core_is_the_mean_over_the_batch_of_each_trial(
    m: float | None, per_sample: bool
) -> None:
    logits, target = logits_and_targets(3, 4)
    mask = bool_mask(ACTIVE).expand(3, 4, K).clone()
    if per_sample:
        mask[0] = True
    value = None if m is None else torch.full((3, 1, 1), m, dtype=torch.float64)
    losses = trial_cross_entropy(logits, target, mask, value)
    expected = masked_cross_entropy(
        logits, target, mask, -INF if m is None else m, reduction="none"
    ).mean(1)
    torch.testing.assert_close(losses, expected)
    (ours,) = torch.autograd.grad(losses.sum(), logits)
    (theirs,) = torch.autograd.grad(expected.sum(), logits)
    torch.testing.assert_close(ours, theirs)


def test_logit_mse_is_one_mean_per_trial() -> None:
    logits = torch.tensor([[[1.0, 2.0]], [[0.0, 0.0]]])
    stored = torch.tensor([[[0.0, 4.0]], [[3.0, 1.0]]])
    assert torch.equal(logit_mse(logits, stored), torch.tensor([2.5, 5.0]))
    assert logit_mse(logits[0], stored[0]).item() == 2.5
    with pytest.raises(ValueError, match=r"logits \[2, 1, 2\] and stored \[1, 2\]"):
        logit_mse(logits, stored[0])


# ---- Refusals ----------------------------------------------------------------------------------

Y = torch.tensor([1, 2])
Z = torch.zeros(2, K)

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "positive m": ({"mask_value": 0.5}, r"mask_value is 0.5.*\[-inf, 0\].*allow_positive=True"),
    "infinite m": ({"mask_value": INF, "allow_positive": True}, "is inf; .* below infinity"),
    "nan m where positive ones may be": (
        {"mask_value": math.nan, "allow_positive": True},
        "is nan; .* below infinity",
    ),
    "nan m": ({"mask_value": math.nan}, "mask_value is nan"),
    "positive tensor m": ({"mask_value": torch.tensor([[-1.0], [2.0]])}, "mask_value is 2.0"),
    "nan tensor m": ({"mask_value": torch.tensor([[-1.0], [math.nan]])}, "mask_value is nan"),
    "target not active": (
        {"target": torch.tensor([1, 3])},
        r"target 3 is not in its active set \{1, 2, 4\} of 3 classes",
    ),
    "target not active in its row": (
        {"active": torch.stack([bool_mask([1, 2]), bool_mask([0, 1])])},
        r"target 2 is not in its active set \{0, 1\}",
    ),
    "target not in a long set": (
        {"input": torch.zeros(2, 50), "active": range(2, 40), "target": torch.tensor([1, 2])},
        r"target 1 .* \{2, 3, 4, 5, 6, 7, ..., 39\} of 38 classes",
    ),
    "target too large": ({"target": torch.tensor([1, 6])}, r"target 6 is not in 0..5"),
    "negative target": ({"target": torch.tensor([-1, 1])}, r"target -1 is not in 0..5"),
    "class probabilities": ({"target": torch.rand(2, 3)}, "Class probabilities need the shape"),
    "mass outside": (
        {"target": torch.eye(K)[[1, 3]]},
        r"target\[1\] has class 3, which is not in its active set",
    ),
    "four axes": (
        {"input": torch.zeros(2, 3, 3, 3), "target": torch.zeros(2, 3, 3, 3), "active": [1]},
        "give dim=-1 or dim=1",
    ),
    "integer probabilities": (
        {"target": torch.eye(K)[[1, 2]].long()},
        r"class probabilities need a floating dtype; target is torch.int64",
    ),
    "boolean targets": ({"target": torch.tensor([True, False])}, "integer class ids; got"),
    "target shape": ({"target": torch.tensor([[1, 2]])}, r"target has shape \[1, 2\].*\[2\]"),
    "empty list": ({"active": []}, "active is empty"),
    "empty mask": ({"active": torch.zeros(K).bool()}, "active is empty"),
    "empty row": (
        {"active": torch.stack([bool_mask([1]), bool_mask([])]), "target": torch.tensor([1, -100])},
        "active is empty for at least one sample",
    ),
    "id too large": ({"active": [1, 2, 6]}, r"class id 6, which is not in 0..5"),
    "tensor id too large": ({"active": torch.tensor([1, 6, 2])}, r"class id 6"),
    "mask of another batch": ({"active": torch.ones(3, K).bool()}, r"active has shape \[3, 6\]"),
    "mask without classes": ({"active": torch.ones(2, 1).bool()}, r"active has shape \[2, 1\]"),
    "reduction": ({"reduction": "average"}, "reduction is 'average'"),
    "smoothing too large": ({"label_smoothing": 1.1}, "label_smoothing is 1.1"),
    "weight shape": ({"weight": torch.ones(5)}, r"weight has shape \[5\].*\[6\]"),
    "integer logits": ({"input": torch.zeros(2, K).long()}, "logits need a floating dtype"),
    "scalar logits": ({"input": torch.tensor(0.0)}, "logits need a floating dtype"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_misuse_is_refused_with_its_reason(case: str) -> None:
    arguments, message = REFUSED[case]
    call: dict[str, Any] = {
        "input": Z,
        "target": Y,
        "active": [1, 2, 4],
        "mask_value": -1.0,
    } | arguments
    with pytest.raises(ValueError, match=message):
        masked_cross_entropy(**call)


LINEAR_REFUSED = [
    *("positive m", "infinite m", "nan tensor m"),
    *("target not active", "class probabilities", "target shape", "empty list", "empty mask"),
    *("id too large", "tensor id too large", "mask of another batch", "reduction"),
]


@pytest.mark.parametrize("case", LINEAR_REFUSED)
def test_the_linear_head_refuses_the_same_misuse(case: str) -> None:
    arguments, message = REFUSED[case]
    call: dict[str, Any] = {"target": Y, "active": [1, 2, 4], "mask_value": -1.0} | arguments
    with pytest.raises(ValueError, match=message):
        masked_linear_cross_entropy(torch.zeros(2, 3), torch.zeros(K, 3), None, **call)


def test_the_linear_head_refuses_what_it_cannot_do() -> None:
    features, weight, bias = torch.zeros(2, 3), torch.zeros(K, 3), torch.zeros(K)
    with pytest.raises(ValueError, match="one set for all samples"):
        masked_linear_cross_entropy(features, weight, bias, Y, torch.ones(2, K).bool())
    with pytest.raises(ValueError, match=r"features \[2, 3\] and weight \[6, 4\] do not fit"):
        masked_linear_cross_entropy(features, torch.zeros(K, 4), bias, Y, ACTIVE)
    with pytest.raises(ValueError, match=r"bias has shape \[3\]"):
        masked_linear_cross_entropy(features, weight, torch.zeros(3), Y, ACTIVE)
    with pytest.raises(ValueError, match="sparse=True needs an active set"):
        masked_linear_cross_entropy(features, weight, bias, Y, None, sparse=True)


def test_the_softmax_and_the_module_refuse_misuse_too() -> None:
    with pytest.raises(ValueError, match="class id 6"):
        masked_softmax(Z, [6])
    with pytest.raises(ValueError, match="active is empty"):
        masked_log_softmax(Z, torch.zeros(K).bool())
    for option, value in {"mask_value": 1.0, "reduction": "no", "label_smoothing": 2.0}.items():
        arguments: dict[str, Any] = {option: value}
        with pytest.raises(ValueError, match=f"{option} is"):
            MaskedCrossEntropy(**arguments)


@pytest.mark.parametrize("classes", [K, 100])
@pytest.mark.parametrize("m", [-INF, -1.0])
@pytest.mark.parametrize("shape", ["[K]", "[B, K]"])
def test_unchecked_boolean_masks_have_the_loss_of_checked_ones(
    classes: int, m: float, shape: str
) -> None:
    logits = torch.randn(4, classes, generator=torch.Generator().manual_seed(1))
    logits[:, 0] = math.nan
    logits.requires_grad_()
    mask, target = bool_mask(ACTIVE, classes), torch.tensor([1, 2, 4, -100])
    if shape != "[K]":
        mask = mask.expand(4, classes)
    losses = [masked_cross_entropy(logits, target, mask, m, check=check) for check in (True, False)]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(
        *(torch.autograd.grad(loss, logits)[0] for loss in losses), atol=0, rtol=1e-6
    )


def test_an_ignored_target_need_not_be_active() -> None:
    target = torch.tensor([1, 5])
    loss = masked_cross_entropy(Z, target, [1, 2], ignore_index=5)
    assert loss.item() == pytest.approx(math.log(2))


def test_unchecked_targets_outside_the_active_set_are_not_refused() -> None:
    loss = masked_cross_entropy(Z, torch.tensor([1, 3]), ACTIVE, check=False, reduction="none")
    torch.testing.assert_close(loss, torch.tensor([math.log(3), INF]))
    features, weight = torch.zeros(2, 3), torch.zeros(K, 3)
    loss = masked_linear_cross_entropy(
        features, weight, None, torch.tensor([1, 3]), ACTIVE, check=False, reduction="none"
    )
    torch.testing.assert_close(loss, torch.tensor([math.log(3), INF]))


@pytest.mark.parametrize("weight", [0.3, torch.tensor([0.3, 0.7])], ids=["number", "per trial"])
@pytest.mark.parametrize("m", [None, -INF, -1.0])
def test_slopes_without_autograd_are_those_of_autograd(
    weight: float | Tensor, m: float | None
) -> None:
    logits, target = logits_and_targets(2, 5, dtype=torch.float32)
    stored = torch.randn((2, 5, K), generator=torch.Generator().manual_seed(0))
    active = None if m is None else bool_mask(ACTIVE)
    value = None if m is None else torch.full((2, 1, 1), m)
    for (loss, slope), expected in (
        (mse_and_slope(logits, stored, weight), logit_mse(logits, stored)),
        (
            cross_entropy_and_slope(logits, target, active, value, weight),
            trial_cross_entropy(logits, target, active, value),
        ),
    ):
        torch.testing.assert_close(loss, weight * expected)
        (gradient,) = torch.autograd.grad((weight * expected).sum(), logits)
        torch.testing.assert_close(slope, gradient)
    assert m is None or (slope[..., [0, 3, 5]] == 0).all()
