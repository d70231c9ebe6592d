"""Inputs that are floats: kept as they are, in training, in memory and in checkpoints."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.data.user_data import arrays
from remask.engine import Position, TrialStack
from remask.engine.checkpoints import CheckpointFolder
from remask.methods import METHODS
from tests.engine.stack_samples import batch_normed, finish, small_mlp, snapshot

MakeConfig = Callable[..., TrialConfig]


def as_floats(benchmark: Benchmark) -> Benchmark:
    """The numbers that the network sees of a benchmark of bytes, as inputs of their own."""
    return replace(
        benchmark,
        train_inputs=benchmark.train_inputs.float() * benchmark.scale,
        test_inputs=benchmark.test_inputs.float() * benchmark.scale,
        scale=1.0,
    )


def embeddings(path: Path) -> Benchmark:
    """Vectors [N, D] in no particular range, of six classes, through a file."""
    random = np.random.default_rng(3)
    labels = np.arange(180) % 6
    inputs = random.standard_normal((180, 8)) + 4 * np.eye(6, 8)[labels]
    np.savez(path, inputs=inputs, labels=labels)
    return arrays(path, tasks=3, name="tiny")


def same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.nan_to_num(-1), other.nan_to_num(-1))


@pytest.mark.parametrize("method", METHODS)
def test_floats_are_learnt_from_as_the_bytes_are_that_are_seen_as_the_same_numbers(
    config: MakeConfig, tiny: Benchmark, method: str
) -> None:
    configs = [config(method=method, epochs=1)]
    bytes_stack = finish(TrialStack(configs, tiny, build_net=small_mlp))
    of_bytes = bytes_stack.state()
    of_floats = finish(TrialStack(configs, as_floats(tiny), build_net=small_mlp)).state()
    for name, tensor in of_bytes.items():
        if name == "memory/inputs":
            assert tensor.dtype == torch.uint8
            assert of_floats[name].dtype == torch.float32
            tensor = tensor.float() * tiny.scale
        assert same(tensor, of_floats[name]), name


def test_float_images_are_standardised_cropped_and_mirrored_as_bytes_are(
    config: MakeConfig, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    images = replace(
        tiny_benchmark(shape=(2, 3, 3)), mean=(0.4, 0.6), std=(0.2, 0.3), crop_padding=1, flip=True
    )
    configs = [config(method="derpp", seed=seed) for seed in range(2)]
    stacks = [
        finish(TrialStack(configs, benchmark, build_net=batch_normed))
        for benchmark in (images, as_floats(images))
    ]
    for name, tensor in stacks[0].state().items():
        if name != "memory/inputs":
            assert same(tensor, stacks[1].state()[name]), name


@pytest.mark.parametrize("method", ["derpp", "gss"])
def test_a_run_on_floats_that_is_stopped_goes_on_from_its_checkpoint_bit_for_bit(
    config: MakeConfig, tmp_path: Path, method: str
) -> None:
    benchmark = embeddings(tmp_path / "embeddings.npz")
    configs = [config(method=method, lr=0.03, buffer=18, seed=seed) for seed in range(2)]
    whole = finish(TrialStack(configs, benchmark, build_net=small_mlp))
    stopped = TrialStack(configs, benchmark, build_net=small_mlp)
    for _ in stopped.run():
        if stopped.steps_done * 2 > stopped.total_steps:
            break
    CheckpointFolder(tmp_path / "run", "run").save(
        stopped.state(), stopped.position._asdict(), extra={}
    )
    fresh = TrialStack(configs, benchmark, build_net=small_mlp)
    saved = CheckpointFolder(tmp_path / "run", "run").load(fresh.state(), growing=fresh.growing)
    assert saved is not None
    if "memory/inputs" in saved.tensors:
        assert saved.tensors["memory/inputs"].dtype == torch.float32
    fresh.restore(saved.tensors, Position(**saved.position))
    ended = snapshot(finish(fresh))
    for name, tensor in snapshot(whole).items():
        assert same(tensor, ended[name]), name


def test_a_checkpoint_of_bytes_is_not_taken_for_one_of_floats(
    config: MakeConfig, tiny: Benchmark
) -> None:
    stack = TrialStack([config()], tiny, build_net=small_mlp)
    floats = TrialStack([config()], as_floats(tiny), build_net=small_mlp)
    with pytest.raises(ValueError, match=r"memory/inputs is torch\.uint8 .* is torch\.float32"):
        floats.restore(snapshot(stack), Position())
