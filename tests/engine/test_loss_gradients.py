"""What is done with gradients without their names agrees with what is done by name.

On chains of linear layers they are kept in factors until somebody looks at them by name.
"""

from collections.abc import Callable
from itertools import product
from typing import cast

import pytest
import torch
from torch import Tensor

from remask.engine.linear_stack import FactoredGradients, LinearStack
from remask.engine.module_stack import stack_nets
from remask.nets.builders import mlp
from remask.nets.stacked import LossGradients, StackedNet
from tests.engine.test_gradients import SMOOTH_WITHOUT_BATCHES, Nets, OneByOne, data_of, written
from tests.engine.test_stacking import LINEAR, LR, NETS, build

LOSSES = {
    "a forward": ["a forward"],
    "two forwards": ["a forward", "another forward"],
    "a forward and a penalty": ["a forward", "a penalty"],
    "a penalty": ["a penalty"],
}
PAIRS = list(product(LOSSES, LOSSES))
SHARES = torch.tensor([0.5, -2.0, 0.0])


class Traced:
    """A chain that traces its forward passes, so that their gradients stay in factors."""

    def __init__(self, stack: LinearStack) -> None:
        self.parameters, self._stack = stack.parameters, stack

    def __call__(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            self.trace = self._stack.trace(inputs)
        self.logits = self.trace.logits.requires_grad_()
        return self.logits


def gradients_of(stack: StackedNet, loss: str, trials: int) -> LossGradients:
    """Those of each term, added up; of a chain's forward pass in factors."""
    parts: list[LossGradients] = []
    for term in LOSSES[loss]:
        weights = {term: torch.full((trials,), 0.7)}
        if isinstance(stack, LinearStack) and "forward" in term:
            traced = Traced(stack)
            value = written(cast(Nets, traced), data_of(trials), weights)
            (slope,) = torch.autograd.grad(value.sum(), traced.logits)
            parts.append(stack.trace_gradients(traced.trace, slope))
        else:
            parts.append(stack.gradients(written(stack, data_of(trials), weights)))
    total, *others = parts
    for other in others:
        total.add(other)
    return total


def by_name(gradients: LossGradients) -> dict[str, Tensor]:
    """All of them, formed; the factors are then forgotten."""
    return {name: gradient.clone() for name, gradient in gradients.items()}


def per_trial(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.ndim - 1))


@pytest.mark.parametrize("trials", [3])
@pytest.mark.parametrize("losses", PAIRS, ids=" and ".join)
@pytest.mark.parametrize("name", ["mlp", "no hidden layer", "residual", "half frozen"])
def test_inner_products_are_those_of_the_gradients_by_name(
    name: str, losses: tuple[str, str], trials: int
) -> None:
    stack = stack_nets(build(name, trials))
    named = [by_name(gradients_of(stack, loss, trials)) for loss in losses]
    shared = named[0].keys() & named[1].keys()
    wanted = torch.stack([(named[0][n] * named[1][n]).flatten(1).sum(1) for n in shared]).sum(0)
    for looked_at in product([False, True], repeat=2):
        both = [gradients_of(stack, loss, trials) for loss in losses]
        for gradients, look in zip(both, looked_at, strict=True):
            if look:
                by_name(gradients)
        torch.testing.assert_close(both[0].inner(both[1]), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shares", [None, SHARES], ids=["as they are", "in shares"])
@pytest.mark.parametrize("losses", PAIRS, ids=" and ".join)
@pytest.mark.parametrize("name", ["mlp", "no hidden layer", "residual", "half frozen"])
def test_gradients_add_up_as_they_do_by_name(
    name: str, losses: tuple[str, str], shares: Tensor | None
) -> None:
    nets, lr = build(name, 3), LR[:3]
    ours, theirs = stack_nets(nets), stack_nets(nets)
    total, more = (gradients_of(ours, loss, 3) for loss in losses)
    total.add(more, shares)
    added = by_name(gradients_of(theirs, losses[0], 3))
    for parameter, gradient in gradients_of(theirs, losses[1], 3).items():
        share = torch.ones(3) if shares is None else shares
        own = added.get(parameter, torch.zeros_like(gradient))
        added[parameter] = own + per_trial(share, gradient) * gradient

    ours.move(total, lr)
    theirs.move(added, lr)

    for parameter, value in ours.parameters.items():
        torch.testing.assert_close(value, theirs.parameters[parameter], rtol=1e-5, atol=1e-6)
    assert list(total) == [n for n in ours.parameters if n in added]
    for parameter, gradient in total.items():
        torch.testing.assert_close(gradient, added[parameter], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("name", ["mlp", "residual"])
def test_penalties_on_different_parameters_have_no_product(name: str, forward: bool) -> None:
    stack, data = stack_nets(build(name, 2)), data_of(2)
    first, *_, last = stack.parameters.values()

    def gradients(penalised: Tensor) -> LossGradients:
        penalty = penalised.square().flatten(1).sum(1)
        return stack.gradients(penalty + stack(data.inputs).sum((1, 2)) if forward else penalty)

    one, other = gradients(first), gradients(last)
    found = one.inner(other)
    wanted = torch.zeros(2)
    for parameter in one.keys() & other.keys():
        wanted += (one[parameter] * other[parameter]).flatten(1).sum(1)
    torch.testing.assert_close(found, wanted)
    assert forward == bool(wanted.any())


def test_what_is_added_stays_as_it_was() -> None:
    for name in ("mlp", "residual"):
        stack = stack_nets(build(name, 3))
        for loss in LOSSES:
            total, more = (gradients_of(stack, own, 3) for own in ("a penalty", loss))
            total.add(more)
            for gradient in total.values():
                gradient.zero_()
            wanted = by_name(gradients_of(stack, loss, 3))
            assert all(torch.equal(more[parameter], wanted[parameter]) for parameter in wanted)


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


def double(gradients: LossGradients) -> None:
    for gradient in gradients.values():
        gradient.mul_(2)


def double_anew(gradients: LossGradients) -> None:
    for name in list(gradients):
        gradients[name] = 2 * gradients[name]


@pytest.mark.parametrize("change", [double, double_anew])
@pytest.mark.parametrize("name", ["mlp", "residual"])
def test_whoever_changes_gradients_by_name_changes_the_step(
    name: str, change: Callable[[LossGradients], None]
) -> None:
    nets, lr = build(name, 2), LR[:2]
    ours, theirs = stack_nets(nets), stack_nets(nets)
    changed = gradients_of(ours, "a forward", 2)
    change(changed)
    first = next(iter(changed))
    del changed[first]
    assert first not in changed
    assert len(changed) == len(ours.parameters) - 1
    before = ours.parameters[first].detach().clone()
    ours.move(changed, lr)
    theirs.move(gradients_of(theirs, "a forward", 2), 2 * lr)
    assert torch.equal(ours.parameters[first], before)
    for parameter in changed:
        value = ours.parameters[parameter]
        torch.testing.assert_close(value, theirs.parameters[parameter], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("looked_at", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", SMOOTH_WITHOUT_BATCHES)
def test_the_gradients_of_the_change_that_a_step_would_make_are_true(
    name: str, loss: str, looked_at: bool
) -> None:
    nets, data, lr, weight = build(name, 3), data_of(3), LR[:3], torch.tensor([0.5, 1.0, 0.0])
    stack = stack_nets(nets)
    before = {n: value.detach().clone() for n, value in stack.parameters.items()}
    along = gradients_of(stack, loss, 3)
    step = {n: per_trial(lr, g).double() * g.double() for n, g in by_name(along).items()}
    if not looked_at:
        along = gradients_of(stack, loss, 3)

    found = stack.gradients_of_change(data.others, along, lr, weight)

    true = OneByOne(nets)
    inputs = data.others.double()
    after = true(inputs, {n: p.detach() - step.get(n, 0) for n, p in true.parameters.items()})
    change = weight.double() * (true(inputs) - after.detach()).square().mean((1, 2))
    wanted = torch.autograd.grad(
        change.sum(), list(true.parameters.values()), allow_unused=True, materialize_grads=True
    )
    for parameter, gradient in zip(true.parameters, wanted, strict=True):
        assert_near(found.get(parameter, torch.zeros_like(gradient)).double(), gradient)
    assert all(torch.equal(value, before[n]) for n, value in stack.parameters.items())


def assert_near(found: Tensor, wanted: Tensor) -> None:
    scale = max(1e-3, float(wanted.abs().max()))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4 * scale)


def test_chains_keep_gradients_in_factors_and_forget_them_when_they_are_looked_at() -> None:
    for name in NETS:
        stack = stack_nets(build(name, 2))
        gradients = gradients_of(stack, "a forward", 2)
        assert isinstance(gradients, FactoredGradients) == (name in LINEAR)
        first, again = (next(iter(gradients.values())) for _ in range(2))
        assert first is again


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
        more = stack.gradients_of_change(inputs[trials], own, products[:, 1], products[:, 0])
        own.add(more)
        stack.move(own, products[:, 1])
        return products, [value.detach() for value in stack.parameters.values()]

    products, parameters = ended(slice(0, 4))
    for trials in (slice(0, 1), slice(1, 3), slice(3, 4)):
        own_products, own_parameters = ended(trials)
        assert torch.equal(own_products, products[trials])
        for own, whole in zip(own_parameters, parameters, strict=True):
            assert torch.equal(own, whole[trials])
