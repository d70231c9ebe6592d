"""Losses on the way: what is gathered, and that gathering it changes nothing."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from remask.data.benchmark import Benchmark
from remask.engine import Position, TrialStack
from remask.engine.loss_log import LossLog
from remask.methods import METHODS, Method, MethodError, Step
from tests.engine.stack_samples import MakeConfig, small_mlp, snapshot

TASKS = 3


def stack_of(
    config: MakeConfig, benchmark: Benchmark, log: LossLog | None, trials: int = 2, **settings: Any
) -> TrialStack:
    settings = {"method": "derpp", "epochs": 2, "batch": 6, "buffer": 8, **settings}
    configs = [config(seed=seed, **settings) for seed in range(trials)]
    return TrialStack(configs, benchmark, build_net=small_mlp, log=log)


def points_of(stack: TrialStack) -> list[tuple[int, int, list[list[float]]]]:
    return [(step, task, values.tolist()) for step, task, values in stack.measured.loss_points()]


class Counting(Method):
    """Its terms are known: 0, 1, 2, ... of each step, and twice that from the fourth step on."""

    def loss(self, step: Step) -> Tensor:
        number = getattr(self, "number", 0)
        self.number = number + 1
        counted = torch.full((self.context.trials,), float(number))
        self.context.note("number", counted)
        if number >= 3:
            self.context.note("twice", 2 * counted)
        return step.stream_loss()


def test_a_point_is_the_mean_over_its_steps_of_each_term(
    config: MakeConfig, tiny: Benchmark
) -> None:
    stack = TrialStack(
        [config(method="own:Counting", buffer=0, epochs=1, batch=6)],
        tiny,
        method=Counting,
        build_net=small_mlp,
        log=LossLog(every=2),
    )
    stack.learn(stack.tasks[0])
    assert stack.measured.loss_names == ["loss", "number", "twice"]
    steps = stack.steps_done
    assert [point.step for point in stack.measured.loss_points()] == [*range(2, steps, 2), steps]
    first, second = (point.values[0, 1:].tolist() for point in stack.measured.loss_points()[:2])
    assert first == [0.5]  # of steps 0 and 1, before the other term was ever noted
    assert second == [2.5, 6.0]  # of steps 2 and 3, the other of step 3 alone


@pytest.mark.parametrize("method", ["sgd", "er", "derpp", "lwf", "gem"])
def test_logging_changes_nothing_else(method: str, config: MakeConfig, tiny: Benchmark) -> None:
    buffer = 8 if METHODS[method].uses_buffer() else 0
    plain = stack_of(config, tiny, None, method=method, buffer=buffer)
    logged = stack_of(config, tiny, LossLog(every=3), method=method, buffer=buffer)
    plain.finish()
    logged.finish()
    state = logged.state()
    for name, tensor in plain.state().items():
        assert torch.equal(tensor.nan_to_num(-1), state[name].nan_to_num(-1)), name
    assert logged.measured.loss_points()


@pytest.mark.parametrize("every", [1, 4, 1000])
def test_no_point_is_missing_when_each_step_is_saved(
    every: int, config: MakeConfig, tiny: Benchmark
) -> None:
    whole, saved = (stack_of(config, tiny, LossLog(every=every)) for _ in range(2))
    results = whole.finish()
    for _ in saved.run():
        saved.state()
    assert points_of(saved) == points_of(whole)
    assert points_of(saved)[-1][0] == saved.total_steps
    assert str(saved.results()[0].losses) == str(results[0].losses)


def test_a_stack_may_begin_or_cease_to_log_where_it_was_stopped(
    config: MakeConfig, tiny: Benchmark
) -> None:
    whole = stack_of(config, tiny, LossLog(every=4))
    whole.finish()
    for logged_first in (True, False):
        first = stack_of(config, tiny, LossLog(every=4) if logged_first else None)
        for _ in islice(first.run(), 8):
            pass
        then = stack_of(config, tiny, None if logged_first else LossLog(every=4))
        then.restore(snapshot(first), Position(*first.position))
        results = then.finish()
        assert str(results[0].class_il) == str(whole.results()[0].class_il)
        if logged_first:
            assert results[0].losses is None
        else:
            assert points_of(then) == [point for point in points_of(whole) if point[0] > 8]


def test_a_result_has_at_most_200_points_and_each_is_the_mean_of_what_it_stands_for(
    config: MakeConfig, tiny: Benchmark
) -> None:
    stack = stack_of(config, tiny, LossLog(every=1), epochs=60)
    stack.learn(stack.tasks[0])
    losses, _ = [result.losses for result in stack.results()]
    points = stack.measured.loss_points()
    assert losses is not None
    assert len(losses.steps) <= 200 < len(points)
    span = losses.steps[0]
    expected = np.mean([point.values[0, 0] for point in points[:span]])
    assert losses.values[0][0] == pytest.approx(float(expected), rel=1e-5)
    assert losses.steps[-1] == stack.steps_done


def test_a_task_has_up_to_50_points_unless_more_are_asked_for_and_never_over_1000() -> None:
    for every, length, expected in [(0, 5000, 50), (0, 30, 3), (7, 700, 100), (1, 50_000, 1000)]:
        log = LossLog(every)
        log.begin_task(0, 0, length)
        for taken in range(1, length + 1):
            log.after_steps(torch.zeros(1, 1), taken)
        log.close(length)
        assert len(log.points) == expected, (every, length)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("loss", (1,), "invalid name of a loss term: 'loss'"),
        ("a\nb", (1,), "invalid name of a loss term"),
        ("penalty", (), "one entry per trial, [1], not the shape []"),
    ],
)
def test_a_term_that_cannot_be_logged_is_refused(
    name: str, shape: tuple[int, ...], message: str, config: MakeConfig, tiny: Benchmark
) -> None:
    class Odd(Method):
        def loss(self, step: Step) -> Tensor:
            self.context.note(name, torch.zeros(shape))
            return step.stream_loss()

    settings = config(method="own:Odd", buffer=0, epochs=1)
    stack = TrialStack([settings], tiny, method=Odd, build_net=small_mlp, log=LossLog())
    with pytest.raises(MethodError) as refused:
        stack.learn(stack.tasks[0])
    assert message in str(refused.value)


def test_losses_of_a_trial_that_chooses_its_mask_are_those_of_what_it_chose(
    config: MakeConfig, tiny: Benchmark
) -> None:
    stack = stack_of(config, tiny, LossLog(), mask="auto", buffer=1000)
    run = stack.run()
    next(run)
    assert stack.measured.loss_points() == []  # nothing is chosen yet
    for _ in run:
        pass
    assert {point.values.shape[0] for point in stack.measured.loss_points()} == {2}
    assert {point.task for point in stack.measured.loss_points()} == {*range(len(stack.tasks))}
