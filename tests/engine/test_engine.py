"""The engine: trials that never touch, runs that resume, and steps against slow references.

Every method of METHODS goes through the tests that take a `method`; a new one inherits them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import Position, TrialStack
from remask.methods import (
    ER,
    METHODS,
    Batch,
    Context,
    DERpp,
    Method,
    MethodError,
    Step,
    Task,
    find_method,
)
from remask.methods.der import DER
from remask.methods.joint import Joint
from remask.methods.pnn import PNN
from remask.methods.sgd import SGD
from remask.metrics import forgetting
from remask.nets.builders import NetBuilder, mlp
from tests.engine.stack_samples import batch_normed, finish, small_mlp, snapshot

INF = float("inf")
MASKS = (None, -1.0, -INF)
MakeConfig = Callable[..., TrialConfig]

every_method = pytest.mark.parametrize("method", METHODS)


some_methods = pytest.mark.parametrize(
    "method", ["derpp", "gss", "hal", "icarl", "joint", "lwf", "pnn", "si", "slda"]
)


def stack_of(configs: Sequence[TrialConfig], benchmark: Benchmark, **options: Any) -> TrialStack:
    return TrialStack(configs, benchmark, **({"build_net": small_mlp} | options))


def matrices(stack: TrialStack) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Class-IL accuracy, [S, T, T]."""
    return np.array([result.class_il for result in stack.results()])


def mixed_configs(config: MakeConfig, method: str, **changes: Any) -> list[TrialConfig]:
    """Three trials that differ in all that trials of one stack may differ in."""
    masks = (None,) * 3 if METHODS[method].unmaskable else MASKS
    return [
        config(
            method=method,
            seed=seed,
            mask=mask,
            lr=lr,
            alpha=0.2 + 0.1 * seed,
            beta=0.9 - 0.1 * seed,
            **changes,
        )
        for seed, mask, lr in zip((4, 0, 7), masks, (0.1, 0.2, 0.05), strict=True)
    ]


def of_trial(name: str, tensor: Tensor, trial: int, trials: int) -> Tensor:
    """One trial's part of a state tensor; memories lie [S * M, ...], all else [S, ...]."""
    if name.startswith("memory/"):
        return tensor.view(trials, -1, *tensor.shape[1:])[trial]
    return tensor[trial]


# ---- Trials of a stack never touch --------------------------------------------------------------


def recording(method: str, seen: list[Step]) -> type[Method]:
    """The method, keeping every step that it is given."""
    base = find_method(method)

    class Recording(base):  # type: ignore[misc, valid-type]
        def loss(self, step: Step) -> Tensor:
            seen.append(step)
            loss: Tensor = super().loss(step)
            return loss

        def after_step(self, step: Step) -> None:
            if not self.trains_net:  # it has no loss
                seen.append(step)
            super().after_step(step)

    return Recording


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "build_net"), [*((method, small_mlp) for method in METHODS), ("derpp", batch_normed)]
)
def test_a_wrecked_trial_is_reported_and_its_neighbours_are_bit_identical(
    method: str, build_net: NetBuilder, config: MakeConfig, tiny: Benchmark
) -> None:
    if not METHODS[method].trains_net:
        pytest.skip("no learning rate can wreck it")
    configs = mixed_configs(config, method, epochs=1)
    wrecked = [configs[0], configs[1].model_copy(update={"lr": 1e30}), configs[2]]
    sound = finish(stack_of(configs, tiny, build_net=build_net))
    broken = finish(stack_of(wrecked, tiny, build_net=build_net))
    for name, value in sound.state().items():
        for trial in (0, 2):
            torch.testing.assert_close(
                of_trial(name, broken.state()[name], trial, 3),
                of_trial(name, value, trial, 3),
                rtol=0,
                atol=0,
                equal_nan=True,
            )
    assert [result.diverged_at for result in sound.results()] == [None] * 3

    # When it broke, looked at slowly: run alone, with the loss read after every step.
    losses: list[float] = []
    base = find_method(method)

    class Watched(base):  # type: ignore[misc, valid-type]
        def loss(self, step: Step) -> Tensor:
            loss: Tensor = super().loss(step)
            losses.append(loss.detach()[0].item())
            return loss

    finish(stack_of([wrecked[1]], tiny, method=Watched, build_net=build_net))
    first = next(step for step, loss in enumerate(losses) if not math.isfinite(loss))
    assert first > 0
    assert [result.diverged_at for result in broken.results()] == [None, first, None]


class BreaksAt(SGD):
    """SGD that breaks trial 1 at a given step and at every later one."""

    breaks_at = 0
    remembers = ("steps",)

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__(weights)
        self.steps = torch.zeros(1, dtype=torch.int64)

    def loss(self, step: Step) -> Tensor:
        broken = torch.tensor([0.0, INF if int(self.steps) >= self.breaks_at else 0.0])
        self.steps += 1
        return super().loss(step) + broken


@pytest.mark.thorough
@pytest.mark.parametrize("step", [0, 99, 100, 217])
@pytest.mark.parametrize("pause", [None, 50, 100])
def test_the_step_of_divergence_is_exact_wherever_losses_are_looked_at(
    step: int, pause: int | None, config: MakeConfig, tiny: Benchmark
) -> None:
    kind = type("Breaks", (BreaksAt,), {"breaks_at": step})
    configs = [config(method="sgd", seed=seed, batch=2, epochs=5) for seed in (0, 1)]
    stack = stack_of(configs, tiny, method=kind)
    # 23, 19 and 45 samples in batches of 2: 12 + 10 + 23 steps an epoch.
    assert stack.total_steps == 5 * (12 + 10 + 23)
    steps = stack.run()
    if pause is not None:
        while stack.steps_done < pause:
            next(steps)
        state, position = snapshot(stack), stack.position
        stack = stack_of(configs, tiny, method=kind)
        stack.restore(state, position)
    finish(stack)
    assert [result.diverged_at for result in stack.results()] == [None, step]


def test_trials_of_one_stack_must_have_one_shape(config: MakeConfig, tiny: Benchmark) -> None:
    for change in ({"batch": 3}, {"buffer": 5}, {"epochs": 3}, {"replay_batch": 2}):
        with pytest.raises(ValueError, match="seed, mask, lr and weights only"):
            stack_of([config(), config(**change)], tiny)


# ---- Leaving and coming back --------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"method": "er"},
        {"method": "sgd"},
        {"buffer": 13},
    ],
)
def test_a_state_of_another_kind_is_refused_and_nothing_changes(
    change: dict[str, Any], config: MakeConfig, tiny: Benchmark
) -> None:
    stack, other = stack_of([config()], tiny), stack_of([config(**change)], tiny)
    steps, others = stack.run(), other.run()
    for _ in range(7):
        next(steps)
        next(others)
    before, position = snapshot(stack), stack.position
    with pytest.raises(ValueError, match="saved"):
        stack.restore(snapshot(other), Position())
    assert stack.position == position
    for name, value in before.items():
        torch.testing.assert_close(stack.state()[name], value, rtol=0, atol=0, equal_nan=True)


def test_a_state_that_fits_in_all_but_its_last_tensor_is_refused_whole(
    config: MakeConfig, tiny: Benchmark
) -> None:
    stack = stack_of([config()], tiny)
    before = snapshot(stack)
    wrong = {name: torch.ones_like(tensor) for name, tensor in before.items()}
    *_, last = wrong
    for damaged in (
        wrong | {last: wrong[last].double()},
        wrong | {last: torch.ones(9, dtype=wrong[last].dtype)},
        {name: tensor for name, tensor in wrong.items() if name != last},
        wrong | {"net/extra": torch.ones(1)},
    ):
        with pytest.raises(ValueError, match="saved"):
            stack.restore(damaged, Position(1))
        assert stack.position == Position()
        for name, value in before.items():
            torch.testing.assert_close(stack.state()[name], value, rtol=0, atol=0, equal_nan=True)


# ---- A step against slow references -------------------------------------------------------------


@pytest.mark.thorough
@some_methods
def test_a_step_replays_what_was_stored_before_it_and_sees_inputs_between_0_and_1(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    # With one slot, what is replayed is what the memory held when the step began.
    seen: list[Step] = []
    if METHODS[method].own_memory != "no":
        pytest.skip("its memory is its own")
    configs = mixed_configs(config, method, buffer=1, batch=2)
    stack = stack_of(configs, tiny, method=recording(method, seen))
    held = {name: value for name, value in snapshot(stack).items() if name.startswith("memory/")}
    filled = False
    for position in stack.run():
        if position.step == 0:
            continue
        step = seen.pop()
        assert 0 <= float(step.stream.inputs.min()) <= float(step.stream.inputs.max()) <= 1
        assert len(step.replays) == (METHODS[method].draws if filled else 0)
        for replay in step.replays:
            assert replay.inputs.shape == (3, 1, *tiny.input_shape)
            torch.testing.assert_close(
                replay.inputs.squeeze(1), held["memory/inputs"].float() / 255
            )
            assert torch.equal(replay.labels.squeeze(1), held["memory/labels"])
            if METHODS[method].stores_logits:
                assert torch.equal(replay.recorded.squeeze(1), held["memory/logits"])
        held = {name: v for name, v in snapshot(stack).items() if name.startswith("memory/")}
        filled = True


def made_step(mask: float | None, arrived: int = 3, recalled: int = 5, draws: int = 1) -> Step:
    """A step of two trials and four classes, of which classes 2 and 3 are the task's."""
    generator = torch.Generator().manual_seed(1)

    def batch(size: int, low: int) -> Batch:
        logits = torch.randn(2, size, 4, generator=generator, requires_grad=True)
        labels = torch.randint(low, 4, (2, size), generator=generator)
        made = Batch(torch.zeros(2, size, 1), labels, lambda _: logits, torch.ones(2, size, 4))
        assert made.logits is logits
        return made

    active = None if mask is None else torch.tensor([[[False, False, True, True]]] * 2)
    value = None if mask is None else torch.full((2, 1, 1), mask)
    replays = tuple(batch(recalled, 0) for _ in range(draws))
    task = Task(1, torch.arange(9), (2, 3), (0, 1, 2, 3), 4)
    rows = torch.zeros(2, arrived, dtype=torch.int64)
    return Step(batch(arrived, 2), replays, active, value, rows, task)


def made_er() -> ER:
    method = ER({})
    method.context = cast(Context, SimpleNamespace(sums_batches=False))
    return method


def test_er_weighs_stream_and_replay_by_their_samples() -> None:
    step = made_step(None)
    loss = made_er().loss(step)
    for trial in range(2):
        logits = torch.cat([step.stream.logits[trial], step.replays[0].logits[trial]])
        labels = torch.cat([step.stream.labels[trial], step.replays[0].labels[trial]])
        torch.testing.assert_close(loss[trial], F.cross_entropy(logits, labels))


@pytest.mark.parametrize("mask", [-INF, -1.0])
def test_mser_masks_the_stream_and_leaves_the_replay_alone(mask: float) -> None:
    step = made_step(mask)
    loss = made_er().loss(step)
    (replay,) = step.replays
    for trial in range(2):
        masked = step.stream.logits[trial].detach().clone()
        masked[:, :2] = mask
        new = F.cross_entropy(masked, step.stream.labels[trial], reduction="sum")
        old = F.cross_entropy(replay.logits[trial], replay.labels[trial], reduction="sum")
        torch.testing.assert_close(loss[trial], (new + old) / 8)
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert step.stream.logits.grad is not None
    assert replay.logits.grad is not None
    assert not step.stream.logits.grad[..., :2].any()
    assert step.stream.logits.grad[..., 2:].all()
    assert replay.logits.grad.all()


@pytest.mark.parametrize("kind", [SGD, Joint])
def test_sgd_and_joint_learn_from_the_stream_alone(kind: type[Method]) -> None:
    step = made_step(None, draws=0)
    loss = kind({}).loss(step)
    for trial in range(2):
        expected = F.cross_entropy(step.stream.logits[trial], step.stream.labels[trial])
        torch.testing.assert_close(loss[trial], expected)


def test_der_adds_the_distance_to_what_was_recorded() -> None:
    step = made_step(None)
    alpha = torch.tensor([0.5, 2.0])
    loss = DER({"alpha": alpha}).loss(step)
    for trial in range(2):
        expected = F.cross_entropy(step.stream.logits[trial], step.stream.labels[trial])
        # The mean runs over 5 samples and 4 classes; what was recorded is all ones.
        distance = (step.replays[0].logits[trial] - 1).square().sum() / 20
        torch.testing.assert_close(loss[trial], expected + alpha[trial] * distance)


def test_derpp_weighs_its_two_draws_by_alpha_and_beta() -> None:
    step = made_step(-1.0, draws=2)
    recalled, relearnt = step.replays
    alpha, beta = torch.tensor([0.5, 2.0]), torch.tensor([3.0, 0.25])
    loss = DERpp({"alpha": alpha, "beta": beta}).loss(step)
    for trial in range(2):
        masked = step.stream.logits[trial].clone()
        masked[:, :2] = -1.0
        expected = F.cross_entropy(masked, step.stream.labels[trial])
        # The mean runs over samples and classes; what was recorded is all ones.
        expected = expected + alpha[trial] * (recalled.logits[trial] - 1).square().sum() / 20
        expected = expected + beta[trial] * F.cross_entropy(
            relearnt.logits[trial], relearnt.labels[trial]
        )
        torch.testing.assert_close(loss[trial], expected)


@every_method
def test_batch_statistics_are_of_one_forward_or_of_one_for_each_draw(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    kind = METHODS[method]
    if issubclass(kind, PNN):
        pytest.skip("its columns have batch statistics of their own, see test_pnn.py")
    if not kind.trains_net:
        pytest.skip("nothing goes through its net")
    stack = stack_of([config(method=method)], tiny, build_net=batch_normed)
    steps = stack.run()
    next(steps)
    after = 1 if method == "hal" else 0  # HAL looks at the features after every step
    assert stack.state()["net/1.num_batches_tracked"].tolist() == [1 + after]
    next(steps)
    forwards = 1 if kind.one_forward else 1 + kind.draws
    forwards += method == "mir"  # which scores candidates before it replays some
    assert stack.state()["net/1.num_batches_tracked"].tolist() == [1 + forwards + 2 * after]


# ---- Evaluation ---------------------------------------------------------------------------------


@pytest.mark.thorough
@some_methods
def test_accuracies_and_confidence_equal_a_slow_count(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    if METHODS[method].scores is not Method.scores:
        pytest.skip("it predicts in its own way")
    configs = mixed_configs(config, method)
    stack = stack_of(configs, tiny)
    tested: list[dict[str, Tensor]] = []
    for position in stack.run():
        if position.task > len(tested):
            tested.append(snapshot(stack))
    last_only = METHODS[method].learns == "union"
    assert len(tested) == (1 if last_only else 3)
    for trial, result in enumerate(stack.results()):
        for row in range(3):
            if last_only and row < 2:
                assert np.isnan(result.class_il[row]).all()
                assert np.isnan(result.task_il[row]).all()
                continue
            net = small_mlp(tiny.input_shape, tiny.num_classes)
            weights = tested[0 if last_only else row]
            net.load_state_dict({n: weights[f"net/{n}"][trial] for n in net.state_dict()})
            for task in range(3):
                if task > row:
                    assert math.isnan(result.class_il[row][task])
                    assert math.isnan(result.task_il[row][task])
                    continue
                of_all, of_task, count = 0, 0, 0
                for image, label in zip(tiny.test_inputs, tiny.test_labels.tolist(), strict=True):
                    if label not in tiny.tasks[task]:
                        continue
                    said = net(image[None] / 255)[0].tolist()
                    of_all += max(range(6), key=said.__getitem__) == label
                    of_task += max(tiny.tasks[task], key=said.__getitem__) == label
                    count += 1
                assert result.class_il[row][task] == pytest.approx(100 * of_all / count, abs=1e-9)
                assert result.task_il[row][task] == pytest.approx(100 * of_task / count, abs=1e-9)
        chances: list[list[float]] = [[] for _ in range(6)]
        for image, label in zip(tiny.test_inputs, tiny.test_labels.tolist(), strict=True):
            chances[label].append(net(image[None] / 255).detach()[0].softmax(0)[label].item())
        assert result.confidence == pytest.approx([float(np.mean(c)) for c in chances], rel=1e-4)
        confusion, right, sure = np.zeros((6, 6)), 0, []
        for image, label in zip(tiny.test_inputs, tiny.test_labels.tolist(), strict=True):
            chance, answer = net(image[None] / 255).detach()[0].softmax(0).max(0)
            confusion[label, int(answer)] += 1
            right += int(answer) == label
            sure.append(chance.item())
        assert result.answers is not None
        np.testing.assert_array_equal(result.answers.confusion, confusion)
        assert (sum(result.answers.counts), sum(result.answers.right)) == (len(sure), right)
        assert sum(result.answers.confidence) == pytest.approx(sum(sure), rel=1e-4)
        in_bins = zip(result.answers.counts, result.answers.confidence, strict=True)
        for number, (count, total) in enumerate(in_bins):
            assert number / 15 * count - 1e-6 <= total <= (number + 1) / 15 * count + 1e-6


def test_memory_is_counted_in_bytes_also_where_a_method_keeps_rows(
    config: MakeConfig, tiny: Benchmark
) -> None:
    sample = tiny.train_inputs[0].nbytes
    buffer = 6
    er = stack_of([config(method="er", buffer=buffer)], tiny).finish()[0]
    assert er.memory_bytes == buffer * (sample + 8)  # and a label
    agem = stack_of([config(method="agem", buffer=buffer)], tiny).finish()[0]
    assert agem.memory_bytes is not None
    assert agem.memory_bytes >= buffer * sample
    assert stack_of([config(method="sgd", buffer=0)], tiny).finish()[0].memory_bytes == 0


def stubborn(answer: int) -> NetBuilder:
    """A net that says one class whatever it sees, and next to that the classes in order."""

    def build(shape: tuple[int, ...], num_classes: int) -> nn.Module:
        net = mlp(shape, num_classes, hidden=())
        with torch.no_grad():
            for name, value in net.named_parameters():
                value.zero_()
                if name.endswith("bias"):
                    value.copy_(-torch.arange(float(num_classes)))
                    value[answer] = 100.0
        return net

    return build


def test_classes_that_have_not_come_yet_compete_in_class_il_and_not_in_task_il(
    config: MakeConfig, tiny: Benchmark
) -> None:
    # Tasks (3, 0), (4,), (1, 2, 5). The net says 5, then 0, 1, 2, 3, 4; it learns nothing at this
    # rate. Test samples of class k: 3 + k.
    stack = stack_of([config(method="sgd", lr=1e-30)], tiny, build_net=stubborn(5))
    (result,) = finish(stack).results()
    assert result.class_il[0][0] == 0
    assert result.task_il[0][0] == pytest.approx(100 * 3 / (3 + 6))
    assert result.class_il[1][:2] == (0, 0)
    assert result.task_il[1][1] == 100  # the only class of its task, and exactly 100
    assert result.class_il[2] == pytest.approx([0, 0, 100 * 8 / (4 + 5 + 8)])
    assert result.task_il[2] == pytest.approx([100 * 3 / 9, 100, 100 * 8 / 17])


def test_all_right_is_exactly_100_percent(config: MakeConfig) -> None:
    # 45 of 45: in float32 the percentage would come out above 100.
    inputs, labels = torch.ones(45, 1, dtype=torch.uint8), torch.zeros(45, dtype=torch.int64)
    single = Benchmark("tiny", inputs, labels, inputs, labels, ((0,),), scale=1 / 255)
    (result,) = finish(stack_of([config(method="sgd")], single)).results()
    assert result.class_il == ((100.0,),)
    assert result.task_il == ((100.0,),)


@pytest.mark.thorough
@some_methods
def test_the_matrix_is_measured_on_and_below_the_diagonal_only(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    stack = stack_of([config(method=method)], tiny)
    assert math.isnan(stack.measured.running_accuracy())
    finish(stack)
    measured = ~np.isnan(matrices(stack)[0])
    expected = np.tril(np.ones((3, 3), dtype=bool))
    if METHODS[method].learns == "union":
        expected[:2] = False
    told = np.array(stack.results()[0].task_il)
    np.testing.assert_array_equal(~np.isnan(told), expected)
    if METHODS[method].class_il:
        np.testing.assert_array_equal(measured, expected)
        assert stack.measured.running_accuracy() == pytest.approx(matrices(stack)[0, 2].mean())
    else:
        assert not measured.any()
        assert math.isnan(stack.measured.running_accuracy())


# ---- Odd settings -------------------------------------------------------------------------------


@pytest.mark.thorough
@some_methods
@pytest.mark.parametrize(
    "change",
    [
        {"buffer": 3, "replay_batch": 8},
        {"buffer": 1, "replay_batch": 1},
        {"buffer": 1, "replay_batch": 4, "batch": 64},
        {"batch": 1, "epochs": 1},
        {"buffer": 10_000},
    ],
    ids=str,
)
def test_small_buffers_and_odd_batches_run_to_the_end(
    method: str, change: dict[str, int], config: MakeConfig, tiny: Benchmark
) -> None:
    seen: list[Step] = []
    configs = mixed_configs(config, method, **change)
    least = METHODS[method].least_buffer(tiny.num_tasks, tiny.num_classes)
    if configs[0].buffer < least:
        with pytest.raises(MethodError, match=f"needs `buffer >= {least}`"):
            stack_of(configs, tiny)
        return
    stack = finish(stack_of(configs, tiny, method=recording(method, seen)))
    assert all(result.diverged_at is None for result in stack.results())
    assert all(tensor.isfinite().all() for name, tensor in stack.state().items() if "net/" in name)
    presented = 0
    for step in seen:
        filled = min(presented, configs[0].buffer)
        for replay in step.replays:
            assert replay.labels.shape == (3, min(filled, configs[0].replay_batch))
        presented += step.stream.labels.shape[1]


@every_method
def test_a_method_that_replays_needs_a_buffer_and_a_replay_batch(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    kind = METHODS[method]
    for change, needed in (
        ({"buffer": 0}, kind.uses_buffer()),
        ({"replay_batch": 0}, kind.uses_replay_batch()),
    ):
        if needed:
            with pytest.raises(ValueError, match=r"needs .(buffer|replay_batch) >= \d"):
                stack_of([config(method=method, **change)], tiny)
        else:
            stack_of([config(method=method, **change)], tiny)


def test_an_unknown_method_is_refused_with_the_nearest_name(
    config: MakeConfig, tiny: Benchmark
) -> None:
    with pytest.raises(ValueError, match="did you mean 'derpp'"):
        stack_of([config(method="derp")], tiny)


# ---- Whole runs ---------------------------------------------------------------------------------


def test_building_and_running_leave_torch_s_global_stream_alone(
    config: MakeConfig, tiny: Benchmark
) -> None:
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    finish(stack_of([config()], tiny))
    assert torch.equal(torch.random.get_rng_state(), before)


@some_methods
def test_steps_are_counted_from_the_first_to_the_last(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    stack = stack_of([config(method=method)], tiny)
    # 23, 19 and 45 samples in batches of 5, two epochs, or one if no net is trained; all 87 at once
    # for the union.
    # iCaRL adds 12 exemplars to the second task and to the third.
    steps = {"joint": 18, "icarl": 5 + 7 + 12, "icarl-dark": 5 + 7 + 12}.get(method, 5 + 4 + 9)
    assert stack.total_steps == (2 if METHODS[method].trains_net else 1) * steps
    assert stack.steps_done == 0
    counted = 0
    for position in stack.run():
        counted += position.step > 0
        assert stack.steps_done == counted
    assert counted == stack.total_steps
    assert list(stack.run()) == []


def test_a_masked_replay_forgets_less_than_er_on_digits(
    config: MakeConfig, digits: Benchmark
) -> None:
    seeds = range(8)
    configs = [
        config(
            benchmark="split-digits", method="er", net="mlp", mask=mask, seed=seed, buffer=20,
            batch=10, replay_batch=10,
        )
        for mask in (None, -INF)
        for seed in seeds
    ]  # fmt: skip
    forgot = forgetting(matrices(finish(TrialStack(configs, digits)))).reshape(2, len(seeds))
    # Measured: 35.7 and 16.9 on average, and less with the mask for every seed.
    assert (forgot[1] < forgot[0]).all()
    assert forgot[0].mean() - forgot[1].mean() > 10
