"""Tiny-ImageNet from a zip that the test makes in the published layout."""

import hashlib
import io
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remask.data.benchmark import load_benchmark
from remask.data.published import tiny_imagenet
from remask.data.registry import BENCHMARKS, DATASETS
from remask.errors import DataError
from tests.data.fetching.toy import states, use

image_module = pytest.importorskip("PIL.Image")

CLASSES, TRAIN, TEST = 200, 2, 1
IDS = [f"n{number:08}" for number in range(CLASSES)]


def jpeg(colour: tuple[int, ...] | int, mode: str = "RGB", side: int = 64) -> bytes:
    buffer = io.BytesIO()
    image_module.new(mode, (side, side), colour).save(buffer, format="JPEG", quality=95)
    return buffer.getvalue()


def make_files() -> dict[str, bytes]:
    """Red is the class, green the number; train image 0 of class 0 is grey."""
    files = {"wnids.txt": b"never read"}
    for label, wordnet_id in enumerate(IDS):
        for number in range(TRAIN):
            name = f"train/{wordnet_id}/images/{wordnet_id}_{number}.JPEG"
            files[name] = jpeg((label, 20 * number, 0))
        files[f"train/{wordnet_id}/{wordnet_id}_boxes.txt"] = b"not an image"
    lines = []
    for number in range(CLASSES):
        label = (7 * number) % CLASSES
        files[f"val/images/val_{number}.JPEG"] = jpeg((label, 0, 255))
        lines.append(f"val_{number}.JPEG\t{IDS[label]}\t0\t0\t62\t62")
    files["val/val_annotations.txt"] = "\n".join(lines).encode()
    files["test/images/test_0.JPEG"] = b"never read"
    files[f"train/{IDS[0]}/images/{IDS[0]}_0.JPEG"] = jpeg(77, mode="L")
    return files


FILES = make_files()


def pack(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, contents in files.items():
            packed.writestr(f"tiny-imagenet-200/{name}", contents)
    return buffer.getvalue()


Offer = Callable[[dict[str, bytes | None]], Path]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Write the zip with some files changed (None: left out), and make it the published one."""

    def make(changes: dict[str, bytes | None]) -> Path:
        merged: dict[str, bytes | None] = {**FILES, **changes}
        packed = pack({name: data for name, data in merged.items() if data is not None})
        path = tmp_path / "mine" / "tiny-imagenet-200.zip"
        original = DATASETS["tiny-imagenet"]
        source = replace(
            original.sources[0],
            url=f"/nowhere/{path.name}",
            checksum=hashlib.md5(packed).hexdigest(),
            size=len(packed),
            read=partial(tiny_imagenet, ids=IDS, train=TRAIN, test=TEST),
        )
        dataset = replace(original, class_names=tuple(IDS), sources=(source,))
        use(dataset, monkeypatch)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(packed)
        return path

    return make


def check(benchmark: Any) -> None:
    inputs, labels = benchmark.train_inputs, benchmark.train_labels
    np.testing.assert_array_equal(labels, np.repeat(np.arange(CLASSES), TRAIN))
    # JPEG is off by a little; red is the class, green the number.
    colours = inputs[:, :, 32, 32].numpy().astype(int)
    assert abs(colours[1:, 0] - labels.numpy()[1:]).max() <= 4
    assert abs(colours[1:, 1] - 20 * (np.arange(1, CLASSES * TRAIN) % TRAIN)).max() <= 4
    assert abs(colours[0] - 77).max() <= 2
    test_labels = [(7 * number) % CLASSES for number in range(CLASSES)]
    assert benchmark.test_labels.tolist() == test_labels
    assert abs(benchmark.test_inputs[:, 0, 9, 9].numpy().astype(int) - test_labels).max() <= 4
    assert benchmark.test_inputs[:, 2].min() >= 250


def test_split_tiny_imagenet_numbers_the_sorted_ids_and_tests_on_the_validation_images(
    offer: Offer,
) -> None:
    benchmark = load_benchmark("split-tiny-imagenet", data=offer({}))
    assert benchmark.input_shape == (3, 64, 64)
    assert benchmark.num_tasks == 10
    assert benchmark.tasks[9] == tuple(range(180, 200))
    check(benchmark)
    assert states(BENCHMARKS["split-tiny-imagenet"].dataset) == ["ok"] * 4


def test_the_unpacked_folder_is_read(offer: Offer, tmp_path: Path) -> None:
    archive = offer({})
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / "unpacked")
    archive.unlink()
    check(load_benchmark("split-tiny-imagenet", data=tmp_path / "unpacked"))


SOME = f"train/{IDS[3]}/images/{IDS[3]}_1.JPEG"
ANNOTATIONS = FILES["val/val_annotations.txt"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({SOME: b"no image"}, f"{SOME}: not a JPEG image"),
        ({SOME: FILES[SOME][:400]}, f"{SOME}: (damaged|truncated)"),
        ({SOME: jpeg((1, 2, 3), side=32)}, f"{SOME}: has 32 x 32 pixels, expected 64 x 64"),
        ({SOME: bytes(2 << 20)}, f"{SOME} has more than 1048576 bytes"),
        ({SOME: None}, f"lacks .*{SOME}"),
        ({"val/images/val_5.JPEG": None}, r"lacks .*val/images/val_5\.JPEG"),
        ({"val/val_annotations.txt": ANNOTATIONS.rpartition(b"\n")[0]}, "lists 0 images of n"),
        (
            {"val/val_annotations.txt": b"../../x.JPEG\tn00000000\t0"},
            "does not name an image",
        ),
        (
            {"val/val_annotations.txt": b"val_0.JPEG\tn99999999\t0"},
            "does not name an image",
        ),
    ],
)
def test_what_is_wrong_is_named(
    offer: Offer, tmp_path: Path, changes: dict[str, bytes | None], reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        load_benchmark("split-tiny-imagenet", data=offer(changes))
    left = [path.name for path in (tmp_path / "cache" / "tiny-imagenet").iterdir()]
    assert left in ([], [".lock"])


def test_without_pillow_nothing_is_prepared(
    offer: Offer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = offer({})
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(DataError, match=r"needs Pillow.*pip install pillow"):
        load_benchmark("split-tiny-imagenet", data=archive)
    assert not (tmp_path / "cache").exists()


def test_prepared_images_need_no_pillow(offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    load_benchmark("split-tiny-imagenet", data=offer({}))
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    check(load_benchmark("split-tiny-imagenet"))
