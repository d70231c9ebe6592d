"""Stacked nets against plain modules that are trained one by one with torch's SGD."""

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remask.engine.linear_stack import LinearStack, stack_nets
from remask.engine.module_stack import BatchTooSmallError, ModuleStack
from remask.losses import trial_cross_entropy
from remask.methods.slow_copies import follow
from remask.nets.builders import mlp
from remask.nets.stacked import StackedNet

SHAPE, K = (2, 3, 3), 4
LR = torch.tensor([0.2, 0.05, 0.5])


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Equal but for float32 sums in another order: a few units in the last place of weights ~ 1."""
    torch.testing.assert_close(actual.detach(), expected.detach(), rtol=1e-5, atol=2e-6)


class ResidualMLP(nn.Module):
    """A module that is no nn.Sequential, calls functions, and uses one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(18, 7)
        self.middle = nn.Linear(7, 7, bias=False)
        self.scale = nn.Parameter(torch.ones(7))
        self.out = nn.Linear(7, K)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.into(inputs.flatten(1)))
        for _ in range(2):
            hidden = hidden + F.relu(self.middle(hidden)) * self.scale
        logits: Tensor = self.out(hidden)
        return logits


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.first = nn.Linear(18, 6), nn.Linear(6, 6)
        self.second, self.out = nn.Linear(6, 6), nn.Linear(6, K)
        self.second.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.first(torch.relu(self.into(inputs.flatten(1)))))
        logits: Tensor = self.out(torch.relu(self.second(hidden)))
        return logits


def chain(activation: Callable[[], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(18, 6), activation(), nn.Linear(6, 5), activation(), nn.Linear(5, K)
    )


def one_activation_in_two_places() -> nn.Module:
    shared = nn.ReLU()
    return chain(lambda: shared)


def one_linear_in_two_places() -> nn.Module:
    shared = nn.Linear(6, 6)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(18, 6), nn.ReLU(), shared, nn.ReLU(), shared, nn.Linear(6, K)
    )


def half_frozen() -> nn.Module:
    net = chain(nn.ReLU)
    net.get_submodule("1").requires_grad_(False)
    return net


def without_bias() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(18, 6, bias=False), nn.ReLU(), nn.Linear(6, K, bias=False)
    )


def hooked() -> nn.Module:
    net = chain(nn.ReLU)
    net.register_forward_hook(lambda _module, _inputs, output: 2 * output)
    return net


class Doubled(nn.Module):
    """A parametrisation: the layer computes with twice what it learns."""

    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def parametrised() -> nn.Module:
    net = chain(nn.ReLU)
    nn.utils.parametrize.register_parametrization(net.get_submodule("1"), "weight", Doubled())
    return net


class Louder(nn.Sequential):
    """A chain of layers with a forward of its own."""

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = super().forward(inputs)  # type: ignore[no-untyped-call]
        return 3 * logits


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1, bias=False),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.Conv2d(5, 4, 2, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, K),
    )


LINEAR: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: mlp(SHAPE, K, hidden=(6, 5)),
    "no hidden layer": lambda: mlp(SHAPE, K, hidden=()),
    "relu in place": lambda: chain(lambda: nn.ReLU(inplace=True)),
    "one activation in two places": one_activation_in_two_places,
}
OTHER: dict[str, Callable[[], nn.Module]] = {
    "tanh": lambda: chain(nn.Tanh),
    "leaky relu": lambda: chain(lambda: nn.LeakyReLU(0.3)),
    "two activations in a row": lambda: chain(lambda: nn.Sequential(nn.ReLU(), nn.GELU())),
    "residual": ResidualMLP,
    "tied": Tied,
    "one linear in two places": one_linear_in_two_places,
    "half frozen": half_frozen,
    "without bias": without_bias,
    "hooked": hooked,
    "convolutional": convolutional,
    "parametrised": parametrised,
    "a forward of its own": lambda: Louder(nn.Flatten(), nn.Linear(18, K)),
}
NETS = LINEAR | OTHER


def build(name: str, trials: int) -> list[nn.Module]:
    """Make nets that differ from each other, biases included."""
    torch.manual_seed(5)
    nets = [NETS[name]() for _ in range(trials)]
    with torch.no_grad():
        for net in nets:
            for parameter in net.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return nets


def batches(trials: int, steps: int = 12) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(9)
    return [
        (
            torch.rand(trials, 5, *SHAPE, generator=generator),
            torch.randint(K, (trials, 5), generator=generator),
        )
        for _ in range(steps)
    ]


def train(stack: StackedNet, data: Sequence[tuple[Tensor, Tensor]], lr: Tensor) -> None:
    for inputs, labels in data:
        stack.descend(trial_cross_entropy(stack(inputs), labels, None, None), lr)


def train_plain(
    nets: Sequence[nn.Module], data: Sequence[tuple[Tensor, Tensor]], lr: Tensor
) -> None:
    for trial, net in enumerate(nets):
        net.train()
        optimiser = torch.optim.SGD(net.parameters(), lr=float(lr[trial]))
        for inputs, labels in data:
            optimiser.zero_grad()
            F.cross_entropy(net(inputs[trial]), labels[trial]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def assert_same_state(stack: StackedNet, nets: Sequence[nn.Module]) -> None:
    for trial, net in enumerate(nets):
        named = {**dict(net.named_parameters()), **dict(net.named_buffers())}
        assert stack.state().keys() == named.keys()
        for name, value in named.items():
            assert_close(stack.state()[name][trial], value.detach())


@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize("name", NETS)
def test_a_stack_trains_as_plain_modules_do_with_sgd(name: str, trials: int) -> None:
    nets, data, lr = build(name, trials), batches(trials), LR[:trials]
    stack = stack_nets(nets)
    assert isinstance(stack, LinearStack if name in LINEAR else ModuleStack)
    before = {key: value.detach().clone() for key, value in stack.parameters.items()}
    train(stack, data, lr)
    for trial, net in enumerate(nets):  # which the stack leaves alone
        for key, value in net.named_parameters():
            assert torch.equal(value, before[key][trial])
    train_plain(nets, data, lr)
    assert_same_state(stack, nets)
    moved = [key for key, value in stack.parameters.items() if not torch.equal(value, before[key])]
    frozen = {"1.weight", "1.bias"} if name == "half frozen" else set()
    assert set(moved) == before.keys() - frozen

    inputs = torch.rand(7, *SHAPE, generator=torch.Generator().manual_seed(1))
    predicted = stack.predict(inputs)
    assert predicted.shape == (trials, 7, K)
    assert not predicted.requires_grad
    for trial, net in enumerate(nets):
        net.eval()
        assert_close(predicted[trial], net(inputs).detach())


@pytest.mark.parametrize("trials", [1, 3])
def test_training_uses_batch_statistics_and_evaluation_the_running_ones(trials: int) -> None:
    nets = build("convolutional", trials)
    stack = stack_nets(nets)
    inputs = batches(trials, steps=1)[0][0]
    # Before any training the running statistics are mean 0 and variance 1.
    fresh = stack.predict(inputs[0])
    assert torch.equal(stack.buffers["1.num_batches_tracked"], torch.zeros(trials).long())
    assert torch.equal(stack.buffers["1.running_mean"], torch.zeros(trials, 5))
    in_training = stack(inputs)
    assert torch.equal(stack.buffers["1.num_batches_tracked"], torch.ones(trials).long())
    # By hand for the first layer: the running mean moves a tenth of the way to the batch's.
    for trial, net in enumerate(nets):
        maps = F.conv2d(inputs[trial], dict(net.named_parameters())["0.weight"], padding=1)
        assert_close(stack.buffers["1.running_mean"][trial], 0.1 * maps.mean((0, 2, 3)).detach())
        variance = maps.transpose(0, 1).flatten(1).var(1).detach()
        assert_close(stack.buffers["1.running_var"][trial], 0.9 + 0.1 * variance)
    after = stack.predict(inputs[0])
    assert not torch.allclose(fresh, after)
    assert not torch.allclose(in_training[0], after[0])
    # Evaluation leaves the statistics alone, and a sample's answer does not depend on its batch.
    assert torch.equal(stack.buffers["1.num_batches_tracked"], torch.ones(trials).long())
    assert_close(stack.predict(inputs[0, :1]), after[:, :1])


class FunctionalDropout(nn.Module):
    """Draws random numbers, although none of its modules is known to."""

    def forward(self, inputs: Tensor) -> Tensor:
        return F.dropout(inputs, 0.3, self.training)


@pytest.mark.parametrize("dropout", [nn.Dropout, FunctionalDropout])
def test_dropout_differs_by_trial_and_by_time_and_is_off_in_evaluation(
    dropout: Callable[[], nn.Module],
) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(18, 40), dropout(), nn.Linear(40, K))
    stack = stack_nets([net, net], seeds=[1, 2])
    inputs = torch.randn(1, 6, *SHAPE)
    first, second = stack(inputs.expand(2, -1, -1, -1, -1)), stack(inputs.expand(2, -1, -1, -1, -1))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], second[0])
    predicted = stack.predict(inputs[0])
    assert torch.equal(predicted[0], predicted[1])
    assert torch.equal(predicted, stack.predict(inputs[0]))


# ---- What methods that are more than a loss use -------------------------------------------------

every_stack = pytest.mark.parametrize("name", [*NETS, "mlp as any module"])
with_features = pytest.mark.parametrize(  # a hook on the whole net comes after its last layer
    "name",
    [
        name
        for name in (*NETS, "mlp as any module")
        if name not in ("hooked", "a forward of its own")
    ],
)
one_or_three = pytest.mark.parametrize("trials", [1, 3])


def stacked(name: str, trials: int) -> tuple[list[nn.Module], StackedNet]:
    """Nets that have been trained a little, so that running statistics say something."""
    base = name.removesuffix(" as any module")
    nets = build(base, trials)
    train_plain(nets, batches(trials, steps=3), LR[:trials])
    if base == name:
        return nets, stack_nets(nets)
    return nets, ModuleStack(nets, range(trials), "cpu")


def trained(net: nn.Module) -> dict[str, nn.Parameter]:
    return {name: value for name, value in net.named_parameters() if value.requires_grad}


def own_gradients(net: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    named = trained(net)
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


def copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in tensors.items()}


def assert_untouched(stack: StackedNet, before: dict[str, Tensor]) -> None:
    for name, value in stack.state().items():
        assert torch.equal(value, before[name]), name


@one_or_three
@every_stack
def test_evaluation_can_be_with_another_state_and_changes_nothing(name: str, trials: int) -> None:
    nets, stack = stacked(name, trials)
    ((inputs, _),) = batches(trials, steps=1)
    before = copied(stack.state())
    now = stack.evaluate(inputs)
    train(stack, batches(trials, steps=2), LR[:trials])
    later, kept = stack.evaluate(inputs), copied(stack.state())
    then = stack.evaluate(inputs, before)
    assert_untouched(stack, kept)
    assert not then.requires_grad
    assert torch.equal(then, now)
    assert not torch.allclose(then, later, atol=1e-3)
    assert torch.equal(stack.evaluate(inputs), later)
    for trial, net in enumerate(nets):
        net.eval()
        assert_close(then[trial], net(inputs[trial]))


@one_or_three
@with_features
def test_features_and_head_compose_to_the_logits_of_each_trial_s_own_module(
    name: str, trials: int
) -> None:
    nets, stack = stacked(name, trials)
    ((inputs, labels),) = batches(trials, steps=1)
    for training in (False, True):
        features = stack.features(inputs, training=training)
        assert features.requires_grad == (training and name != "no hidden layer")
        logits = stack.head(features)
        for trial, net in enumerate(nets):
            net.train(training)
            seen: list[Tensor] = []
            *_, last = net.modules()
            hook = last.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(given[0]))
            said = net(inputs[trial])
            hook.remove()
            assert_close(features[trial], seen[-1])
            assert_close(logits[trial], said)
    gradients = stack.gradients(trial_cross_entropy(logits, labels, None, None))
    for trial, net in enumerate(nets):
        expected = own_gradients(net, F.cross_entropy(net(inputs[trial]), labels[trial]))
        for key, value in expected.items():
            assert_close(gradients[key][trial], value)


class HeadDefinedFirst(nn.Module):
    """A net whose last layer is the first that it defines."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, K)
        self.into = nn.Linear(18, 6)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.out(torch.relu(self.into(inputs.flatten(1))))
        return logits


def test_the_features_are_what_the_layer_that_is_called_last_gets() -> None:
    nets = [HeadDefinedFirst() for _ in range(2)]
    stack = stack_nets(nets)
    ((inputs, _),) = batches(2, steps=1)
    features = stack.features(inputs, training=False)
    for trial, net in enumerate(nets):
        assert_close(features[trial], torch.relu(net.into(inputs[trial].flatten(1))))
        assert_close(stack.head(features)[trial], net(inputs[trial]))


def test_a_net_without_a_linear_layer_has_no_features() -> None:
    stack = stack_nets([nn.Sequential(nn.Conv2d(2, K, 3), nn.Flatten())])
    with pytest.raises(ValueError, match="needs a net with a linear last layer"):
        stack.features(torch.zeros(1, 1, *SHAPE), training=False)


@one_or_three
@every_stack
def test_gradients_of_single_samples_equal_a_loop_in_evaluation(name: str, trials: int) -> None:
    nets, stack = stacked(name, trials)
    (inputs, labels), (others, other_labels) = batches(trials, steps=2)
    others, other_labels = others[:, :3], other_labels[:, :3]
    before = copied(stack.state())
    some, few = stack.sample_gradients(inputs, labels), stack.sample_gradients(others, other_labels)
    weights = torch.rand(trials, 5, generator=torch.Generator().manual_seed(6))
    inner, with_itself = some.inner(few), some.inner(some)
    squares = some.squares(weights)
    assert_untouched(stack, before)
    assert inner.shape == (trials, 5, 3)
    for trial, net in enumerate(nets):
        net.eval()

        def loop(images: Tensor, truth: Tensor, net: nn.Module = net) -> list[dict[str, Tensor]]:
            return [
                own_gradients(net, F.cross_entropy(net(images[i : i + 1]), truth[i : i + 1]))
                for i in range(len(truth))
            ]

        each, rest = loop(inputs[trial], labels[trial]), loop(others[trial], other_labels[trial])
        assert squares.keys() == trained(net).keys()
        for key in squares:
            summed = sum(
                float(w) * g[key].square() for w, g in zip(weights[trial], each, strict=True)
            )
            assert isinstance(summed, Tensor)
            assert_close(squares[key][trial], summed)
        for theirs, products in ((rest, inner), (each, with_itself)):
            for i, one in enumerate(each):
                for j, other in enumerate(theirs):
                    expected = torch.stack([(one[key] * other[key]).sum() for key in one]).sum()
                    torch.testing.assert_close(
                        products[trial, i, j], expected, rtol=1e-4, atol=1e-5
                    )


@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize("name", NETS)
def test_a_copy_teaches_with_the_statistics_of_its_own_batches(name: str, trials: int) -> None:
    nets = build(name, trials)
    stack, copies = stack_nets(nets), copy.deepcopy(nets)
    state = {key: value.detach().clone() for key, value in stack.state().items()}
    for inputs, _ in batches(trials, steps=2):
        taught = stack.teach(inputs, state)
        assert not taught.requires_grad
        for trial, net in enumerate(copies):
            net.eval()
            for module in net.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.train()
            assert_close(taught[trial], net(inputs[trial]).detach())
    for trial, net in enumerate(copies):
        own = net.state_dict()
        for key, value in state.items():
            assert_close(value[trial], own[key])
    assert_same_state(stack, nets)  # which a copy leaves alone
    follow(state, stack, torch.full((trials,), 0.5))
    for key in stack.statistics:
        assert_close(state[key][0], copies[0].state_dict()[key])


@pytest.mark.parametrize("trials", [1, 2])
def test_a_batch_with_nothing_to_normalise_over_is_refused_in_plain_words(trials: int) -> None:
    nets = [nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 2)) for _ in range(trials)]
    stack = stack_nets(nets, "cpu", seeds=range(trials), name="mine")
    stack(torch.rand(trials, 2, 4))
    with pytest.raises(BatchTooSmallError, match=r"'mine' normalises .* a batch of 1 "):
        stack(torch.rand(trials, 1, 4))
