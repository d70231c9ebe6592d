"""The forms in which the active set and the mask value may be given, and those that are refused."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from remask.losses import (
    MaskedCrossEntropy,
    masked_binary_cross_entropy,
    masked_cross_entropy,
    masked_linear_cross_entropy,
    masked_log_softmax,
    masked_softmax,
)

S, B, K, H, W = 2, 3, 5, 4, 6
ACTIVE = [1, 3]
INF = float("inf")


def problem(*lead: int) -> tuple[Tensor, Tensor]:
    """Return logits [*lead, K] that want gradients, and targets in ACTIVE."""
    generator = torch.Generator().manual_seed(11)
    logits = torch.randn(*lead, K, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), torch.tensor(ACTIVE)[
        torch.randint(2, lead, generator=generator)
    ]


def mask_of(*rows: list[int]) -> Tensor:
    return torch.tensor([[c in row for c in range(K)] for row in rows])


# ---- Active sets -------------------------------------------------------------------------------

PER_SAMPLE: dict[str, Any] = {
    "lists": [[0, 1], [3], [4, 2, 1]],
    "a tuple of tuples": ((1, 0), (3, 3), (1, 2, 4)),
    "sets and ranges": [{0, 1}, range(3, 4), frozenset({1, 2, 4})],
    "tensors": [torch.tensor([0, 1]), torch.tensor([3]), torch.tensor([4, 2, 1])],
    "arrays": [np.array([0, 1]), np.array([3]), np.array([4, 2, 1])],
    "a boolean array": mask_of([0, 1], [3], [1, 2, 4]).numpy(),
}


@pytest.mark.parametrize("form", PER_SAMPLE)
def test_one_set_of_class_ids_per_sample_is_the_mask_of_those_rows(form: str) -> None:
    logits, _ = problem(B)
    target = torch.tensor([0, 3, 2])
    mask, active = mask_of([0, 1], [3], [1, 2, 4]), PER_SAMPLE[form]
    for m in (-INF, -1.0):
        expected = masked_cross_entropy(logits, target, mask, m, reduction="none")
        ours = masked_cross_entropy(logits, target, active, m, reduction="none")
        assert torch.equal(ours, expected)
        assert torch.equal(MaskedCrossEntropy(m)(logits, target, active), expected.mean())
        assert torch.equal(masked_softmax(logits, active, m), masked_softmax(logits, mask, m))
        for b, ids in enumerate(([0, 1], [3], [1, 2, 4])):
            one = masked_log_softmax(logits[b], ids, m)
            torch.testing.assert_close(masked_log_softmax(logits, active, m)[b], one)


REFUSED: dict[str, tuple[type[Exception], Any, str]] = {
    "too few lists": (
        ValueError,
        [[1], [3]],
        r"2 lists of class ids.*one per sample, the first axis.*\[3, 5\]",
    ),
    "one list for all": (ValueError, [[1, 3]], "1 lists of class ids"),
    "an empty list": (ValueError, [[1], [], [3]], r"active\[1\] is empty"),
    "an id that is no class": (ValueError, [[1], [7], [3]], "class id 7, which is not in 0..4"),
    "lists of booleans": (ValueError, [[False, True, False, True, False]] * 3, "as a mask"),
    "NumPy booleans in a list": (ValueError, [np.True_, np.False_], "as a mask"),
    "integers on two axes": (
        ValueError,
        np.array([[0, 1], [1, 3], [3, 4]]),
        r"active is torch.int64 \[3, 2\]; give class ids.*one list of ids per sample",
    ),
    "a float array": (ValueError, np.array([1.0, 3.0]), r"active is torch.float64 \[2\]"),
    "a single number in an array": (ValueError, np.array(1), r"active is torch.int64 \[\]"),
    "an array of objects": (TypeError, np.array([1, None]), "numpy.object_"),
    "a single number": (TypeError, 3, "active is 3; give class ids"),
    "a text": (TypeError, "13", r"active is .*'1' is not a whole number; give class ids"),
    "texts": (
        TypeError,
        ["1", "3"],
        r"active is \['1', '3'\]: '1' is not a whole number; give class ids",
    ),
    "floats": (TypeError, [1, 3.0], r"active is \[1, 3.0\]: 3.0 is not a whole number"),
    "float scalars": (TypeError, [torch.tensor(1.0)], r"tensor\(1\.\) is not a whole number"),
    "floats per sample": (TypeError, [[1], [3.0], [3]], r"active\[1\] is \[3.0\]: 3.0 is not"),
    "three levels": (TypeError, [[[1]], [[3]], [[3]]], r"active\[0\] is \[\[1\]\]: \[1\] is not"),
    "ids beside lists": (
        TypeError,
        [1, [3], [3]],
        r"active is \[1, \[3\], \[3\]\]: \[3\] is not a whole number",
    ),
    "lists beside ids": (TypeError, [[1], 3, [3]], r"active\[1\] is 3; give class ids"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_active_set_that_cannot_be_meant_is_refused_with_what_is_allowed(case: str) -> None:
    kind, active, message = REFUSED[case]
    logits, target = problem(B)
    with pytest.raises(kind, match=message):
        masked_cross_entropy(logits, target, active)


def test_one_list_per_sample_is_for_the_first_axis_of_the_logits() -> None:
    logits, _ = problem(S, B)
    target = torch.tensor([[1, 3, 1], [0, 4, 4]])
    mask = mask_of([1, 3], [0, 4]).unsqueeze(1)
    expected = masked_cross_entropy(logits, target, mask, -1.0)
    assert torch.equal(masked_cross_entropy(logits, target, [ACTIVE, [0, 4]], -1.0), expected)
    images = logits.movedim(-1, 1)
    found = masked_cross_entropy(images, target, [ACTIVE, [0, 4]], -1.0, dim=1)
    torch.testing.assert_close(found, expected)
    for lead in ((B, S), ()):
        with pytest.raises(ValueError, match="one per sample, the first axis"):
            masked_softmax(problem(*lead)[0], [ACTIVE, [0, 4]])
    lists: list[list[int]] = [ACTIVE] * B
    with pytest.raises(ValueError, match="one set for all samples"):
        masked_linear_cross_entropy(
            torch.eye(B), torch.rand(K, B), None, torch.tensor([1, 3, 3]), lists
        )


# ---- Mask values -------------------------------------------------------------------------------

SHAPES = [(), (1,), (K,), (B, 1), (1, K), (B, K), (S, 1, 1), (S, B, 1), (S, 1, K), (S, B, K)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lowest", [-INF, -7.0])
def test_mask_values_broadcast_to_the_logits_from_the_right(
    shape: tuple[int, ...], lowest: float
) -> None:
    logits, target = problem(S, B)
    values = -torch.arange(math.prod(shape), dtype=torch.float64) / 4
    values[0] = lowest
    values = values.reshape(shape)
    losses = masked_cross_entropy(logits, target, ACTIVE, values, reduction="none")
    log_probs = masked_log_softmax(logits, ACTIVE, values)
    for s in range(S):
        for b in range(B):
            row = logits[s, b].detach().clone()
            held = values.expand(S, B, K)[s, b]
            row[[0, 2, 4]] = held[[0, 2, 4]]
            torch.testing.assert_close(losses[s, b], F.cross_entropy(row, target[s, b]))
            torch.testing.assert_close(log_probs[s, b], row.log_softmax(-1))
    torch.testing.assert_close(masked_softmax(logits, ACTIVE, values), log_probs.exp())
    (grad,) = torch.autograd.grad(losses.sum(), logits)
    assert (grad[..., [0, 2, 4]] == 0).all()
    one_hot = F.one_hot(target, K)[..., ACTIVE]
    torch.testing.assert_close(grad[..., ACTIVE], log_probs.exp()[..., ACTIVE] - one_hot)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_linear_head_and_the_module_follow_the_same_rule(shape: tuple[int, ...]) -> None:
    _, target = problem(S, B)
    features = torch.rand(S, B, 4, dtype=torch.float64)
    weight = torch.rand(K, 4, dtype=torch.float64)
    values = -torch.rand(shape, dtype=torch.float64)
    logits = F.linear(features, weight)
    expected = masked_cross_entropy(logits, target, ACTIVE, values)
    head = masked_linear_cross_entropy(features, weight, None, target, ACTIVE, values)
    torch.testing.assert_close(head, expected)
    assert torch.equal(MaskedCrossEntropy(values)(logits, target, ACTIVE), expected)
    array = masked_cross_entropy(logits, target, ACTIVE, values.numpy())
    assert torch.equal(array, expected)


@pytest.mark.parametrize("shape", [(S,), (B,), (S, B), (S, 1), (1, S, B, K), (K, 1)])
def test_a_mask_value_that_would_fit_from_the_left_only_is_refused(shape: tuple[int, ...]) -> None:
    logits, target = problem(S, B)
    values = -torch.ones(shape)
    features, weight = torch.zeros(S, B, 4), torch.zeros(K, 4)
    for call in (
        lambda: masked_softmax(logits, ACTIVE, values),
        lambda: masked_cross_entropy(logits, target, ACTIVE, values),
        lambda: MaskedCrossEntropy(values)(logits, target, ACTIVE),
        lambda: masked_linear_cross_entropy(features, weight, None, target, ACTIVE, values),
    ):
        with pytest.raises(ValueError, match=r"mask_value has shape .* \[S, 1, 1\] one per trial"):
            call()


@pytest.mark.parametrize("value", [[-1.0] * K, "-1", None, torch.tensor(True), 1j])
def test_a_mask_value_that_is_no_number_is_a_type_error(value: Any) -> None:
    logits, target = problem(B)
    with pytest.raises(TypeError, match="mask_value needs"):
        masked_cross_entropy(logits, target, ACTIVE, value)
    with pytest.raises(TypeError, match="mask_value needs"):
        MaskedCrossEntropy(value)


def test_running_out_of_memory_is_not_taken_for_values_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    mask, target = torch.ones(K).bool(), torch.zeros(B, dtype=torch.long)
    features, head = torch.zeros(B, 2), torch.zeros(K, 2)
    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "__bool__", fail)
        with pytest.raises(torch.OutOfMemoryError):
            masked_cross_entropy(torch.zeros(B, K), target, mask)
    monkeypatch.setattr(Tensor, "nonzero", fail)
    with pytest.raises(torch.OutOfMemoryError):
        masked_linear_cross_entropy(features, head, None, target, mask)


@pytest.mark.parametrize("loss", [masked_cross_entropy, masked_binary_cross_entropy])
def test_lists_and_arrays_in_place_of_tensors_are_refused_by_name(loss: Any) -> None:
    logits = torch.zeros(2, 4)
    target = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(TypeError, match="target must be a tensor; got list"):
        loss(logits, target.tolist(), active=[0])
    with pytest.raises(TypeError, match="logits must be a tensor; got ndarray"):
        loss(logits.numpy(), target, active=[0])


# ---- The axis of the classes --------------------------------------------------------------------


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
