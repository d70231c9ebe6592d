"""The gradients that methods get: their products and sums, and those of a step's change."""

from itertools import product
from typing import cast

import pytest
import torch
from torch import Tensor

from remask.engine.linear_stack import LinearStack, stack_nets
from remask.nets.builders import mlp
from remask.nets.stacked import LossGradients, StackedNet, per_trial
from tests.engine.test_gradients import SMOOTH_WITHOUT_BATCHES, Nets, OneByOne, data_of, written
from tests.engine.test_stacking import LINEAR, LR, build

LOSSES = {"a forward": ["a forward"], "a penalty": ["a penalty"]}
LOSSES["a forward and a penalty"] = ["a forward", "a penalty"]
TRIALS = 3


def gradients_of(stack: StackedNet, loss: str) -> LossGradients:
    weights = {term: torch.full((TRIALS,), 0.7) for term in LOSSES[loss]}
    return stack.gradients(written(cast(Nets, stack), data_of(TRIALS), weights))


@pytest.mark.parametrize("name", LINEAR)
def test_the_gradients_of_a_trace_are_those_of_autograd_and_so_is_its_step(name: str) -> None:
    nets, data, lr = build(name, TRIALS), data_of(TRIALS), LR[:TRIALS]
    stack, stepped = stack_nets(nets), stack_nets(nets)
    assert isinstance(stack, LinearStack)
    assert isinstance(stepped, LinearStack)
    logits = stack(data.inputs)
    wanted = stack.gradients(logits.square().mean((1, 2)))
    slope = 2 * logits.detach() / logits[0].numel()
    found = stack.trace_gradients(stack.trace(data.inputs), slope)
    assert list(found) == list(wanted)
    for parameter, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[parameter], rtol=1e-4, atol=1e-6)
    stepped.follow(stepped.trace(data.inputs), slope, lr)
    stack.move(found, lr)
    for parameter, value in stepped.parameters.items():
        torch.testing.assert_close(value, stack.parameters[parameter], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("losses", list(product(LOSSES, LOSSES)), ids=" and ".join)
@pytest.mark.parametrize("name", ["mlp", "residual", "half frozen"])
def test_products_and_sums_are_those_of_each_parameter(name: str, losses: tuple[str, str]) -> None:
    stack = stack_nets(build(name, TRIALS))
    total, more = (gradients_of(stack, loss) for loss in losses)
    shared = total.keys() & more.keys()
    products = torch.stack([(total[n] * more[n]).flatten(1).sum(1) for n in shared]).sum(0)
    torch.testing.assert_close(total.inner(more), products, rtol=1e-4, atol=1e-5)
    shares = torch.tensor([0.5, -2.0, 0.0])
    before = {n: gradient.clone() for n, gradient in more.items()}
    added = {n: total.get(n, 0) + per_trial(shares, more[n]) * more[n] for n in shared}
    total.add(more, shares)
    for parameter, gradient in added.items():
        torch.testing.assert_close(total[parameter], gradient)
    for gradient in total.values():
        gradient.zero_()
    assert all(torch.equal(more[n], gradient) for n, gradient in before.items())


def test_losses_of_different_parameters_have_no_product() -> None:
    stack = stack_nets(build("mlp", 2))
    first, *_, last = stack.parameters.values()
    one, other = (stack.gradients(own.square().flatten(1).sum(1)) for own in (first, last))
    assert one.inner(other).tolist() == [0.0, 0.0]


def test_gradients_that_autograd_has_not_written_out_can_be_added_to() -> None:
    stack = stack_nets(build("mlp", 2))
    slope = torch.stack([p.flatten(1).sum(1) for p in stack.parameters.values()]).sum(0)
    total = stack.gradients(slope)  # ones, all in one place in memory
    total.add(stack.gradients(2 * slope))
    total.add(stack.gradients(3 * slope), torch.tensor([1.0, -1.0]))
    for gradient in total.values():
        assert torch.equal(
            gradient, per_trial(torch.tensor([6.0, 0.0]), gradient).expand_as(gradient)
        )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", SMOOTH_WITHOUT_BATCHES)
def test_the_gradients_of_the_change_that_a_step_would_make_are_true(name: str, loss: str) -> None:
    nets, data, lr = build(name, TRIALS), data_of(TRIALS), LR[:TRIALS]
    stack, weight = stack_nets(nets), torch.tensor([0.5, 1.0, 0.0])
    before = {n: value.detach().clone() for n, value in stack.parameters.items()}
    along = gradients_of(stack, loss)
    step = {n: per_trial(lr, g).double() * g.double() for n, g in along.items()}

    found = stack.gradients_of_change(data.others, along, lr, weight)

    true = OneByOne(nets)
    inputs = data.others.double()
    after = true(inputs, {n: p.detach() - step.get(n, 0) for n, p in true.parameters.items()})
    change = weight.double() * (true(inputs) - after.detach()).square().mean((1, 2))
    wanted = torch.autograd.grad(
        change.sum(), list(true.parameters.values()), allow_unused=True, materialize_grads=True
    )
    for parameter, gradient in zip(true.parameters, wanted, strict=True):
        scale = max(1e-3, float(gradient.abs().max()))
        own = found.get(parameter, torch.zeros_like(gradient)).double()
        torch.testing.assert_close(own, gradient, rtol=1e-3, atol=1e-4 * scale)
    assert all(torch.equal(value, before[n]) for n, value in stack.parameters.items())


@pytest.mark.parametrize("rows", [10, 40])
def test_a_trial_has_the_same_inner_products_and_sums_alone_and_in_any_stack(rows: int) -> None:
    """With the shapes of Split-MNIST: small products take other ways in the libraries."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(4, 2 * rows, 1, 28, 28, generator=generator)
    labels = torch.randint(10, (4, 2 * rows), generator=generator)
    torch.manual_seed(0)
    nets = [mlp((1, 28, 28), 10) for _ in range(4)]

    def ended(trials: slice) -> tuple[Tensor, list[Tensor]]:
        stack = stack_nets(nets[trials])
        assert isinstance(stack, LinearStack)
        one, other = stack.batch_gradients(inputs[trials], labels[trials], [rows, rows])
        products = torch.stack([one.inner(other), other.inner(other)], dim=1)
        (own,) = stack.batch_gradients(inputs[trials, :rows], labels[trials, :rows], [rows])
        own.add(other, products[:, 0])
        own.add(stack.gradients_of_change(inputs[trials], own, products[:, 1], products[:, 0]))
        trace = stack.trace(inputs[trials])
        stack.follow(trace, trace.logits, products[:, 1])
        stack.move(own, products[:, 1])
        return products, [value.detach() for value in stack.parameters.values()]

    products, parameters = ended(slice(0, 4))
    for trials in (slice(0, 1), slice(1, 3), slice(3, 4)):
        own_products, own_parameters = ended(trials)
        assert torch.equal(own_products, products[trials])
        for own, whole in zip(own_parameters, parameters, strict=True):
            assert torch.equal(own, whole[trials])
