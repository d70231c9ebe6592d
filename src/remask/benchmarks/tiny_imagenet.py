"""split-tiny-imagenet: 200 classes of ImageNet at 64 x 64 pixels, twenty at a time.

Class ids are the places of the WordNet ids in sorted order. The test images were published
without labels, so the validation images are the test set, as everywhere in the literature.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from remask.benchmarks.archives import Archive, Originals, read_small
from remask.benchmarks.benchmark import Benchmark
from remask.benchmarks.files import WrongContentsError
from remask.benchmarks.images import decode, pillow
from remask.benchmarks.prepared import Arrays, NewArray, Preparation
from remask.benchmarks.sources import Dataset, fetch_arrays
from remask.benchmarks.webarchive import WebArchive
from remask.durable import AnyPath
from remask.known_splits import KNOWN_SPLITS

_SIDE = 64
_LARGEST_JPEG = 1 << 20
_LARGEST_TEXT = 4 << 20
_WORDNET_ID = re.compile(r"n[0-9]{8}")


@dataclass(frozen=True)
class TinyLayout:
    """JPEG files in a folder per class for training, and listed in a file for validation."""

    num_classes: int
    train_per_class: int
    test_per_class: int

    @property
    def marker(self) -> str:
        """The original file by which a folder is recognised."""
        return "wnids.txt"

    def require(self) -> None:
        """Refuse to begin, rather than after a long download, without what decodes JPEG."""
        pillow()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Images [N, 3, 64, 64]; labels [N]."""
        train = self.num_classes * self.train_per_class
        test = self.num_classes * self.test_per_class
        return {
            "train_images": (train, 3, _SIDE, _SIDE),
            "train_labels": (train,),
            "test_images": (test, 3, _SIDE, _SIDE),
            "test_labels": (test,),
        }

    def arrays(self, originals: Originals) -> Iterator[NewArray]:
        """Decode the images, training ones class by class, validation ones as they are listed."""
        shapes = self.shapes()
        ids = self._wordnet_ids(originals)
        train = [name for wordnet_id in ids for name in self._train_images(originals, wordnet_id)]
        label_of = {wordnet_id: label for label, wordnet_id in enumerate(ids)}
        test = self._test_images(originals, label_of)
        yield NewArray("train_images", shapes["train_images"], _pixels(originals, train))
        train_labels = np.repeat(np.arange(len(ids), dtype=np.uint8), self.train_per_class)
        yield NewArray("train_labels", shapes["train_labels"], [train_labels.tobytes()])
        yield NewArray("test_images", shapes["test_images"], _pixels(originals, list(test)))
        yield NewArray("test_labels", shapes["test_labels"], [bytes(test.values())])

    def differences(self, arrays: Arrays) -> Iterator[tuple[str, str, str]]:
        """Find none: decoded pixels differ a little between versions of the JPEG library."""
        return iter(())

    def _wordnet_ids(self, originals: Originals) -> list[str]:
        ids = sorted(set(_text(originals, "wnids.txt").split()))
        for wordnet_id in ids:
            if not _WORDNET_ID.fullmatch(wordnet_id):
                raise WrongContentsError(f"wnids.txt: {wordnet_id!r} is not a WordNet id")
        if len(ids) != self.num_classes:
            raise WrongContentsError(
                f"wnids.txt names {len(ids)} classes, expected {self.num_classes}"
            )
        return ids

    def _train_images(self, originals: Originals, wordnet_id: str) -> list[str]:
        folder = f"train/{wordnet_id}/images"
        names = [name for name in originals.listing(folder) if name.endswith(".JPEG")]
        if len(names) != self.train_per_class:
            raise WrongContentsError(
                f"{folder} holds {len(names)} images, expected {self.train_per_class}"
            )
        # Shorter names first puts ..._10 after ..._9.
        return [f"{folder}/{name}" for name in sorted(names, key=lambda name: (len(name), name))]

    def _test_images(self, originals: Originals, label_of: dict[str, int]) -> dict[str, int]:
        """Map the validation images, in the order they are listed, to their labels."""
        labels: dict[str, int] = {}
        for number, line in enumerate(_text(originals, "val/val_annotations.txt").splitlines(), 1):
            name, _, rest = line.partition("\t")
            wordnet_id = rest.partition("\t")[0]
            if "/" in name or not name.endswith(".JPEG") or wordnet_id not in label_of:
                raise WrongContentsError(
                    f"val/val_annotations.txt, line {number}: {line[:80]!r} is not an image "
                    f"and one of the classes"
                )
            labels[f"val/images/{name}"] = label_of[wordnet_id]
        counts = Counter(labels.values())
        for wordnet_id, label in label_of.items():
            if counts[label] != self.test_per_class:
                raise WrongContentsError(
                    f"val/val_annotations.txt lists {counts[label]} images of {wordnet_id}, "
                    f"expected {self.test_per_class}"
                )
        return labels


def _text(originals: Originals, name: str) -> str:
    try:
        return read_small(originals, name, _LARGEST_TEXT).decode("ascii")
    except UnicodeDecodeError as error:
        raise WrongContentsError(f"{name} is not text: {error}") from error


def _pixels(originals: Originals, names: Sequence[str]) -> Iterator[bytes]:
    for name in names:
        data = read_small(originals, name, _LARGEST_JPEG)
        yield decode(data, name, formats=["JPEG"], size=(_SIDE, _SIDE)).tobytes()


_ARCHIVE = Archive(
    name="tiny-imagenet-200.zip",
    md5="90528d7ca1a48142e341f4ef8d21d0de",
    size=248_100_043,
    top="tiny-imagenet-200",
    unpacked_size=0,  # a zip is read where it is
)
_URL = f"https://cs231n.stanford.edu/{_ARCHIVE.name}"

TINY_IMAGENET = Dataset(
    name="tiny-imagenet",
    files=(),
    preparation=Preparation(
        layout=TinyLayout(num_classes=200, train_per_class=500, test_per_class=50),
        archive=_ARCHIVE,
        url=_URL,
        sources=(WebArchive(_URL, _ARCHIVE),),
    ),
)


def load_split_tiny_imagenet(data: AnyPath | None = None) -> Benchmark:
    """Load Tiny-ImageNet in 10 tasks of 20 classes; inputs [N, 3, 64, 64]."""
    arrays = fetch_arrays(TINY_IMAGENET, data)
    return Benchmark(
        name="split-tiny-imagenet",
        train_inputs=torch.from_numpy(arrays["train_images"]),
        train_labels=torch.from_numpy(arrays["train_labels"].astype(np.int64)),
        test_inputs=torch.from_numpy(arrays["test_images"]),
        test_labels=torch.from_numpy(arrays["test_labels"].astype(np.int64)),
        scale=1 / 255,
        mean=(0.4802, 0.4480, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
        crop_padding=4,
        flip=True,
        tasks=KNOWN_SPLITS["split-tiny-imagenet"].tasks,
        class_names=KNOWN_SPLITS["split-tiny-imagenet"].class_names,
    )
