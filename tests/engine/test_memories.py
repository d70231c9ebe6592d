"""The memories of a stack: balanced and merging ones, and those whose samples stay on disk."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import DataDescription, StreamError, TrialStack
from remask.memory import MappedRows, SampleFileError
from remask.methods import METHODS, Task
from tests.engine.stack_samples import MakeConfig, assert_same, finish, small_mlp, snapshot, task_of

DRAWING = sorted(name for name, kind in METHODS.items() if kind.draws)


def merging(config: MakeConfig, method: str, **changes: object) -> list[TrialConfig]:
    """So few places that the second task begins to merge."""
    each = {"method": method, "memory": "merging", "buffer": 2, **changes}
    return [config(seed=seed, **each) for seed in (0, 1, 2)]


def test_a_balanced_memory_holds_as_many_of_each_class_and_none_twice(
    config: MakeConfig, tiny: Benchmark
) -> None:
    configs = [config(method="er", memory="balanced", epochs=3, seed=seed) for seed in range(3)]
    state = finish(TrialStack(configs, tiny, build_net=small_mlp)).state()
    labels = state["memory/labels"].view(3, 12)
    assert [torch.bincount(own).tolist() for own in labels] == [[2] * 6] * 3
    sizes = torch.bincount(tiny.train_labels)
    assert torch.equal(state["memory/offered"], sizes.expand(3, -1))
    for own in state["memory/inputs"].view(3, 12, -1):
        assert len(own.unique(dim=0)) == 12


def test_a_merging_memory_has_a_reservoirs_labels_and_samples_that_nobody_sent(
    config: MakeConfig, tiny: Benchmark
) -> None:
    state = finish(TrialStack(merging(config, "er", epochs=1), tiny, build_net=small_mlp)).state()
    plain = merging(config, "er", epochs=1, memory="reservoir")
    usual = finish(TrialStack(plain, tiny, build_net=small_mlp)).state()
    assert torch.equal(state["memory/labels"], usual["memory/labels"])
    sent = {row.numpy().tobytes() for row in tiny.train_inputs}
    assert all(row.numpy().tobytes() in sent for row in usual["memory/inputs"])
    single = state["memory/counts"] == 1
    assert 0 < single.sum() < len(single)
    for row, alone in zip(state["memory/inputs"], single.tolist(), strict=True):
        assert (row.numpy().tobytes() in sent) == alone


def test_a_memory_with_a_place_for_one_in_sixteen_samples_merges_nothing(
    config: MakeConfig, tiny: Benchmark
) -> None:
    inputs = {}
    for memory in ("merging", "reservoir"):
        configs = merging(config, "er", buffer=6, memory=memory)  # 87 samples, and 96 were needed
        state = finish(TrialStack(configs, tiny, build_net=small_mlp)).state()
        inputs[memory] = state["memory/inputs"]
    assert torch.equal(inputs["merging"], inputs["reservoir"])


def in_file(folder: Path, inputs: Tensor) -> MappedRows:
    path = folder / f"{len(list(folder.iterdir()))}.npy"
    np.save(path, inputs.numpy())
    return MappedRows(path)


def task_in_file(stack: TrialStack, benchmark: Benchmark, number: int, folder: Path) -> Task:
    rows = benchmark.train_indices(number)
    inputs = in_file(folder, benchmark.train_inputs[rows])
    return stack.new_task(inputs, benchmark.train_labels[rows])


def results_of(stack: TrialStack) -> dict[str, Tensor]:
    """What does not depend on where the samples are."""
    return {
        name: tensor
        for name, tensor in snapshot(stack).items()
        if not name.startswith(("memory/inputs", "memory/sources", "metrics/"))
    }


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "memory"),
    [
        ("derpp", "balanced"),
        ("er_ema", "reservoir"),
        ("hal", "balanced"),
        ("icarl", "reservoir"),
        ("gss", "reservoir"),
    ],
)
def test_samples_on_disk_are_learnt_as_those_in_memory(
    config: MakeConfig, tiny: Benchmark, tmp_path: Path, method: str, memory: str
) -> None:
    tiny = replace(tiny, crop_padding=1, flip=True)
    changes = {"method": method, "memory": memory, "validation": 0.2}
    configs = [config(seed=seed, **changes) for seed in (0, 0, 1)]  # two share their samples
    data = DataDescription.of(tiny)
    plain = TrialStack(configs, data, build_net=small_mlp)
    mapped = TrialStack(
        configs, data, build_net=small_mlp, earlier_samples=[] if method in DRAWING else None
    )
    for number in range(3):
        plain.learn(task_of(plain, tiny, number))
        mapped.learn(task_in_file(mapped, tiny, number, tmp_path))
    assert_same(results_of(plain), results_of(mapped))
    if method in DRAWING:
        every = torch.cat([tiny.train_inputs[tiny.train_indices(number)] for number in range(3)])
        state = mapped.state()
        assert "memory/inputs" not in state
        held = state["memory/labels"] >= 0
        inputs = plain.state()["memory/inputs"]
        assert torch.equal(every[state["memory/sources"]][held], inputs[held])


@pytest.mark.parametrize("steps", [3, None])
def test_a_memory_on_disk_goes_on_in_another_stack(
    config: MakeConfig, tiny: Benchmark, tmp_path: Path, steps: int | None
) -> None:
    configs = [config(memory="balanced", seed=4) for _ in range(2)]
    data = DataDescription.of(tiny)

    def stack_with(files: list[MappedRows]) -> TrialStack:
        return TrialStack(configs, data, build_net=small_mlp, earlier_samples=files)

    whole = stack_with([])
    for number in range(3):
        whole.learn(task_in_file(whole, tiny, number, tmp_path))

    stopped = stack_with([])
    files = [MappedRows(tmp_path / "0.npy"), MappedRows(tmp_path / "1.npy")]
    stopped.learn(stopped.new_task(files[0], labels_of(tiny, 0)))
    for _ in islice(stopped.learn_steps(stopped.new_task(files[1], labels_of(tiny, 1))), steps):
        pass
    learnt = stopped.position.task
    resumed = stack_with(files[:learnt])
    resumed.restore(snapshot(stopped), stopped.position)
    for number in range(learnt, 3):
        resumed.learn(task_in_file(resumed, tiny, number, tmp_path))
    assert_same(snapshot(whole), snapshot(resumed))

    forgetful = stack_with([])
    forgetful.restore(snapshot(whole), whole.position)
    with pytest.raises(SampleFileError, match="pass all earlier samples"):
        forgetful.learn(task_in_file(forgetful, tiny, 1, tmp_path))


def labels_of(benchmark: Benchmark, number: int) -> Tensor:
    return benchmark.train_labels[benchmark.train_indices(number)]


def test_earlier_samples_that_could_not_be_used_are_refused(
    config: MakeConfig, tiny: Benchmark, tmp_path: Path
) -> None:
    data = DataDescription.of(tiny)
    other = in_file(tmp_path, torch.zeros(2, 1, 4, 4, dtype=torch.uint8))
    with pytest.raises(StreamError, match=r"must be torch.uint8 \[1, 3, 3\] each"):
        TrialStack([config()], data, build_net=small_mlp, earlier_samples=[other])


def test_a_number_that_is_not_finite_is_found_in_a_file(config: MakeConfig, tmp_path: Path) -> None:
    data = DataDescription((3,), 2, name="tiny", input_type=torch.float32, scale=1.0)
    inputs = torch.ones(5, 3)
    inputs[4, 1] = torch.nan
    stack = TrialStack([config()], data, build_net=small_mlp)
    with pytest.raises(StreamError, match="a NaN or an infinite number"):
        stack.new_task(in_file(tmp_path, inputs), torch.tensor([0, 1, 0, 1, 0]))
