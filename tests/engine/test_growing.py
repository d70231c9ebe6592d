"""Heads that grow: what was known stays as it was, and what is new is learnt."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import DataDescription, Position, StreamError, TrialStack, checkpoints
from remask.engine.checkpoints import CheckpointError, CheckpointFolder
from remask.methods import ER, METHODS, MethodError
from remask.nets.builders import NetBuilder
from tests.engine.stack_samples import (
    MakeConfig,
    assert_same,
    batch_normed,
    small_mlp,
    small_resnet,
    snapshot,
    task_of,
)
from tests.engine.test_open_streams import OPEN, configs_of

KNOWN, CLASSES = 3, 6


@pytest.fixture
def ordered(tiny_benchmark: Callable[..., Benchmark]) -> Benchmark:
    """Classes 0, 1 and 2 come in two tasks, and then three more."""
    return tiny_benchmark(tasks=((0, 1), (2,), (3, 4, 5)))


def stack_of(
    configs: list[TrialConfig], classes: int, build: NetBuilder = small_mlp, **more: Any
) -> TrialStack:
    data = DataDescription((1, 3, 3), classes, name="tiny", num_tasks=3)
    return TrialStack(configs, data, build_net=build, **more)


def learnt(stack: TrialStack, benchmark: Benchmark, tasks: int) -> TrialStack:
    for number in range(tasks):
        stack.learn(task_of(stack, benchmark, number))
    return stack


def assert_same_logits(before: Tensor, after: Tensor) -> None:
    """Of the same weights; but a product of matrices may sum in another order if one is wider."""
    torch.testing.assert_close(after[..., :KNOWN], before, rtol=1e-5, atol=1e-6)
    assert torch.equal(after[..., :KNOWN].argmax(-1), before.argmax(-1))


def grown_from(small: TrialStack, wide: TrialStack) -> TrialStack:
    wide.grow_from(snapshot(small), small.position)
    return wide


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "memory"),
    [*((method, "reservoir") for method in OPEN), ("derpp", "balanced"), ("er", "merging")],
)
def test_a_grown_head_says_the_same_of_known_classes_and_goes_on_learning(
    config: MakeConfig, ordered: Benchmark, method: str, memory: str
) -> None:
    configs = configs_of(config, method, memory=memory)
    small = learnt(stack_of(configs, KNOWN), ordered, 2)
    wide = grown_from(small, stack_of(configs, CLASSES))
    inputs = ordered.test_inputs * (1 / 255)
    before, after = small.scores(inputs, 1), wide.scores(inputs, 1)
    assert_same_logits(before, after)
    for name, tensor in small.state().items():
        if name.startswith(("net/", "method/")):
            inside = tuple(map(slice, tensor.shape))
            assert torch.equal(wide.state()[name][inside], tensor), name
    without_samples = method.startswith("icarl") or not METHODS[method].trains_net
    nothing = -torch.inf if without_samples else 0
    assert bool((after[..., KNOWN:] == nothing).all())
    assert wide.position == Position(2)

    whole = grown_from(small, stack_of(configs, CLASSES))
    whole.learn(task_of(whole, ordered, 2))
    for _ in islice(wide.learn_steps(task_of(wide, ordered, 2)), 4):
        pass
    resumed = stack_of(configs, CLASSES)
    resumed.restore(snapshot(wide), wide.position)
    resumed.learn(task_of(resumed, ordered, 2))
    assert_same(snapshot(whole), snapshot(resumed))
    said = whole.scores(inputs, 2)
    assert bool(said.isfinite().all())
    new = ordered.test_labels >= KNOWN
    truth = ordered.test_labels[new].expand(2, -1).unsqueeze(2)
    ahead = said[:, new].gather(2, truth).squeeze(2) - said[:, new, KNOWN:].mean(2)  # 0 at first
    assert bool((ahead.mean(1) > 0).all())


@pytest.mark.parametrize("build", [small_mlp, small_resnet, batch_normed])
def test_any_net_whose_last_layer_is_linear_can_grow(
    config: MakeConfig, ordered: Benchmark, build: NetBuilder
) -> None:
    configs = [config(method="derpp")]
    small = learnt(stack_of(configs, KNOWN, build), ordered, 1)
    wide = grown_from(small, stack_of(configs, CLASSES, build))
    inputs = ordered.test_inputs * (1 / 255)
    assert_same_logits(small.scores(inputs, 0), wide.scores(inputs, 0))
    logits = wide.state()["memory/logits"]
    assert torch.equal(logits[:, :KNOWN], small.state()["memory/logits"])
    assert not logits[:, KNOWN:].any()


def test_logits_that_are_stored_with_the_mask_have_it_for_new_classes(
    config: MakeConfig, ordered: Benchmark
) -> None:
    configs = [config(mask=mask, mask_stored=True) for mask in (-1.0, -2.5)]
    small = learnt(stack_of(configs, KNOWN), ordered, 1)
    wide = grown_from(small, stack_of(configs, CLASSES))
    added = wide.state()["memory/logits"].view(2, 12, CLASSES)[..., KNOWN:]
    assert bool((added[0] == -1.0).all())
    assert bool((added[1] == -2.5).all())


def test_a_head_grows_with_all_candidates_of_a_trial(
    config: MakeConfig, ordered: Benchmark
) -> None:
    configs = [config(method="er", mask="auto", buffer=1000, seed=seed) for seed in (0, 1)]
    small = learnt(stack_of(configs, KNOWN), ordered, 2)
    wide = grown_from(small, stack_of(configs, CLASSES))
    assert wide.choices == small.choices
    inputs = ordered.test_inputs * (1 / 255)
    assert_same_logits(small.scores(inputs, 1), wide.scores(inputs, 1))
    wide.learn(task_of(wide, ordered, 2))
    assert len(wide.choices[0]) == 3


class Cosine(nn.Module):
    """A head that is no linear layer."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(classes, 9))

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.normalize(inputs.flatten(1), dim=1) @ self.rows.T


def squashed(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(9, classes), nn.Sigmoid())


def proportioned(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(9, classes), nn.ReLU(), nn.Linear(classes, classes)
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda shape, classes: Cosine(classes), "rows depends on the number of classes"),
        (squashed, "a logit that is not 0, since another layer follows it"),
        (proportioned, "3.weight depends on the number of classes"),
    ],
)
def test_a_net_that_cannot_grow_is_refused_and_nothing_changes(
    config: MakeConfig, ordered: Benchmark, build: NetBuilder, message: str
) -> None:
    configs = [config(method="er")]
    small = learnt(stack_of(configs, KNOWN, build), ordered, 1)
    wide = stack_of(configs, CLASSES, build)
    before = snapshot(wide)
    with pytest.raises(MethodError, match=message):
        wide.grow_from(snapshot(small), small.position)
    assert_same(before, snapshot(wide))


def test_a_method_that_cannot_grow_is_refused(config: MakeConfig, ordered: Benchmark) -> None:
    class Stubborn(ER):
        name = "stubborn"
        ungrowable = "it has made up its mind"

    class Odd(ER):
        name = "odd"
        remembers = ("pairs",)

        def prepare(self) -> None:
            self.pairs = torch.zeros(self.context.trials, self.context.num_classes**2)

    for kind, message in (
        (Stubborn, "the head of Stubborn cannot grow: it has made up its mind"),
        (Odd, r"method/pairs is \[1, 9\] with 3 classes and \[1, 36\] with 6"),
    ):
        configs = [config(method=kind.name)]
        small = learnt(stack_of(configs, KNOWN, method=kind), ordered, 1)
        with pytest.raises(MethodError, match=message):
            grown_from(small, stack_of(configs, CLASSES, method=kind))


def test_a_head_never_shrinks_and_only_a_fresh_stack_takes_over(
    config: MakeConfig, ordered: Benchmark
) -> None:
    configs = [config(method="er")]
    small = learnt(stack_of(configs, KNOWN), ordered, 1)
    same = grown_from(small, stack_of(configs, KNOWN))
    assert_same(snapshot(small), snapshot(same))
    with pytest.raises(StreamError, match="has 3 classes, but the stack only 2"):
        grown_from(small, stack_of(configs, 2))
    with pytest.raises(StreamError, match="has learnt nothing"):
        grown_from(small, same)
    with pytest.raises(StreamError, match="whose tasks come one by one"):
        grown_from(small, TrialStack(configs, ordered, build_net=small_mlp))


@pytest.mark.parametrize("method", ["derpp", "icarl", "lwf", "fdr"])
def test_a_checkpoint_of_an_open_stack_is_loaded_by_a_fresh_one(
    config: MakeConfig, ordered: Benchmark, tmp_path: Path, method: str
) -> None:
    configs = [config(method=method)]
    stack = learnt(stack_of(configs, CLASSES), ordered, 2)
    CheckpointFolder(tmp_path, "this").save(stack.state(), stack.position._asdict(), {})
    fresh, folder = stack_of(configs, CLASSES), CheckpointFolder(tmp_path, "this")
    with pytest.raises(CheckpointError, match="does not fit this run"):
        folder.load(fresh.state())
    saved = folder.load(fresh.state(), growing=fresh.growing)
    assert saved is not None
    fresh.restore(saved.tensors, Position(**saved.position))
    assert_same(snapshot(stack), snapshot(fresh))


def test_a_checkpoint_that_grew_too_far_or_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(expected: dict[str, Tensor]) -> object:
        return CheckpointFolder(tmp_path, "this").load(expected, growing=("a/",))

    CheckpointFolder(tmp_path, "this").save({"a/x": torch.ones(9, 3), "b/x": torch.ones(2)}, {}, {})
    fine = {"a/x": torch.zeros(0, 3), "b/x": torch.ones(2)}
    assert load(fine) is not None
    for change in (
        {"a/x": torch.zeros(0)},
        {"a/x": torch.zeros(0, 3).double()},
        {"b/x": torch.ones(1)},
        {"a/y": torch.zeros(0, 3)},
    ):
        with pytest.raises(CheckpointError, match="does not fit this run"):
            load({**fine, **change})
    monkeypatch.setattr(checkpoints, "_MOST_GROWTH", 100)
    with pytest.raises(CheckpointError, match="404 bytes, where at most 108 are expected"):
        load(fine)
