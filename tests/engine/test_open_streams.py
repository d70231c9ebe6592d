"""Tasks that are learnt one by one, and tasks that come by themselves: the stream has no end."""

import ast
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import DataDescription, Position, StreamError, TrialStack
from remask.methods import METHODS, MethodError
from tests.engine.stack_samples import (
    MakeConfig,
    assert_same,
    finish,
    learn_all,
    small_mlp,
    snapshot,
    task_of,
)

OPEN = sorted(METHODS.keys() - {"joint"})
IMAGES = torch.zeros(4, 1, 3, 3, dtype=torch.uint8)
COUNTED = {"agem", "gem", "pnn", "pnn-independent"}


def configs_of(config: MakeConfig, method: str, **changes: Any) -> list[TrialConfig]:
    """Two trials, and where the method allows it, one has a mask, which fades."""
    kind = METHODS[method]
    mask = None if kind.unmaskable else -1.0
    fade = 2.0 if mask is not None and kind.uses_buffer() else 0.0  # full, then ever less
    plain = config(method=method, seed=0, **changes)
    return [plain, config(method=method, seed=1, mask=mask, fade=fade, **changes)]


def described(benchmark: Benchmark) -> DataDescription:
    return DataDescription.of(benchmark, num_tasks=benchmark.num_tasks)


def comparable(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """What is the same however the data came: neither rows, nor how much was known ahead."""
    odd = (
        "method/rows",
        "method/exemplars",
        "method/recorded",
        "method/sizes",
        "stream/",
        "metrics/validation",
    )
    return {name: tensor for name, tensor in state.items() if not name.startswith(odd)}


def restored(stack: TrialStack, benchmark: Benchmark, data: DataDescription) -> TrialStack:
    """Another stack in the same state, with the test data of the tasks that were learnt."""
    fresh = TrialStack(stack.configs, data, build_net=small_mlp)
    fresh.restore(snapshot(stack), stack.position)
    assert_same(snapshot(stack), snapshot(fresh))
    for number in range(stack.position.task):
        test = benchmark.test_indices(number)
        fresh.test_on(number, benchmark.test_inputs[test], benchmark.test_labels[test])
    return fresh


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        *((method, {}) for method in OPEN),
        ("derpp", {"memory": "balanced"}),
        ("hal", {"memory": "merging", "buffer": 2}),
        ("derpp", {"epochs": 2, "validation": 0.2, "evaluate_every": 3}),
    ],
)
def test_tasks_that_come_one_by_one_are_learnt_as_those_of_a_benchmark_also_after_a_restore(
    config: MakeConfig, tiny: Benchmark, method: str, changes: dict[str, Any]
) -> None:
    tiny = replace(tiny, crop_padding=1, flip=True, mean=(0.4,), std=(0.3,))
    configs = configs_of(config, method, **{"epochs": 1, **changes})
    whole = finish(TrialStack(configs, tiny, build_net=small_mlp))
    data = described(tiny) if method in COUNTED else DataDescription.of(tiny)
    stack = TrialStack(configs, data, build_net=small_mlp)
    stack.learn(task_of(stack, tiny, 0))
    stack.evaluate()
    stack = restored(stack, tiny, data)
    for _ in islice(stack.learn_steps(task_of(stack, tiny, 1)), 2):
        pass
    stack = learn_all(restored(stack, tiny, data), tiny)
    assert stack.steps_done == whole.steps_done
    ends, others = comparable(snapshot(whole)), comparable(snapshot(stack))
    assert_same(ends, {name: others[name] for name in ends})
    for ours, theirs in zip(whole.results(), stack.results(), strict=True):
        assert [sorted(task) for task in ours.tasks] == [list(task) for task in theirs.tasks]


@pytest.mark.parametrize("method", ["derpp", "gss", "icarl", "fdr", "lwf", "er_ema", "lode"])
def test_after_the_last_task_of_a_benchmark_there_may_be_more(
    config: MakeConfig, tiny: Benchmark, method: str
) -> None:
    configs = configs_of(config, method)
    stack = finish(TrialStack(configs, tiny, build_net=small_mlp))
    for _ in range(2):  # more samples of classes that it knows
        stack.learn(task_of(stack, tiny, 1))
        stack.evaluate()
    (result, *_) = stack.results()
    assert len(result.class_il) == len(result.tasks) == tiny.num_tasks + 2
    assert result.tasks[-1] == result.tasks[1]
    assert not any(torch.tensor(result.class_il[-1]).isnan())
    assert stack.position == Position(tiny.num_tasks + 2)

    resumed = TrialStack(configs, DataDescription.of(tiny, num_tasks=3), build_net=small_mlp)
    resumed.restore(snapshot(stack), stack.position)
    for each in (stack, resumed):
        each.learn(task_of(each, tiny, 0))
    odd = ("metrics/",)  # the restored one has no test data of earlier tasks
    ours, theirs = (
        {n: t for n, t in snapshot(each).items() if not n.startswith(odd)}
        for each in (stack, resumed)
    )
    assert_same(ours, theirs)


def test_lode_learns_a_later_task_for_which_no_class_is_old(
    config: MakeConfig, tiny: Benchmark
) -> None:
    """Without an old class there is nothing to decouple, and nothing to divide by."""
    stack = TrialStack([config(method="lode")], DataDescription.of(tiny), build_net=small_mlp)
    for _ in range(3):
        stack.learn(task_of(stack, tiny, 0))
        stack.evaluate()
    (result,) = stack.results()
    assert result.diverged_at is None
    assert all(tensor.isfinite().all() for n, tensor in stack.state().items() if "net/" in n)


def test_the_samples_of_earlier_tasks_may_go(config: MakeConfig, tiny: Benchmark) -> None:
    """What a method keeps is copied: a ruined benchmark of the past changes nothing."""
    for method in ("gss", "icarl", "fdr", "gem", "agem"):
        configs = configs_of(config, method)
        clean = learn_all(TrialStack(configs, described(tiny), build_net=small_mlp), tiny)
        stack = TrialStack(configs, described(tiny), build_net=small_mlp)
        for number in range(tiny.num_tasks):
            task = task_of(stack, tiny, number)
            stack.learn(task)
            stack.evaluate()
            assert task.data is not None
            assert isinstance(task.data.inputs, Tensor)
            task.data.inputs.zero_()
        assert_same(snapshot(clean), snapshot(stack))


@pytest.mark.parametrize("method", sorted(COUNTED))
def test_a_method_that_must_know_how_many_tasks_come_says_so(
    config: MakeConfig, tiny: Benchmark, method: str
) -> None:
    configs = configs_of(config, method)
    with pytest.raises(MethodError, match=r"needs the number of tasks: it .*num_tasks"):
        TrialStack(configs, DataDescription.of(tiny), build_net=small_mlp)
    stack = TrialStack(configs, DataDescription.of(tiny, num_tasks=1), build_net=small_mlp)
    stack.learn(task_of(stack, tiny, 0))
    before = snapshot(stack)
    with pytest.raises(MethodError, match="has room for num_tasks=1 tasks"):
        task_of(stack, tiny, 1)
    assert_same(before, snapshot(stack))


def test_a_memory_that_has_a_place_for_every_task_refuses_one_too_many(
    config: MakeConfig, tiny: Benchmark
) -> None:
    configs = [config(method="fdr", buffer=2)]
    stack = TrialStack(configs, DataDescription.of(tiny), build_net=small_mlp)
    for number in (0, 1):
        stack.learn(task_of(stack, tiny, number))
    with pytest.raises(MethodError, match="needs `buffer >= 3` for 3 tasks"):
        task_of(stack, tiny, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": torch.zeros(4, 1, 3, 3)}, "must be torch.uint8 .N, 1, 3, 3., got"),
        ({"inputs": torch.zeros(4, 9, dtype=torch.uint8)}, r"got torch.uint8 \[4, 9\]"),
        ({"labels": torch.tensor([0, 1, 2])}, "one for each of the 4 inputs"),
        ({"labels": torch.tensor([0, 1, 2, 6])}, "must be in 0..5, found"),
        ({"labels": torch.tensor([0, -1, 2, 3])}, "found -1..3"),
        ({"test_labels": torch.arange(4)}, "give both test_inputs and test_labels"),
        (
            {"test_inputs": IMAGES, "test_labels": torch.tensor([0, 1, 2, 4])},
            r"must be those of the task, but \[4\] are not",
        ),
    ],
)
def test_data_that_are_not_as_described_are_refused_and_change_nothing(
    config: MakeConfig, tiny: Benchmark, change: dict[str, Tensor], message: str
) -> None:
    stack = TrialStack([config()], described(tiny), build_net=small_mlp)
    before = snapshot(stack)
    fine = {"inputs": IMAGES, "labels": torch.arange(4)}
    with pytest.raises(StreamError, match=message):
        stack.new_task(**{**fine, **change})
    assert_same(before, snapshot(stack))


def test_tasks_are_learnt_in_their_order_and_once(config: MakeConfig, tiny: Benchmark) -> None:
    stack = TrialStack([config()], tiny, build_net=small_mlp)
    with pytest.raises(StreamError, match=r"the next is stack.tasks\[0\]"):
        next(stack.learn_steps(stack.tasks[1]))
    with pytest.raises(StreamError, match="learn the 3 remaining tasks"):
        task_of(stack, tiny, 0)
    with pytest.raises(StreamError, match="nothing has been learnt yet"):
        stack.evaluate()
    open_stack = TrialStack([config()], described(tiny), build_net=small_mlp)
    task = task_of(open_stack, tiny, 0)
    open_stack.learn(task)
    with pytest.raises(StreamError, match="the next is number 1"):
        next(open_stack.learn_steps(task))


def test_a_task_that_was_begun_goes_on_with_the_samples_that_it_had(
    config: MakeConfig, tiny: Benchmark
) -> None:
    stack = TrialStack([config()], described(tiny), build_net=small_mlp)
    next(stack.learn_steps(task_of(stack, tiny, 0)))
    resumed = TrialStack([config()], described(tiny), build_net=small_mlp)
    resumed.restore(snapshot(stack), stack.position)
    with pytest.raises(StreamError, match="task 0 was begun with other samples"):
        next(resumed.learn_steps(task_of(resumed, tiny, 1)))


def test_the_page_on_your_own_code_learns_tasks_as_they_come(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (repository / "docs" / "your-own.md").read_text("utf-8")
    (code,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "DataDescription(" in block
    )
    exec(code, {})
    accuracies = ast.literal_eval(capsys.readouterr().out)
    assert len(accuracies) == 3
    assert accuracies[-1] > 50
