"""The engine with what images need: augmentation, normalisation, schedules."""

import dataclasses

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import TrialStack, module_stack
from tests.engine.conftest import MEAN, STD
from tests.engine.stack_samples import MakeConfig, channels_last_net, finish, small_resnet, snapshot
from tests.engine.test_online import Seen, watched


def normalise(images: Tensor) -> Tensor:
    """Bytes [..., 3, H, W] as the benchmark's protocol has them seen."""
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    return (images * (1 / 255) - mean) / std


def watch(config: TrialConfig, benchmark: Benchmark) -> list[list[Seen]]:
    """The batches that each step of a trial saw."""
    steps: list[list[Seen]] = []
    kind = watched(config.method, steps)
    finish(TrialStack([config], benchmark, method=kind, build_net=channels_last_net))
    return steps


def flat(image: Tensor) -> tuple[float, ...]:
    return tuple(image.flatten().tolist())


def test_each_draw_of_a_sample_has_its_own_view(config: MakeConfig, images: Benchmark) -> None:
    # One sample stays in memory and is drawn twice a step: 9 crops, mirrored or not.
    one_task = dataclasses.replace(
        images,
        tasks=((0, 1, 2, 3),),
        train_inputs=images.train_inputs[:1].expand(46, 3, 8, 8).clone(),
    )
    steps = watch(config(buffer=4, replay_batch=1, batch=2, epochs=3), one_task)
    streams = [flat(image) for (inputs, *_), *_ in steps for image in inputs]
    first, second = ([flat(step[n][0]) for step in steps if len(step) > 1] for n in (1, 2))
    assert len(set(streams)) == len(set(first)) == len(set(second)) == 18
    assert set(streams) == set(first) == set(second)
    assert len(first) == 68
    # In 68 / 18 steps the two draws are expected to agree.
    assert sum(one == other for one, other in zip(first, second, strict=True)) < 20


def test_without_augmentation_images_are_only_normalised(
    config: MakeConfig, images: Benchmark
) -> None:
    plain = dataclasses.replace(images, crop_padding=0, flip=False)
    known = normalise(images.train_inputs)
    for step in watch(config(batch=6), plain):
        for inputs, *_ in step:
            for image in inputs:
                assert (known == image).flatten(1).all(1).any()


def test_test_images_are_normalised_and_neither_cropped_nor_mirrored(
    config: MakeConfig, images: Benchmark
) -> None:
    stack = finish(TrialStack([config(batch=6)], images, build_net=channels_last_net))
    said = stack.net(0)(normalise(images.test_inputs)).softmax(1)
    of_truth = said.gather(1, images.test_labels[:, None]).detach().squeeze(1)
    expected = [float(of_truth[images.test_labels == label].mean()) for label in range(4)]
    assert stack.results()[0].confidence == pytest.approx(expected, abs=1e-3)


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
