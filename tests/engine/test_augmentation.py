"""Crops and mirrorings of batches, against one image at a time."""

from collections import Counter

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from remask.data.samples import Cropper
from remask.data.tasks import DataDescription


def slow_view(image: Tensor, top: int, left: int, mirrored: bool, padding: int) -> Tensor:
    """One image [C, H, W], pixel by pixel."""
    channels, height, width = image.shape
    seen = torch.zeros_like(image)
    for row in range(height):
        for column in range(width):
            y, x = row + top - padding, column + left - padding
            if 0 <= y < height and 0 <= x < width:
                for channel in range(channels):
                    at = width - 1 - column if mirrored else column
                    seen[channel, row, at] = image[channel, y, x]
    return seen


@settings(max_examples=30, deadline=None)
@given(
    shape=st.tuples(*[st.integers(1, n) for n in (3, 4, 3, 6, 6)]),
    kind=st.sampled_from([torch.uint8, torch.float32]),
    padding=st.integers(0, 4),
    flip=st.booleans(),
    spare=st.integers(0, 2),
    seed=st.integers(0, 2**20),
)
def test_batches_are_cropped_and_mirrored_as_single_images_are(
    shape: tuple[int, ...], kind: torch.dtype, padding: int, flip: bool, spare: int, seed: int
) -> None:
    trials, samples = shape[:2]
    images = torch.from_numpy(np.random.default_rng(seed).integers(1, 256, shape)).to(kind)
    if kind.is_floating_point:
        images = images / -7
    before = images.clone()
    cropper = Cropper(tuple(shape[2:]), padding, flip=flip)
    tops, lefts, mirrored = cropper.draw(2, samples + spare, range(seed, seed + trials), (0,))
    starts = cropper.starts(tops, lefts, mirrored)
    if spare:  # what an earlier and larger batch left behind must not shine through
        cropper(torch.full((trials, samples + spare, *shape[2:]), 255).to(kind), starts[0])
    for step in range(2):
        seen = cropper(images, starts[step])
        assert seen.dtype == kind
        assert torch.equal(images, before)
        for trial in range(trials):
            for n in range(samples):
                at = (step, trial, n)
                place = int(tops[at]), int(lefts[at]), bool(mirrored[at])
                assert torch.equal(seen[trial, n], slow_view(images[trial, n], *place, padding))


def test_views_are_uniform_independent_and_fresh_for_every_sample() -> None:
    tops, lefts, mirrored = Cropper((1, 4, 4), 1, flip=True).draw(50, 200, [3], (0, 0))
    kinds = Counter((tops * 6 + lefts * 2 + mirrored).flatten().tolist())
    # 10,000 samples of 18 kinds: 555.6 each, standard deviation 23; five of them.
    assert set(kinds) == set(range(18))
    assert max(abs(count - 10_000 / 18) for count in kinds.values()) < 5 * 23
    assert len({tuple(step[0]) for step in tops.tolist()}) == 50


def test_a_trial_draws_the_same_views_alone_and_in_company() -> None:
    def planned(seeds: list[int], key: tuple[int, ...] = (1, 2)) -> tuple[torch.Tensor, ...]:
        return Cropper((1, 4, 4), 4, flip=True).draw(3, 7, seeds, key)

    together = planned([5, 0, 9])
    for trial, seed in enumerate([5, 0, 9]):
        for part, own in zip(together, planned([seed]), strict=True):
            assert torch.equal(part[:, trial], own[:, 0])
    for other in (planned([6, 1, 8]), planned([5, 0, 9], (1, 3)), planned([5, 0, 9], (2, 2))):
        for trial in range(3):
            assert not torch.equal(together[0][:, trial], other[0][:, trial])


def test_nothing_is_mirrored_unless_asked() -> None:
    for part in Cropper((1, 4, 4), 0).draw(1, 99, [0], ()):
        assert not part.any()


def test_images_are_standardised_channel_by_channel() -> None:
    images = torch.rand(2, 3, 2, 4, 4)
    mean, std = (0.25, 0.5), (0.5, 2.0)
    expected = images.clone()
    for channel in range(2):
        expected[:, :, channel] = (images[:, :, channel] - mean[channel]) / std[channel]
    data = DataDescription((2, 4, 4), 1, input_type=torch.float32, scale=1.0, mean=mean, std=std)
    assert torch.equal(data.normaliser(torch.device("cpu"))(images), expected)
