"""What the scripts in benchmarks/ conclude from what they measure, and what they run."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from remask.benchmarks import Benchmark, split_classes
from remask.config import TrialConfig
from remask.nets import mlp

Script = Callable[[str], ModuleType]


@pytest.fixture
def script(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module


@pytest.fixture
def images() -> Benchmark:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(256, (40, 3, 6, 6), dtype=torch.uint8, generator=generator)
    labels = torch.arange(40) % 4
    data = (inputs, labels, inputs[:4], labels[:4])
    return Benchmark(
        "images",
        *data,
        split_classes(4, 1),
        1 / 255,
        mean=(0.4, 0.5, 0.6),
        std=(0.1, 0.2, 0.3),
        crop_padding=2,
        flip=True,
    )


@pytest.mark.parametrize("power", [-0.5, 0.0, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_its_power(power: float, script: Script) -> None:
    sizes = (1, 10, 200, 50_000)
    found = script("growth").exponent(sizes, [7 * size**power for size in sizes])
    assert found == pytest.approx(power, abs=1e-9)


def test_a_ratio_may_be_15_percent_worse_than_its_bound_and_no_more(script: Script) -> None:
    check = script("check")
    bounds = {"S=10: textbook / step": 5.0, "GEM / SGD": 10.0}
    assert check.verdict("S=10: textbook / step", 5 / 1.149, bounds).endswith("kept")
    assert check.verdict("S=10: textbook / step", 5 / 1.151, bounds).endswith("MISSED")
    assert check.verdict("GEM / SGD", 11.49, bounds).endswith("kept")
    assert check.verdict("GEM / SGD", 11.51, bounds).endswith("MISSED")
    assert check.verdict("S=1: step / matmuls", 100.0, bounds) == ""


def test_every_processor_has_bounds(script: Script) -> None:
    check = script("check")
    assert check.processor() in check.BOUNDS


def test_the_check_fails_and_names_what_is_too_slow(
    script: Script, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check = script("check")
    monkeypatch.setattr(check, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(check, "processor", lambda: "any other")
    kept = dict(check.BOUNDS["any other"])
    monkeypatch.setattr(check, "measured", lambda: kept)
    check.main()
    monkeypatch.setattr(check, "measured", lambda: kept | {"S=10: step / matmuls": 3.0})
    with pytest.raises(SystemExit, match="S=10: step / matmuls"):
        check.main()
    assert "3.00  at most   1.40  MISSED" in capsys.readouterr().out


def test_growth_is_measured_in_the_second_task_with_a_memory_that_is_full(script: Script) -> None:
    growth = script("growth")
    stack = growth.stack_with_full_memory(3, trials=2, buffer=30, classes=7, shape=(1, 2, 2))
    assert next(stack.run()) == (1, 0, 1)
    assert stack._feed.reservoir.filled == 30
    assert stack.data.num_classes == 7


def test_the_usual_image_loop_normalises_and_pads_with_zeros(
    script: Script, images: Benchmark
) -> None:
    augment = script("usual_image_loop").Augmentation(images)
    torch.manual_seed(0)
    image = images.train_inputs[0].clamp(min=1)  # so that a zero is a pixel of the padding
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (images.mean, images.std))
    shifts = set()
    for _ in range(200):
        seen = (augment(image) * std + mean) * 255
        rows, columns = (seen.round().amax((0, 2)) > 0), (seen.round().amax((0, 1)) > 0)
        shifts.add((int(rows.sum()), int(columns.sum())))
        inside = set(seen.round()[:, rows][:, :, columns].flatten().int().tolist())
        assert inside <= set(image.flatten().tolist())
    assert shifts == {(height, width) for height in (4, 5, 6) for width in (4, 5, 6)}


@pytest.mark.thorough
def test_the_usual_image_loop_learns_and_remembers_raw_images(
    script: Script, images: Benchmark
) -> None:
    config = TrialConfig(
        benchmark="images", method="derpp", buffer=16, lr=0.01, batch=8, replay_batch=8, epochs=1
    )
    torch.manual_seed(0)
    net = mlp(images.input_shape, images.num_classes)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    trial = script("usual_image_loop").UsualTrial(net, config, images)
    assert len(list(trial.steps())) == 5
    assert all(not torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True))
    rows = {
        tuple(image.flatten().tolist()): label
        for image, label in zip(images.train_inputs, images.train_labels.tolist(), strict=True)
    }
    kept = zip(trial.buffer.examples, trial.buffer.labels.tolist(), strict=True)
    assert all(rows[tuple(image.flatten().tolist())] == label for image, label in kept)
