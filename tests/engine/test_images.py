"""The engine with what images need: augmentation, normalisation, batch statistics, schedules."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.data.samples import batch_sizes
from remask.engine import TrialStack, module_stack
from remask.memory.reservoir import draw_distinct
from remask.methods import METHODS
from remask.nets.builders import NetBuilder
from remask.randomness import generator, torch_seed
from tests.engine.conftest import MEAN, PADDING, STD
from tests.engine.stack_samples import (
    MakeConfig,
    channels_last_net,
    finish,
    small_mlp,
    small_resnet,
    snapshot,
)
from tests.engine.test_augmentation import slow_view


def normalise(images: Tensor) -> Tensor:
    """Bytes [..., 3, H, W] as the benchmark's protocol has them seen."""
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    return (images * (1 / 255) - mean) / std


class HandWritten:
    """ER, DER and DER++ as people write them, with crops and mirrorings one image at a time.

    It reads the same random numbers as the engine, and nothing else of it.
    """

    def __init__(self, config: TrialConfig, benchmark: Benchmark, build: NetBuilder) -> None:
        self.config, self.benchmark = config, benchmark
        torch.manual_seed(torch_seed(config.seed, "init"))
        self.net = build(benchmark.input_shape, benchmark.num_classes).train()
        self.memory: list[tuple[Tensor, int, Tensor]] = []  # bytes, label, logits
        self.presented = 0

    def see(self, samples: list[Tensor], views: Iterator[tuple[int, int, bool]]) -> Tensor:
        return normalise(torch.stack([slow_view(x, *next(views), PADDING) for x in samples]))

    def run(self) -> None:
        config, draws = self.config, METHODS[self.config.method].draws
        for task in range(self.benchmark.num_tasks):
            self.absent = ~self.benchmark.active(task)
            rows = self.benchmark.train_indices(task).numpy()
            sizes = batch_sizes(len(rows), config.batch)
            for epoch in range(config.epochs):
                self.lr = config.lr * 0.1 ** sum(epoch + 1 > drop for drop in config.lr_drops)
                order, replay, reservoir, augment = (
                    generator(config.seed, purpose, task, epoch)
                    for purpose in ("order", "replay", "reservoir", "augment")
                )
                arriving = rows[order.permutation(len(rows))]
                filled = np.minimum(self.presented + np.cumsum([0, *sizes[:-1]]), config.buffer)
                slots = draw_distinct(replay, np.repeat(filled, draws), config.replay_batch)
                slots = slots.reshape(len(sizes), draws, -1)
                kept = reservoir.integers(0, self.presented + 1 + np.arange(len(rows)))
                most = (len(sizes), config.batch + draws * config.replay_batch)
                tops, lefts = augment.integers(0, 2 * PADDING + 1, (2, *most))
                flips = augment.integers(0, 2, most)
                for step, start in enumerate(np.cumsum([0, *sizes[:-1]])):
                    batch = arriving[start : start + sizes[step]]
                    views = zip(tops[step], lefts[step], flips[step], strict=True)
                    logits = self.step(batch, [s[: filled[step]] for s in slots[step]], views)
                    for row, said, slot in zip(batch, logits, kept[start:], strict=False):
                        self.offer(row, said, slot)

    def step(self, rows: Any, slots: list[Any], views: Iterator[Any]) -> Tensor:
        inputs = self.see([self.benchmark.train_inputs[row] for row in rows], views)
        labels = self.benchmark.train_labels[torch.from_numpy(rows)]
        replays = [[self.memory[slot] for slot in draw] for draw in slots if self.memory]
        seen = [self.see([image for image, _, _ in replay], views) for replay in replays]
        old_labels = [torch.tensor([label for _, label, _ in replay]) for replay in replays]
        if self.config.method == "er":
            logits = self.net(torch.cat([inputs, *seen]))
            loss = F.cross_entropy(logits, torch.cat([labels, *old_labels]))
        else:
            logits, mask = self.net(inputs), self.config.mask
            masked = logits if mask is None else logits.masked_fill(self.absent, mask)
            loss = F.cross_entropy(masked, labels)
            if replays:
                once = torch.stack([said for _, _, said in replays[0]])
                loss += self.config.alpha * F.mse_loss(self.net(seen[0]), once)
            if len(replays) == 2:
                loss += self.config.beta * F.cross_entropy(self.net(seen[1]), old_labels[1])
        self.net.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.optim.SGD(self.net.parameters(), self.lr).step()
        said: Tensor = logits.detach()[: len(rows)]
        return said

    def offer(self, row: int, logits: Tensor, slot: int) -> None:
        sample = (self.benchmark.train_inputs[row], int(self.benchmark.train_labels[row]), logits)
        if self.presented < self.config.buffer:
            self.memory.append(sample)
        elif slot < self.config.buffer:
            self.memory[slot] = sample
        self.presented += 1


def count_forwards(state: dict[str, Tensor]) -> set[int]:
    """How many training forwards each layer with batch statistics has seen."""
    return {int(v) for name, v in state.items() if name.endswith("num_batches_tracked")}


@pytest.mark.parametrize("build_net", [channels_last_net, small_mlp])
@pytest.mark.parametrize(
    ("method", "mask", "buffer"),
    [
        *(("er", None, 12), ("der", -1.0, 12)),
        *(("derpp", None, 1), ("derpp", -1.0, 12), ("derpp", -float("inf"), 12)),
    ],
)
def test_a_run_equals_a_hand_written_loop_with_its_forwards_and_statistics(
    method: str,
    mask: float | None,
    buffer: int,
    build_net: NetBuilder,
    config: MakeConfig,
    images: Benchmark,
) -> None:
    single = config(method=method, mask=mask, buffer=buffer, seed=2, batch=6, lr_drops=(1,))
    stack = finish(TrialStack([single], images, build_net=build_net))
    slow = HandWritten(single, images, build_net)
    slow.run()
    state, draws = stack.state(), METHODS[method].draws
    if build_net is channels_last_net:
        # 3 + 5 steps an epoch, two epochs; the first has no memory to draw from.
        assert count_forwards(state) == {16 if method == "er" else 1 + 15 * (1 + draws)}
    for name, value in slow.net.state_dict().items():
        torch.testing.assert_close(state[f"net/{name}"][0], value, rtol=1e-3, atol=1e-4)
    # What is kept are the bytes of the train set, as they are there.
    assert torch.equal(state["memory/inputs"], torch.stack([m[0] for m in slow.memory]))
    assert state["memory/labels"].tolist() == [m[1] for m in slow.memory]
    if method != "er":
        logits = torch.stack([m[2] for m in slow.memory])
        torch.testing.assert_close(state["memory/logits"], logits, rtol=1e-3, atol=1e-4)

    # Test images are normalised, and neither cropped nor mirrored.
    slow.net.eval()
    said = slow.net(normalise(images.test_inputs)).softmax(1)
    of_truth = said.gather(1, images.test_labels[:, None]).detach().squeeze(1)
    expected = [float(of_truth[images.test_labels == label].mean()) for label in range(4)]
    assert stack.results()[0].confidence == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("method", ["er", "derpp"])
def test_every_layer_of_a_resnet_sees_the_forwards_of_a_hand_written_loop(
    method: str, config: MakeConfig, images: Benchmark
) -> None:
    # The rate is next to nothing, because this net multiplies rounding errors from step to step.
    single = config(method=method, seed=2, batch=6, epochs=1, lr=1e-6)
    stack = finish(TrialStack([single], images, build_net=small_resnet))
    slow = HandWritten(single, images, small_resnet)
    slow.run()
    assert count_forwards(stack.state()) == {8 if method == "er" else 1 + 7 * 3}
    for name, value in slow.net.named_buffers():
        torch.testing.assert_close(stack.state()[f"net/{name}"][0], value, rtol=1e-3, atol=1e-4)


@pytest.mark.thorough
def test_importance_is_the_same_however_few_samples_gradients_fit_into_memory(
    config: MakeConfig, images: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a penalty, importance is measured and changes nothing: both runs train alike.
    single = config(method="oewc", weights={"penalty": 0.0, "gamma": 1.0}, buffer=0, replay_batch=0)
    plain = dataclasses.replace(images, crop_padding=0, flip=False)  # else views are drawn anew

    def importance() -> dict[str, Tensor]:
        state = snapshot(finish(TrialStack([single], plain, build_net=small_resnet)))
        return {name: value for name, value in state.items() if "importance" in name}

    at_once = importance()
    monkeypatch.setattr(module_stack, "_LARGEST_GRADIENTS", 1)
    one_by_one = importance()
    assert at_once
    assert any(value.any() for value in at_once.values())
    for name, value in at_once.items():
        torch.testing.assert_close(one_by_one[name], value, rtol=1e-3, atol=1e-6)


def test_drops_of_the_learning_rate_are_epochs_in_order(config: MakeConfig) -> None:
    for drops in [(0,), (3, 2), (2, 2), (-1,), (1.5,)]:
        with pytest.raises(ValidationError):
            config(lr_drops=drops)
    assert config().lr_drops == ()
    written = config(lr_drops=(35, 45)).model_dump_json()
    assert TrialConfig.model_validate_json(written).lr_drops == (35, 45)
