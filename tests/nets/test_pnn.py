"""Progressive networks: columns against computations by hand, and runs in which nothing is lost."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import TrialStack
from remask.engine.linear_stack import stack_nets
from remask.errors import RemaskError
from remask.methods import Method
from remask.methods.pnn import PNN, IndependentPNN
from remask.metrics import forgetting
from remask.nets.builders import NetBuilder, mlp
from remask.nets.progressive import Columns, LateralsError, ProgressiveColumns
from remask.nets.resnet import resnet18
from remask.randomness import generator, torch_seed
from tests.engine.stack_samples import (
    MakeConfig,
    batch_normed,
    finish,
    small_mlp,
    small_resnet,
    snapshot,
    three_trials,
)
from tests.nets.test_resnet import ResNetByHand

State = dict[str, Tensor]

both_kinds = pytest.mark.parametrize("kind", [PNN, IndependentPNN])


@pytest.fixture(scope="module")
def images(tiny_benchmark: Callable[..., Benchmark]) -> Benchmark:
    """Two tasks of two classes, 17 and 29 train samples: no batch of 6 or less is of one."""
    return tiny_benchmark(tasks=((0, 1), (2, 3)), shape=(3, 8, 8))


def randomised(net: Columns) -> Columns:
    """Biases and running statistics that are not 0 or 1, so that a lost one would show."""
    with torch.no_grad():
        for name, value in net.state_dict().items():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2)
            elif name.endswith(("bias", "running_mean")):
                value.normal_(0, 0.3)
            elif name.endswith("factors"):
                value.mul_(10)  # or else the laterals would be too weak to be seen
    return net


def count(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def assert_same_gradients(
    net: Columns, logits: Tensor, trained: State, expected: Tensor, labels: Tensor
) -> None:
    """Compare logits and gradients; only the parameters of the current column have any."""
    torch.testing.assert_close(logits, expected)
    F.cross_entropy(logits, labels).backward()  # type: ignore[no-untyped-call]
    slow = torch.autograd.grad(
        F.cross_entropy(expected, labels), list(trained.values()), allow_unused=True
    )
    for (name, parameter), gradient in zip(net.named_parameters(), slow, strict=True):
        assert (parameter.grad is not None) == name.startswith(f"columns.{net.column}."), name
        if parameter.grad is not None:
            assert gradient is not None
            assert gradient.abs().max() > 1e-6
            torch.testing.assert_close(parameter.grad, gradient, msg=name)


def mlp_by_hand(state: State, inputs: Tensor, column: int) -> Tensor:
    """The logits of a column of 2-hidden-layer MLPs: every sum over older columns written out."""
    flat = inputs.reshape(len(inputs), -1)
    first: list[Tensor] = []
    second: list[Tensor] = []
    for t in range(column + 1):

        def linear(name: str, values: Tensor, t: int = t) -> Tensor:
            made = values @ state[f"columns.{t}.{name}.weight"].T
            return made + state.get(f"columns.{t}.{name}.bias", torch.zeros(()))

        def lateral(place: int, older: list[Tensor], t: int = t) -> Tensor | float:
            if t == 0:
                return 0.0
            name, width = f"laterals.{place}", older[0].shape[1]
            factors = state[f"columns.{t}.{name}.0.factors"]
            projected = state[f"columns.{t}.{name}.1.bias"]
            for k in range(t):
                units = slice(k * width, (k + 1) * width)
                weight = state[f"columns.{t}.{name}.1.weight"][:, units]
                projected = projected + (factors[units] * older[k].detach()) @ weight.T
            return linear(f"{name}.3", projected.clamp(min=0))

        first.append(linear("net.1", flat).clamp(min=0))
        second.append((linear("net.3", first[t]) + lateral(0, first)).clamp(min=0))
        logits = linear("net.5", second[t]) + lateral(1, second)
    return logits


@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_column_of_mlps_and_its_gradients_are_what_they_are_by_hand(column: int) -> None:
    torch.manual_seed(4)
    net = randomised(ProgressiveColumns([small_mlp((2, 3), 4) for _ in range(4)], (2, 3))).double()
    state = {name: value.detach().clone() for name, value in net.state_dict().items()}
    trained = {name: state[name].requires_grad_() for name, _ in net.named_parameters()}
    inputs, labels = torch.randn(5, 2, 3).double(), torch.randint(4, (5,))

    net.column = column
    expected = mlp_by_hand(state, inputs, column)
    assert_same_gradients(net, net(inputs), trained, expected, labels)


class ColumnsByHand(ResNetByHand):
    """Columns of ResNet-18; only the newest may be in training."""

    def of_column(self, images: Tensor, column: int) -> Tensor:
        made: list[list[Tensor]] = []  # of every column: four stages' maps, the last ones' means
        for t in range(column + 1):
            net, laterals = f"columns.{t}.net", f"columns.{t}.laterals"
            maps = self.norm(f"{net}.bn", self.conv(f"{net}.conv", images)).clamp(min=0)
            maps = self.stage([f"{net}.blocks.0", f"{net}.blocks.1"], maps, 1)
            made.append([maps])
            for i in range(3):
                blocks = [f"{net}.blocks.{2 * i + 2}", f"{net}.blocks.{2 * i + 3}"]
                maps = self.stage(blocks, maps, 2)
                if t > 0:
                    seen = torch.cat([older[i].detach() for older in made[:t]], 1)
                    seen = seen * self.state[f"{laterals}.{i}.0.factors"]
                    seen = self.conv(f"{laterals}.{i}.1", seen).clamp(min=0)
                    more = self.stage([f"{laterals}.{i}.3", f"{laterals}.{i}.4"], seen, 2)
                    maps = (maps + more).clamp(min=0)
                made[t].append(maps)
            features = F.avg_pool2d(maps, maps.shape[-1]).flatten(1)
            made[t].append(features)
            logits = self.linear(f"{net}.head", features)
            if t > 0:
                seen = torch.cat([older[4].detach() for older in made[:t]], 1)
                seen = seen * self.state[f"{laterals}.3.0.factors"]
                seen = self.linear(f"{laterals}.3.1", seen).clamp(min=0)
                logits = logits + self.linear(f"{laterals}.3.3", seen)
        return logits


@pytest.mark.thorough
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_column_of_resnets_and_its_gradients_are_what_they_are_by_hand(
    column: int, training: bool
) -> None:
    torch.manual_seed(6)
    shape = (3, 11, 11)
    nets = [resnet18(shape, 4, width=16) for _ in range(3)]
    net = randomised(ProgressiveColumns(nets, shape)).double().train(training)
    state = {name: value.detach().clone() for name, value in net.state_dict().items()}
    trained = {name: state[name].requires_grad_() for name, _ in net.named_parameters()}
    images, labels = torch.randn(6, *shape).double(), torch.randint(4, (6,))

    net.column = column
    by_hand = ColumnsByHand(state, f"columns.{column}." if training else None)
    expected = by_hand.of_column(images, column)
    assert_same_gradients(net, net(images), trained, expected, labels)
    for name, buffer in net.named_buffers():
        torch.testing.assert_close(buffer, state[name], msg=name)


def test_the_number_of_parameters_grows_with_the_columns_and_what_they_see() -> None:
    def laterals_of_mlps(older: int) -> int:
        # A scale for every unit, U with a bias, V without; into the second layer and the last.
        return 2 * (100 * older + 100 * older * 100 + 100) + 100 * 100 + 100 * 10

    for tasks in range(1, 6):
        alone = build_count(IndependentPNN, mlp, (28, 28), tasks)
        assert alone == tasks * 89_610
        together = build_count(PNN, mlp, (28, 28), tasks)
        assert together == alone + sum(laterals_of_mlps(older) for older in range(1, tasks))


def build_count(kind: type[Method], net: NetBuilder, shape: tuple[int, ...], tasks: int) -> int:
    with torch.device("meta"):
        return count(kind.adapt_net(net, tasks)(shape, 10))


class OwnModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Linear(9, 6)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.only(inputs.flatten(1))
        return logits


UNKNOWN: dict[str, NetBuilder] = {
    "batch_normed": batch_normed,
    "module": lambda shape, k: OwnModule(),
    "without linear layers": lambda shape, k: nn.Sequential(nn.Flatten(), nn.ReLU()),
}


@pytest.mark.parametrize("net", UNKNOWN)
def test_a_net_whose_laterals_are_unknown_is_refused_with_the_way_out(
    net: str, config: MakeConfig, tiny: Benchmark
) -> None:
    with pytest.raises(LateralsError, match="'pnn-independent'") as refused:
        TrialStack([config(method="pnn")], tiny, method=PNN, build_net=UNKNOWN[net])
    assert isinstance(refused.value, RemaskError)
    assert IndependentPNN.name == "pnn-independent"


def stack_of(
    kind: type[Method], net: NetBuilder, benchmark: Benchmark, configs: Sequence[TrialConfig]
) -> TrialStack:
    named = [config.model_copy(update={"method": kind.name}) for config in configs]
    return TrialStack(named, benchmark, method=kind, build_net=net)


@both_kinds
@pytest.mark.parametrize("net", [small_mlp, small_resnet])
def test_a_task_changes_its_own_column_and_nothing_else_and_nothing_is_forgotten(
    kind: type[Method], net: NetBuilder, config: MakeConfig, tiny: Benchmark, images: Benchmark
) -> None:
    benchmark = images if net is small_resnet else tiny
    configs = three_trials(config, "pnn", batch=6, epochs=1)
    stack = stack_of(kind, net, benchmark, configs)
    before, learnt = snapshot(stack), 0
    for position in stack.run():
        if position.task == learnt:
            continue
        after = snapshot(stack)
        for name, value in after.items():
            if name.startswith("net/"):
                changed = not torch.equal(value, before[name])
                assert changed == name.startswith(f"net/columns.{learnt}."), name
        before, learnt = after, position.task
    assert learnt == benchmark.num_tasks
    for result in stack.results():
        assert result.diverged_at is None
        accuracy = np.array(result.task_il)
        for task in range(learnt):
            assert np.isnan(accuracy[:task, task]).all()
            assert len(set(accuracy[task:, task])) == 1
        assert forgetting(accuracy) == 0.0


@both_kinds
def test_tasks_may_be_unequal_and_of_one_class_and_class_il_is_not_measured(
    kind: type[Method], config: MakeConfig, tiny: Benchmark
) -> None:
    assert [len(task) for task in tiny.tasks] == [2, 1, 3]
    configs = three_trials(config, "pnn", batch=6, epochs=12)
    stack = finish(stack_of(kind, small_mlp, tiny, configs))
    for result in stack.results():
        assert np.isnan(np.array(result.class_il)).all()
        assert np.isnan(result.confidence).all()
        assert result.task_il[2][1] == 100  # whoever is told the task of one class cannot err
        assert min(result.task_il[2]) > 60  # and something is learnt: by chance 50, 100 and 33
    assert np.isnan(stack.measured.running_accuracy())


@pytest.mark.parametrize("net", [small_mlp, batch_normed])
def test_without_laterals_a_column_learns_as_a_net_that_sees_its_task_alone(
    net: NetBuilder, config: MakeConfig, tiny: Benchmark
) -> None:
    single = config(method="pnn", seed=5)
    stack = finish(stack_of(IndependentPNN, net, tiny, [single]))
    torch.manual_seed(torch_seed(single.seed, "init"))
    nets = [net(tiny.input_shape, tiny.num_classes) for _ in range(3)]
    alone = stack_nets(nets[2:])
    rows = tiny.train_indices(2)
    for epoch in range(single.epochs):
        order = generator(single.seed, "order", 2, epoch).permutation(len(rows))
        for batch in torch.split(rows[torch.from_numpy(order)], single.batch):
            logits = alone((tiny.train_inputs[batch].float() / 255).unsqueeze(0))
            loss = F.cross_entropy(logits[0], tiny.train_labels[batch])
            alone.descend(loss.unsqueeze(0), torch.tensor([single.lr]))
    for name, value in alone.state().items():
        ours = stack.state()[f"net/columns.2.{name}"]
        torch.testing.assert_close(ours, value, rtol=1e-4, atol=1e-5, msg=name)
