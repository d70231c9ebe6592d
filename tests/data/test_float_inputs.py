"""Inputs that are floats: kept as they are, in training, in memory and in checkpoints."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import Position, TrialStack
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


def test_a_checkpoint_of_bytes_does_not_fit_floats(config: MakeConfig, tiny: Benchmark) -> None:
    stack = TrialStack([config()], tiny, build_net=small_mlp)
    floats = TrialStack([config()], as_floats(tiny), build_net=small_mlp)
    with pytest.raises(ValueError, match=r"memory/inputs is torch\.uint8 .* is torch\.float32"):
        floats.restore(snapshot(stack), Position())
