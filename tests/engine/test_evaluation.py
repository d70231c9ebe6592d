"""Evaluation: tasks that share a forward have the figures of separate forwards."""

from collections.abc import Callable

import pytest
from torch import Tensor

from remask.data.benchmark import Benchmark
from remask.engine import TrialStack
from remask.methods import ER
from tests.engine.stack_samples import MakeConfig, finish, small_mlp, snapshot

TASKS = 40


class Counting(ER):
    """ER that notes the inputs of each forward of an evaluation, and their task."""

    forwards: list[tuple[int, int]]

    def prepare(self) -> None:
        super().prepare()
        self.forwards = []

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        self.forwards.append((len(inputs), task))
        return self.context.net.predict(inputs)


class ToldTheTask(Counting):
    class_il = False


@pytest.fixture(scope="module")
def many_tasks(tiny_benchmark: Callable[..., Benchmark]) -> Benchmark:
    """One class per task; class k has 3 + k test samples, 900 in all."""
    return tiny_benchmark(tuple((label,) for label in range(TASKS)))


def stack_of(config: MakeConfig, data: Benchmark, method: type[ER], trials: int = 1) -> TrialStack:
    name = f"{__name__}:{method.__name__}"
    configs = [config(method=name, epochs=1, seed=seed) for seed in range(trials)]
    return TrialStack(configs, data, build_net=small_mlp, method=method)


def counted(stack: TrialStack) -> list[tuple[int, int]]:
    method = stack._method
    assert isinstance(method, Counting)
    return method.forwards


def test_tasks_share_a_forward_and_a_method_that_is_told_the_task_gets_one_each(
    config: MakeConfig, many_tasks: Benchmark
) -> None:
    sizes = [3 + label for label in range(TASKS)]
    together, apart = (
        finish(stack_of(config, many_tasks, method)) for method in (Counting, ToldTheTask)
    )
    # After the last task, its accuracies and the answers share their forwards.
    task_il = [str(stack.results()[0].task_il) for stack in (together, apart)]
    last = [(512, TASKS - 1), (sum(sizes) - 512, TASKS - 1)]
    assert counted(together)[-2:] == last
    assert len(counted(together)) <= 2 * TASKS
    assert counted(apart)[-TASKS:] == [(size, task) for task, size in enumerate(sizes)]
    assert task_il[0] == task_il[1]


def test_shared_forwards_measure_what_each_task_alone_shows_in_every_stack(
    config: MakeConfig, many_tasks: Benchmark
) -> None:
    stack = finish(stack_of(config, many_tasks, Counting, trials=3))
    for trial, result in enumerate(stack.results()):
        for task in range(TASKS):
            own = many_tasks.test_labels == task
            rated = stack.scores(many_tasks.test_inputs[own] * many_tasks.scale, task)[trial]
            percent = 100 * float((rated.argmax(-1) == task).double().mean())
            assert result.class_il[-1][task] == pytest.approx(percent)
    alone = finish(stack_of(config, many_tasks, Counting))
    assert str(alone.results()[0].class_il) == str(stack.results()[0].class_il)
    assert alone.results()[0].confidence == stack.results()[0].confidence


class Opposite(ER):
    """Predicts the least likely class, as a method with a predictor of its own might."""

    name = "opposite"

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        return -self.context.net.predict(inputs) + 10 * task


def test_confidence_is_of_the_scores_that_the_accuracy_is_of(
    config: MakeConfig, tiny: Benchmark
) -> None:
    plain = finish(TrialStack([config(method="er", net="mlp")], tiny))
    single = config(method="opposite", net="mlp")
    opposite = finish(TrialStack([single], tiny, method=Opposite))
    (result,) = opposite.results()
    assert result.confidence != plain.results()[0].confidence
    for label, said in enumerate(result.confidence):
        task = next(number for number, task in enumerate(tiny.tasks) if label in task)
        rows = tiny.test_labels == label
        scores = opposite.scores(tiny.test_inputs[rows] * tiny.scale, task)[0]
        assert said == pytest.approx(float(scores.softmax(-1)[:, label].mean()), rel=1e-5)


def test_answers_are_those_of_a_restored_state(config: MakeConfig, tiny: Benchmark) -> None:
    one, other = (
        finish(TrialStack([config(method="er", net="mlp", seed=seed)], tiny)) for seed in (0, 1)
    )
    assert one.results()[0].confidence != other.results()[0].confidence
    one.restore(snapshot(other), other.position)
    assert one.results()[0].confidence == other.results()[0].confidence
