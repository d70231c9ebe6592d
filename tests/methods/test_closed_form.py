"""NCM, SLDA and ridge as methods: the heads of all samples so far, and what they refuse."""

from collections.abc import Callable

import pytest
import torch

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import TrialStack
from remask.methods import MethodError
from remask.methods.closed_form import ncm, ridge, slda
from remask.methods.statistics import ClassStatistics
from tests.command_line import CommandLine
from tests.engine.stack_samples import finish, small_mlp

MakeConfig = Callable[..., TrialConfig]
HEADS = {"ncm": ncm, "slda": slda, "ridge": ridge}
every_head = pytest.mark.parametrize("method", HEADS)


@every_head
def test_the_scores_after_each_task_are_those_of_the_head_of_all_samples_so_far(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    stack = TrialStack([config(method=method)], tiny, build_net=small_mlp)
    inputs = tiny.test_inputs * tiny.scale
    seen: list[int] = []
    for number, classes in enumerate(tiny.tasks):
        stack.learn(stack.tasks[number])
        seen += classes
        rows = torch.isin(tiny.train_labels, torch.tensor(seen))
        stats = ClassStatistics.empty(tiny.num_classes, 9)
        stats.add((tiny.train_inputs[rows] * tiny.scale).flatten(1), tiny.train_labels[rows])
        expected = HEADS[method](stats).scores(inputs.flatten(1)).to(torch.float32)
        torch.testing.assert_close(stack.scores(inputs, number)[0], expected, rtol=1e-4, atol=1e-4)
        with torch.no_grad():
            exported = stack.net(0)(inputs)
        torch.testing.assert_close(exported, stack.scores(inputs, number)[0])


@every_head
def test_the_order_of_tasks_does_not_matter(
    method: str, config: MakeConfig, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    scores = []
    for tasks in (((3, 0), (4,), (1, 2, 5)), ((5, 1, 2), (0, 3), (4,))):
        benchmark = tiny_benchmark(tasks)
        stack = finish(TrialStack([config(method=method)], benchmark, build_net=small_mlp))
        scores.append(stack.scores(benchmark.test_inputs / 255, 2))
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("method", "weight"), [("slda", "shrinkage"), ("ridge", "penalty")])
def test_a_given_regularisation_is_used(
    method: str, weight: str, config: MakeConfig, tiny: Benchmark
) -> None:
    configs = [config(method=method, weights={weight: value}) for value in (0.0, 0.9)]
    stack = finish(TrialStack(configs, tiny, build_net=small_mlp))
    chosen, given = stack.scores(tiny.test_inputs / 255, 2)
    assert not torch.allclose(chosen, given, rtol=1e-3)


def test_inputs_that_are_too_large_for_second_moments_are_refused(
    config: MakeConfig, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    large = tiny_benchmark(shape=(1, 65, 65))
    with pytest.raises(MethodError, match=r"at most 4096 inputs, got 4225; use ncm"):
        TrialStack([config(method="ridge")], large, build_net=small_mlp)
    finish(TrialStack([config(method="ncm")], large, build_net=small_mlp))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--mask", "-1"), "it has no softmax loss"),
        (("--buffer", "20"), "has no memory"),
        (("--lr", "0.1"), "has no setting 'lr'"),
        (("--epochs", "2"), "passes over each task once"),
    ],
)
def test_settings_of_training_are_refused(
    option: tuple[str, str], message: str, remask: CommandLine
) -> None:
    answer = remask("run", "--benchmark", "split-digits", "--method", "slda", *option)
    assert answer.code != 0
    assert message in answer.text
