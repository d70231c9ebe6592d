"""The gradient of what `loss` returns is the one that is followed, on every net, by every method.

Random differentiable losses, on a chain of linear layers, on the same nets wrapped in a class, and
in a loop over single trials in float64.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import TrialStack
from remask.engine.linear_stack import LinearStack, stack_nets
from remask.engine.module_stack import ModuleStack
from remask.methods import METHODS, Method, MethodError, Step
from remask.methods.er import ER
from remask.methods.penalties import squared_norm
from remask.methods.step import Term, total
from remask.nets.stacked import StackedNet
from tests.engine.stack_samples import MakeConfig, finish, small_mlp
from tests.engine.test_stacking import LINEAR, LR, NETS, SHAPE, K, build

SMOOTH_WITHOUT_BATCHES = [name for name in NETS if name not in ("convolutional", "half frozen")]


class Wrapped(nn.Module):
    """A net that nobody can see into."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.inner(inputs)
        return logits


class Nets(Protocol):
    """What a loss may be computed from."""

    @property
    def parameters(self) -> dict[str, Tensor]: ...

    def __call__(
        self, inputs: Tensor, parameters: Mapping[str, Tensor] | None = None
    ) -> Tensor: ...

    def features(self, inputs: Tensor, *, training: bool) -> Tensor: ...

    def head(self, features: Tensor) -> Tensor: ...


class OneByOne:
    """The same in float64, trial after trial, with nothing but the module and autograd."""

    def __init__(self, nets: Sequence[nn.Module]) -> None:
        self._module = copy.deepcopy(nets[0]).double()
        self.parameters = {
            name: torch.stack([dict(net.named_parameters())[name].detach() for net in nets])
            .double()
            .requires_grad_()
            for name, _ in nets[0].named_parameters()
        }
        linears = [n for n, layer in self._module.named_modules() if isinstance(layer, nn.Linear)]
        self._head = linears[-1]

    def __call__(self, inputs: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        given = self.parameters if parameters is None else parameters
        return torch.stack(
            [
                functional_call(self._module, {n: p[trial] for n, p in given.items()}, (own,))
                for trial, own in enumerate(inputs)
            ]
        )

    def features(self, inputs: Tensor, *, training: bool) -> Tensor:
        caught: list[Tensor] = []
        head = self._module.get_submodule(self._head)
        hook = head.register_forward_pre_hook(lambda _, given: caught.append(given[0]))
        self(inputs)
        hook.remove()
        return torch.stack(caught)

    def head(self, features: Tensor) -> Tensor:
        weight = self.parameters[f"{self._head}.weight"]
        bias = self.parameters.get(f"{self._head}.bias")
        logits = features @ weight.transpose(1, 2)
        return logits if bias is None else logits + bias.unsqueeze(1)


class Data(NamedTuple):
    """What the terms of a loss look at."""

    inputs: Tensor
    others: Tensor
    labels: Tensor
    targets: Tensor

    def double(self) -> "Data":
        return Data(self.inputs.double(), self.others.double(), self.labels, self.targets.double())


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(1)


def over_parameters(parameters: Mapping[str, Tensor], each: Callable[[Tensor], Tensor]) -> Tensor:
    sums = [each(value).flatten(1).sum(1) for value in parameters.values()]
    return torch.stack(sums).sum(0)


def of_inputs(nets: Nets, data: Data) -> Tensor:
    """How steep the loss is in the inputs: a gradient inside the loss."""
    inputs = data.inputs.detach().requires_grad_()
    loss = cross_entropy(nets(inputs), data.labels).sum()
    (slope,) = torch.autograd.grad(loss, inputs, create_graph=True)
    return slope.square().flatten(1).sum(1)


def of_slopes(nets: Nets, data: Data) -> Tensor:
    """How steep the loss is in the parameters."""
    loss = cross_entropy(nets(data.inputs), data.labels).sum()
    slopes = torch.autograd.grad(loss, list(nets.parameters.values()), create_graph=True)
    return torch.stack([slope.square().flatten(1).sum(1) for slope in slopes]).sum(0)


TERMS: dict[str, Callable[[Nets, Data], Tensor]] = {
    "a forward": lambda nets, data: cross_entropy(nets(data.inputs), data.labels),
    "another forward": lambda nets, data: (nets(data.others) - data.targets).square().mean((1, 2)),
    "a penalty": lambda nets, _: over_parameters(nets.parameters, torch.square),
    "a penalty by hand": lambda nets, _: squared_norm(nets.parameters),
    "a penalty that is not smooth": lambda nets, _: over_parameters(nets.parameters, torch.abs),
    "a functional forward": lambda nets, data: cross_entropy(
        nets(data.inputs, dict(nets.parameters)), data.labels
    ),
    "a forward with other parameters": lambda nets, data: cross_entropy(
        nets(data.inputs, {name: 1.1 * p + 0.1 for name, p in nets.parameters.items()}), data.labels
    ),
    "features and head": lambda nets, data: cross_entropy(
        nets.head(nets.features(data.inputs, training=True)), data.labels
    ),
    "features": lambda nets, data: nets.features(data.others, training=True).square().mean((1, 2)),
    "the slope in the inputs": of_inputs,
    "the slope in the parameters": of_slopes,
    "one forward for all": lambda nets, data: (
        nets(torch.cat([data.inputs, data.others], dim=1)).logsumexp(2).mean(1)
    ),
}


def data_of(trials: int) -> Data:
    generator = torch.Generator().manual_seed(3)
    return Data(
        torch.rand(trials, 5, *SHAPE, generator=generator),
        torch.rand(trials, 4, *SHAPE, generator=generator),
        torch.randint(K, (trials, 5), generator=generator),
        torch.randn(trials, 4, K, generator=generator),
    )


def written(nets: Nets, data: Data, weights: Mapping[str, Tensor]) -> Tensor:
    """The loss: every term times a weight per trial, which may be 0."""
    terms = [weight.to(data.inputs.dtype) * TERMS[n](nets, data) for n, weight in weights.items()]
    return torch.stack(terms).sum(0)


def true_gradients(
    nets: Sequence[nn.Module], data: Data, weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    reference = OneByOne(nets)
    loss = written(reference, data.double(), weights).sum()
    parameters = list(reference.parameters.values())
    found: tuple[Tensor | None, ...] = torch.autograd.grad(loss, parameters, allow_unused=True)
    return {
        name: torch.zeros_like(p) if g is None else g
        for (name, p), g in zip(reference.parameters.items(), found, strict=True)
    }


def assert_follows(
    stack: StackedNet, wanted: Mapping[str, Tensor], data: Data, weights: Mapping[str, Tensor]
) -> None:
    """Both the gradients that a method is shown and the step that is taken are the true ones."""
    names = {name.removeprefix("inner."): name for name in stack.parameters}
    before = {name: value.detach().clone() for name, value in stack.parameters.items()}
    shown = stack.gradients(written(stack, data, weights))
    lr = LR[: len(data.inputs)]
    stack.descend(written(stack, data, weights), lr)
    for plain, true in wanted.items():
        name = names[plain]
        scale = max(1.0, float(true.abs().max()))
        gradient = shown.get(name, torch.zeros_like(before[name]))
        torch.testing.assert_close(gradient.double(), true, rtol=1e-4, atol=1e-5 * scale)
        rates = lr.view(-1, *[1] * (true.ndim - 1))
        moved = before[name].double() - rates * true
        now = stack.parameters[name].detach().double()
        torch.testing.assert_close(now, moved, rtol=1e-4, atol=1e-5 * scale)


weights_of_terms = st.dictionaries(
    st.sampled_from(sorted(TERMS)),
    st.lists(st.sampled_from([0.0, -0.5, 0.3, 1.0, 2.0]), min_size=3, max_size=3),
    min_size=1,
    max_size=4,
)


@pytest.mark.thorough
@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(SMOOTH_WITHOUT_BATCHES),
    trials=st.sampled_from([1, 3]),
    drawn=weights_of_terms,
)
def test_any_loss_is_followed_on_a_chain_and_on_the_same_net_wrapped(
    name: str, trials: int, drawn: dict[str, list[float]]
) -> None:
    # The features of these nets are the inputs, which depend on no parameter.
    assume(name not in ("no hidden layer", "a forward of its own") or set(drawn) != {"features"})
    weights = {term: torch.tensor(values[:trials]) for term, values in drawn.items()}
    nets, data = build(name, trials), data_of(trials)
    wanted = true_gradients(nets, data, weights)
    plain = stack_nets(nets)
    assert isinstance(plain, LinearStack if name in LINEAR else ModuleStack)
    wrapped = stack_nets([Wrapped(net) for net in nets])
    assert isinstance(wrapped, ModuleStack)
    assert_follows(plain, wanted, data, weights)
    assert_follows(wrapped, wanted, data, weights)


def wrapped_mlp(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Wrapped(small_mlp(shape, num_classes))


def ends_at(
    config: TrialConfig,
    benchmark: Benchmark,
    kind: type[Method],
    build_net: Callable[[tuple[int, ...], int], nn.Module],
) -> dict[str, Tensor]:
    configs = [config.model_copy(update={"seed": seed}) for seed in (0, 1)]
    stack = finish(TrialStack(configs, benchmark, method=kind, build_net=build_net))
    return {
        name.removeprefix("net/").removeprefix("inner."): tensor
        for name, tensor in stack.state().items()
        if name.startswith("net/")
    }


@pytest.mark.parametrize("name", [name for name in NETS if name != "no hidden layer"])
@pytest.mark.parametrize("trials", [1, 3])
def test_the_gradients_of_batches_side_by_side_are_those_of_each_alone(
    name: str, trials: int
) -> None:
    stack, data = stack_nets(build(name, trials)), data_of(trials)
    found = stack.batch_gradients(data.inputs, data.labels, [2, 3])
    for shown, own in zip(found, [slice(0, 2), slice(2, 5)], strict=True):
        alone = stack.gradients(cross_entropy(stack(data.inputs[:, own]), data.labels[:, own]))
        assert shown.keys() == alone.keys()
        for parameter, gradient in shown.items():
            torch.testing.assert_close(gradient, alone[parameter], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("build_net", [small_mlp, wrapped_mlp])
def test_a_batch_that_a_method_replays_is_learnt_from_together_with_the_stream(
    build_net: Callable[[tuple[int, ...], int], nn.Module], config: MakeConfig, tiny: Benchmark
) -> None:
    class Twice(Method):
        """Sees every batch of the stream twice."""

        def begin_step(self, step: Step) -> None:
            step.replay(self.context.batch(step.rows))

        def terms(self, step: Step) -> list[Term]:
            (again,) = step.replays
            assert torch.equal(again.labels, step.stream.labels)
            return [Term(step.stream, 0.5), Term(again, 0.5)]

    class Once(Method):
        def terms(self, step: Step) -> list[Term]:
            return [Term(step.stream)]

    once, twice = (
        ends_at(
            config(method=kind.__name__, buffer=0, replay_batch=0, lr=0.02), tiny, kind, build_net
        )
        for kind in (Once, Twice)
    )
    for name, value in once.items():
        torch.testing.assert_close(twice[name], value, rtol=1e-4, atol=1e-5)


def test_a_method_that_draws_cannot_replay_by_itself_as_well(
    config: MakeConfig, tiny: Benchmark
) -> None:
    class Both(ER):
        def begin_step(self, step: Step) -> None:
            step.replay(self.context.batch(step.rows))

    stack = TrialStack([config(method="Both")], tiny, method=Both, build_net=small_mlp)
    with pytest.raises(MethodError, match="already has a replay"):
        finish(stack)


class Unmoved(Method):
    """A loss that has nothing to do with the network."""

    def loss(self, step: Step) -> Tensor:
        return torch.zeros_like(step.stream.labels[:, 0], dtype=torch.float32)


@pytest.mark.parametrize("build_net", [small_mlp, wrapped_mlp])
def test_a_loss_that_depends_on_no_parameter_is_refused_in_words(
    build_net: Callable[[tuple[int, ...], int], nn.Module], config: MakeConfig, tiny: Benchmark
) -> None:
    stack = TrialStack([config(method="unmoved")], tiny, method=Unmoved, build_net=build_net)
    with pytest.raises(MethodError, match="Unmoved does not depend on the network"):
        finish(stack)


def by_autograd(kind: type[Method]) -> type[Method]:
    """The same method, whose author wrote `loss`."""

    class ByAutograd(kind):  # type: ignore[misc,valid-type]
        def loss(self, step: Step) -> Tensor:
            return total(self.terms(step))

    return ByAutograd


@pytest.mark.parametrize("method", ["sgd", "er", "derpp", "er_ace", "er_ema", "si"])
def test_terms_move_the_nets_by_hand_as_autograd_does(
    method: str, config: MakeConfig, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMASK_ENGINE", "torch")
    masked = {} if METHODS[method].unmaskable else {"mask": -1.0}
    settings = config(method=method, **masked)
    one = ends_at(settings, tiny, METHODS[method], small_mlp)
    other = ends_at(settings, tiny, by_autograd(METHODS[method]), small_mlp)
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=1e-4, atol=1e-5)


def test_terms_on_samples_of_elsewhere_are_refused_in_words(
    config: MakeConfig, tiny: Benchmark
) -> None:
    class Elsewhere(Method):
        def terms(self, step: Step) -> list[Term]:
            return [Term(self.context.batch(step.rows))]

    with pytest.raises(MethodError, match="write any other loss as `loss`"):
        finish(
            TrialStack([config(method="elsewhere")], tiny, method=Elsewhere, build_net=small_mlp)
        )
