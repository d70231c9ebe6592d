"""The memories of a stack: balanced ones, and those whose samples stay on disk."""

from collections.abc import Callable
from itertools import islice

import pytest
import torch

from remask.benchmarks import Benchmark
from remask.config import TrialConfig
from remask.engine import DataDescription, TrialStack
from remask.methods import METHODS, MethodError
from tests.engine.stack_samples import finish, small_mlp, snapshot
from tests.engine.test_open_streams import assert_same, learn_all

MakeConfig = Callable[..., TrialConfig]
DRAWING = sorted(name for name, kind in METHODS.items() if kind.draws)


def balanced(config: MakeConfig, method: str, **changes: object) -> list[TrialConfig]:
    each = {"method": method, "memory": "balanced", **changes}
    return [config(seed=seed, **each) for seed in (0, 1, 2)]


# ---- Balanced -----------------------------------------------------------------------------------


def test_the_memory_is_left_out_of_a_config_that_has_the_usual_one(config: MakeConfig) -> None:
    plain = config()
    assert plain.memory == "reservoir"
    assert "memory" not in plain.canonical
    assert plain.hash == config(memory="reservoir").hash != config(memory="balanced").hash


@pytest.mark.parametrize("method", ["sgd", "icarl"])
def test_a_method_without_a_reservoir_cannot_have_a_balanced_one(
    config: MakeConfig, tiny: Benchmark, method: str
) -> None:
    with pytest.raises(MethodError, match="has no reservoir, which alone can be balanced"):
        TrialStack([config(method=method, memory="balanced")], tiny, build_net=small_mlp)


def test_a_balanced_memory_holds_as_many_of_each_class_and_none_twice(
    config: MakeConfig, tiny: Benchmark
) -> None:
    stack = finish(TrialStack(balanced(config, "er", epochs=3), tiny, build_net=small_mlp))
    state = stack.state()
    labels = state["memory/labels"].view(3, 12)
    assert [torch.bincount(own).tolist() for own in labels] == [[2] * 6] * 3
    sizes = torch.bincount(tiny.train_labels)
    assert torch.equal(state["memory/offered"], sizes.expand(3, -1))
    for own in state["memory/inputs"].view(3, 12, -1):
        assert len(own.unique(dim=0)) == 12


@pytest.mark.thorough
@pytest.mark.parametrize("method", DRAWING)
def test_a_trial_with_a_balanced_memory_is_the_same_alone_and_after_a_stop(
    config: MakeConfig, tiny: Benchmark, method: str
) -> None:
    configs = balanced(config, method)
    whole = finish(TrialStack(configs, tiny, build_net=small_mlp))
    alone = finish(TrialStack(configs[1:2], tiny, build_net=small_mlp))
    for name, tensor in alone.state().items():
        trials = whole.state()[name]
        if name.startswith(("net/", "memory/")):
            own = trials.view(3, *tensor.shape)[1] if "memory" in name else trials[1:2]
            rounding = 1e-4 if tensor.is_floating_point() else 0.0
            torch.testing.assert_close(tensor, own, rtol=rounding, atol=rounding)

    stopped = TrialStack(configs, tiny, build_net=small_mlp)
    steps = stopped.run()
    for _ in islice(steps, 3):
        pass
    for _ in range(5):
        resumed = TrialStack(configs, tiny, build_net=small_mlp)
        resumed.restore(snapshot(stopped), stopped.position)
        steps = resumed.run()
        for _ in islice(steps, 7):
            pass
        stopped = resumed
    assert_same(snapshot(whole), snapshot(finish(stopped)))


@pytest.mark.parametrize("method", ["hal", "derpp"])
def test_a_balanced_memory_in_an_open_stream_is_that_of_the_benchmark(
    config: MakeConfig, tiny: Benchmark, method: str
) -> None:
    configs = balanced(config, method)
    whole = finish(TrialStack(configs, tiny, build_net=small_mlp))
    stack = learn_all(TrialStack(configs, DataDescription.of(tiny), build_net=small_mlp), tiny)
    for name, tensor in stack.state().items():
        if name.startswith(("memory/", "net/")):
            assert torch.equal(tensor, whole.state()[name]), name
