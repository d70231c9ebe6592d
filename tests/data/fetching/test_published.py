"""The published forms of datasets, read from files in memory."""

import io
import json
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from remask.data.published import PIXELS, binary, pickled, png, tiny_imagenet
from remask.data.sources import ReadFile, SourceError, WrongContentsError
from tests.data.fetching.python2_pickles import pickled as python2_pickle
from tests.data.fetching.toy import BATCH, TOY
from tests.payload import Payload

pytestmark = pytest.mark.usefixtures("nothing_is_executed")
Bytes = npt.NDArray[np.uint8]


def reader(files: dict[str, bytes]) -> ReadFile:
    def read(name: str, most: int) -> bytes:
        if name not in files:
            raise SourceError(f"{name} is missing")
        if len(files[name]) > most:
            raise WrongContentsError(f"{name} has more than {most} bytes")
        return files[name]

    return read


def arrays(found: Any) -> dict[str, Bytes]:
    return {
        name: np.frombuffer(b"".join(pieces), np.uint8).reshape(shape)
        for name, shape, pieces in found
    }


# CIFAR


def batch(records: bytes, **changes: Any) -> bytes:
    """A file of the Python version with the images of a file of the binary version."""
    rows = np.frombuffer(records, np.uint8).reshape(-1, 1 + PIXELS)
    values = {
        "batch_label": b"training batch 1 of 5",
        "labels": rows[:, 0].tolist(),
        "data": rows[:, 1:],
        "filenames": [b"toy_s_%06d.png" % number for number in range(len(rows))],
    }
    return python2_pickle({key.encode(): value for key, value in (values | changes).items()})


PICKLES = {name.removesuffix(".bin"): batch(records) for name, records in TOY.files.items()}


def picture(images: Bytes) -> bytes:
    """One image per row, as in the npm package."""
    image_module = pytest.importorskip("PIL.Image")
    rows = images.reshape(len(images), 3, 32 * 32).transpose(0, 2, 1)
    buffer = io.BytesIO()
    image_module.fromarray(np.ascontiguousarray(rows)).save(buffer, format="PNG")
    return buffer.getvalue()


def package() -> dict[str, bytes]:
    """The files of the npm package."""
    files = {}
    for number in range(5):
        files[f"data_batch_{number + 1}.png"] = picture(TOY.images[number * BATCH :][:BATCH])
    test = np.frombuffer(TOY.files["test_batch.bin"], np.uint8).reshape(BATCH, -1)
    files["test_batch.png"] = picture(test[:, 1:])
    files["train_lables.json"] = json.dumps(TOY.labels.tolist()).encode()
    files["test_lables.json"] = json.dumps(test[:, 0].tolist()).encode()
    return files


def test_cifar100_has_the_fine_labels() -> None:
    random = np.random.default_rng(1)
    fine, coarse = random.permutation(100), random.integers(0, 20, 100)
    pixels = random.integers(0, 256, (100, PIXELS), dtype=np.uint8)
    labels = np.stack([coarse, fine], axis=1).astype(np.uint8)
    files = {
        "train.bin": np.concatenate([labels, pixels], axis=1).tobytes(),
        "train": python2_pickle(
            {b"fine_labels": fine.tolist(), b"coarse_labels": coarse.tolist(), b"data": pixels}
        ),
    }
    for found, images in (
        binary(reader(files), "train.bin", 100, label_bytes=2),
        pickled(reader(files), "train", 100, key="fine_labels"),
    ):
        np.testing.assert_array_equal(found, fine)
        np.testing.assert_array_equal(images, pixels)


PAYLOAD = pickle.dumps(Payload(), 2)
RECORDS = TOY.files["data_batch_3.bin"]
THIRD = PICKLES["data_batch_3"]
IMAGES = np.frombuffer(RECORDS, np.uint8).reshape(-1, 1 + PIXELS)[:, 1:]
DAMAGES = {
    "payload": PAYLOAD,
    "payload as labels": THIRD.replace(b"}(", b"}(" + PAYLOAD[2:-1], 1),
    "long": THIRD + bytes(100_000),
    "pixels of another shape": batch(RECORDS, data=IMAGES.reshape(-1, PIXELS // 2)),
    "a label too few": batch(RECORDS, labels=[1] * 9),
    "a large label": batch(RECORDS, labels=[256] * 10),
    "labels in lists": batch(RECORDS, labels=[[1]] * 10),
}


@pytest.mark.parametrize("data", DAMAGES.values(), ids=DAMAGES)
def test_a_pickle_without_images_and_labels_is_refused_and_never_run(data: bytes) -> None:
    with pytest.raises(WrongContentsError, match="data_batch_3"):
        pickled(reader({"data_batch_3": data}), "data_batch_3", BATCH)


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("data_batch_2.png", lambda: picture(TOY.images[:3]), "3 x 1024 pixels, expected"),
        ("data_batch_2.png", lambda: b"no image", r"_2\.png: not a PNG image"),
        ("data_batch_2.png", lambda: picture(TOY.images[:BATCH])[:-900], "damaged|truncat"),
        ("train_lables.json", lambda: b"[1, 2]", "not a list of 10 small numbers"),
    ],
)
def test_pictures_of_other_sizes_fail(name: str, body: Callable[[], bytes], reason: str) -> None:
    with pytest.raises(WrongContentsError, match=reason):
        png(reader(package() | {name: body()}), "data_batch_2.png", BATCH)


# Tiny-ImageNet

CLASSES, TRAIN = 20, 2
IDS = [f"n{number:08}" for number in range(CLASSES)]
SOME = f"train/{IDS[3]}/images/{IDS[3]}_1.JPEG"
LIST = "val/val_annotations.txt"
VALIDATION = [(7 * number) % CLASSES for number in range(CLASSES)]


def jpeg(colour: tuple[int, ...] | int, mode: str = "RGB", side: int = 64) -> bytes:
    image_module = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    image_module.new(mode, (side, side), colour).save(buffer, format="JPEG", quality=95)
    return buffer.getvalue()


def photographs() -> dict[str, bytes]:
    """Red is the class, green the number; train image 0 of class 0 is grey."""
    files = {
        f"train/{name}/images/{name}_{number}.JPEG": jpeg((10 * label, 20 * number, 0))
        for label, name in enumerate(IDS)
        for number in range(TRAIN)
    }
    files[f"train/{IDS[0]}/images/{IDS[0]}_0.JPEG"] = jpeg(77, mode="L")
    for number, label in enumerate(VALIDATION):
        files[f"val/images/val_{number}.JPEG"] = jpeg((10 * label, 0, 255))
    lines = [f"val_{number}.JPEG\t{IDS[label]}\t0\t62" for number, label in enumerate(VALIDATION)]
    return {**files, LIST: "\n".join(lines).encode()}


def test_tiny_imagenet_numbers_the_ids_and_tests_on_the_listed_images() -> None:
    found = arrays(tiny_imagenet(reader(photographs()), IDS, train=TRAIN, test=1))
    labels = np.repeat(np.arange(CLASSES), TRAIN)
    np.testing.assert_array_equal(found["train_labels"][:, 0], labels)
    colours = found["train_images"][:, :, 32, 32].astype(int)  # JPEG is off by a little
    assert abs(colours[1:, 0] - 10 * labels[1:]).max() <= 4
    assert abs(colours[1:, 1] - 20 * (np.arange(1, CLASSES * TRAIN) % TRAIN)).max() <= 4
    assert abs(colours[0] - 77).max() <= 2
    assert found["test_labels"][:, 0].tolist() == VALIDATION
    assert abs(found["test_images"][:, 0, 9, 9] - 10.0 * np.array(VALIDATION)).max() <= 4
    assert found["test_images"][:, 2].min() >= 250


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        (SOME, b"no image", f"{SOME}: not a JPEG image"),
        (SOME, jpeg((1, 2, 3))[:400], f"{SOME}: (damaged|truncated)"),
        (SOME, jpeg((1, 2, 3), side=32), f"{SOME}: has 32 x 32 pixels, expected 64 x 64"),
        (SOME, bytes(2 << 20), f"{SOME} has more than 1048576 bytes"),
        (LIST, b"val_0.JPEG\tn00000000", "lists 0 images of n00000001, expected 1"),
        (LIST, b"../../x.JPEG\tn00000000\t0", "does not name an image"),
        (LIST, b"val_0.JPEG\tn99999999\t0", "does not name an image"),
    ],
)
def test_what_is_wrong_with_tiny_imagenet_is_named(name: str, body: bytes, reason: str) -> None:
    read = reader(photographs() | {name: body})
    with pytest.raises(WrongContentsError, match=reason):
        arrays(partial(tiny_imagenet, ids=IDS, train=TRAIN, test=1)(read))
