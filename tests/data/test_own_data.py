"""One's own data: arrays and torch Datasets."""

import io
import itertools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from remask.data.user_data import arrays, from_dataset
from remask.errors import DataError

LABELS = np.repeat(np.arange(4), 5)
INPUTS = np.arange(20 * 12, dtype=np.uint8).reshape(20, 3, 2, 2)


# Arrays


def save(folder: Path, **changes: npt.NDArray[Any]) -> Path:
    path = folder / "data.npz"
    np.savez(path, **({"inputs": INPUTS, "labels": LABELS} | changes))  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("shape", [(2 * 10**15, 2, 2), (10**30, 1), (21, 1)])
@pytest.mark.parametrize("in_zip", [True, False])
def test_an_array_that_declares_more_bytes_than_it_has_is_refused(
    tmp_path: Path, shape: tuple[int, ...], in_zip: bool
) -> None:
    header = io.BytesIO()
    description = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, description)
    body, labels = header.getvalue() + bytes(20), io.BytesIO()
    np.save(labels, LABELS)
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("inputs.npy", body)
        archive.writestr("labels.npy", labels.getvalue())
    (tmp_path / "inputs.npy").write_bytes(body)
    (tmp_path / "labels.npy").write_bytes(labels.getvalue())
    pair = (tmp_path / "inputs.npy", tmp_path / "labels.npy")
    with pytest.raises(DataError, match="cannot read"):
        arrays(tmp_path / "data.npz" if in_zip else pair, tasks=2)


def test_an_npz_becomes_a_benchmark_with_a_fifth_of_each_class_for_testing(tmp_path: Path) -> None:
    benchmark = arrays(save(tmp_path), tasks=2)
    assert benchmark.tasks == ((0, 1), (2, 3))
    assert benchmark.input_shape == (3, 2, 2)
    assert torch.bincount(benchmark.train_labels).tolist() == [4] * 4
    assert torch.bincount(benchmark.test_labels).tolist() == [1] * 4
    both = torch.cat([benchmark.train_inputs, benchmark.test_inputs]).flatten(1)
    assert sorted(both.tolist()) == sorted(INPUTS.reshape(20, -1).tolist())
    for inputs, labels in (
        (benchmark.train_inputs, benchmark.train_labels),
        (benchmark.test_inputs, benchmark.test_labels),
    ):
        for image, label in zip(inputs, labels, strict=True):
            row = int(np.flatnonzero((image.numpy() == INPUTS).all((1, 2, 3)))[0])
            assert LABELS[row] == label


def test_the_seed_decides_what_is_for_testing(tmp_path: Path) -> None:
    path = save(tmp_path)

    def held_out(seed: int) -> list[Any]:
        held: list[Any] = arrays(path, tasks=2, test=0.4, seed=seed).test_inputs.tolist()
        return held

    assert held_out(0) == held_out(0) != held_out(1)
    assert len(held_out(0)) == 8


@pytest.mark.parametrize("kind", [np.array, torch.tensor, torch.from_numpy])
def test_arrays_and_tensors_are_taken_as_they_are(kind: Any) -> None:
    pair = (kind(INPUTS), kind(LABELS))
    made = arrays(pair, tasks=2, test=pair)
    assert torch.equal(made.train_inputs, torch.tensor(INPUTS))
    assert torch.equal(made.test_labels, torch.tensor(LABELS))
    pair[0][:] = 0
    assert made.train_inputs.any()  # a copy
    INPUTS[:] = np.arange(20 * 12, dtype=np.uint8).reshape(20, 3, 2, 2)
    halves = arrays((torch.tensor(INPUTS).half(), LABELS.tolist()), tasks=2)  # type: ignore[arg-type]
    assert halves.train_inputs.dtype == torch.float32


def test_a_pair_of_npy_files_and_a_pair_for_testing(tmp_path: Path) -> None:
    pairs = []
    for part in ("train", "test"):
        np.save(tmp_path / f"{part}-x.npy", INPUTS)
        np.save(tmp_path / f"{part}-y.npy", LABELS[:, None])
        pairs.append((tmp_path / f"{part}-x.npy", tmp_path / f"{part}-y.npy"))
    benchmark = arrays(pairs[0], test=pairs[1], tasks=[[3], [0, 2], [1]], name="mine")
    assert (benchmark.name, benchmark.tasks) == ("mine", ((3,), (0, 2), (1,)))
    np.testing.assert_array_equal(benchmark.train_inputs, INPUTS)
    np.testing.assert_array_equal(benchmark.test_labels, LABELS)


@pytest.mark.parametrize(
    "names",
    [
        ("inputs", "labels", "test_inputs", "test_labels"),
        ("x_train", "y_train", "x_test", "y_test"),
    ],
)
def test_test_data_in_the_npz_is_used(tmp_path: Path, names: tuple[str, ...]) -> None:
    values = (INPUTS, LABELS, INPUTS[::5], LABELS[::5])
    np.savez(tmp_path / "a.npz", **dict(zip(names, values, strict=True)))  # type: ignore[arg-type]
    benchmark = arrays(tmp_path / "a.npz", tasks=3)
    np.testing.assert_array_equal(benchmark.train_inputs, INPUTS)
    np.testing.assert_array_equal(benchmark.test_inputs, INPUTS[::5])
    assert benchmark.tasks == ((0, 1), (2,), (3,))


def test_labels_may_be_any_numbers_or_names_and_channels_may_be_last(tmp_path: Path) -> None:
    last = np.moveaxis(INPUTS, 1, 3)
    ten = arrays(
        (last, LABELS * 10 + 5), tasks=[[15, 5], [35], [25]], test=(INPUTS, LABELS * 10 + 5)
    )
    assert ten.class_names == ("5", "15", "25", "35")
    assert ten.tasks == ((1, 0), (3,), (2,))
    np.testing.assert_array_equal(ten.train_labels, LABELS)
    np.testing.assert_array_equal(ten.train_inputs, INPUTS)
    assert arrays((INPUTS[:, 0], LABELS), tasks=2).input_shape == (1, 2, 2)
    named = arrays((INPUTS, np.array(list("bcda"))[LABELS]), tasks=[["d"], ["a", "c", "b"]])
    assert named.class_names == tuple("abcd")
    assert named.tasks == ((3,), (0, 2, 1))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, ">f4"])
@pytest.mark.parametrize("shape", [(20, 3, 2, 2), (20, 12)])
def test_floats_stay_floats_and_are_seen_as_they_are(
    tmp_path: Path, kind: npt.DTypeLike, shape: tuple[int, ...]
) -> None:
    inputs = (np.random.default_rng(0).standard_normal(shape) * 50).astype(kind)
    path = save(tmp_path, inputs=inputs, test_inputs=inputs[::5], test_labels=LABELS[::5])
    benchmark = arrays(path, tasks=2)
    assert benchmark.train_inputs.dtype == benchmark.test_inputs.dtype == torch.float32
    np.testing.assert_array_equal(benchmark.train_inputs, inputs.astype(np.float32))
    np.testing.assert_array_equal(benchmark.test_inputs, inputs[::5].astype(np.float32))
    assert (benchmark.input_shape, benchmark.scale) == (shape[1:], 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": INPUTS.astype(np.int64)}, r"uint8 or floats, got int64\. .*astype\(np\.uint8"),
        ({"inputs": INPUTS > 9}, r"uint8 or floats, got bool\. .*astype\(np\.float32"),
        ({"inputs": np.where(INPUTS == 99, np.nan, INPUTS)}, "input 8 has a NaN or an infinite"),
        ({"inputs": np.where(INPUTS == 99, 1e39, INPUTS)}, "input 8 .*too large for float32"),
        ({"inputs": INPUTS[..., None]}, r"must be images \[N, C, H, W\]"),
        ({"inputs": INPUTS[:19]}, "19 inputs but 20 labels"),
        ({"labels": LABELS / 1}, "must be a class's name or number, not float"),
        ({"labels": LABELS.reshape(10, 2)}, "must be a class's name or number, not list"),
        ({"labels": LABELS * 0}, "all inputs are of class '0'; need at least 2"),
        ({"labels": np.array([*LABELS[:-5], 3, 2, 2, 2, 2])}, "'3' has one training sample"),
        ({"labels": np.array([object()] * 20)}, "Python objects.*can run any code"),
        ({"inputs": INPUTS[:0], "labels": LABELS[:0]}, "not be empty"),
        ({"test_inputs": INPUTS, "test_labels": LABELS + 1}, "only one of them has 0, 4"),
        (
            {"test_inputs": INPUTS[::5] / 255, "test_labels": LABELS[::5]},
            r"test inputs must be torch\.uint8",
        ),
    ],
)
def test_wrong_arrays_are_refused(
    tmp_path: Path, changes: dict[str, npt.NDArray[Any]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        arrays(save(tmp_path, **changes), tasks=2)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (5, r"4 classes can be split into 1\.\.4 tasks, not 5"),
        ([[0, 1], [2]], "the tasks hold 3 classes, the data has 4"),
        ([[0, 1], [2, 2]], "class 2 is in the tasks twice"),
        ([[0, 1], [2, 4]], "unknown class '4'. Known: 0, 1, 2, 3"),
    ],
)
def test_wrong_tasks_are_refused(tmp_path: Path, tasks: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        arrays(save(tmp_path), tasks=tasks)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
def test_a_fraction_outside_zero_and_one_is_refused(tmp_path: Path, fraction: float) -> None:
    with pytest.raises(DataError, match="fraction must be between 0 and 1"):
        arrays(save(tmp_path), tasks=2, test=fraction)


def test_files_that_are_no_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "odd.npz", pictures=INPUTS)
    np.save(tmp_path / "one.npy", INPUTS)
    (tmp_path / "text.npy").write_text("hello")
    whole = save(tmp_path).read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[:-10])
    (tmp_path / "short.npy").write_bytes((tmp_path / "one.npy").read_bytes()[:-10])
    for name, message in (
        ("odd.npz", "holds pictures; expected inputs and labels"),
        ("one.npy", "holds one array; give a pair"),
        ("text.npy", "is a pickle"),
        ("cut.npz", r"cannot read .*cut\.npz"),
        ("short.npy", r"cannot read .*short\.npy"),
        ("none.npz", r"cannot read .*none\.npz"),
    ):
        with pytest.raises(DataError, match=message):
            arrays(tmp_path / name, tasks=2)
    with pytest.raises(DataError, match=r"a pair of \.npy files"):
        arrays((tmp_path / "data.npz", tmp_path / "data.npz"), tasks=2)
    with pytest.raises(DataError, match=r"give a pair, \(inputs, labels\)"):
        arrays(INPUTS, tasks=2)  # type: ignore[arg-type]


# Datasets


class Listed(Dataset[tuple[Any, int]]):
    def __init__(self, items: list[tuple[Any, int]]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.items[index]


def test_a_dataset_of_pil_images_has_its_channels_brought_to_the_front() -> None:
    image_module = pytest.importorskip("PIL.Image")
    image = image_module.new("RGB", (5, 4), (1, 2, 3))
    benchmark = from_dataset(Listed([(image, label % 2) for label in range(10)]), tasks=1)
    assert benchmark.input_shape == (3, 4, 5)
    assert benchmark.train_inputs[0, :, 0, 0].tolist() == [1, 2, 3]
    grey = Listed([(image.convert("L"), label % 2) for label in range(10)])
    assert from_dataset(grey, tasks=1).input_shape == (1, 4, 5)
    with pytest.raises(DataError, match=r"image of mode P; use image\.convert\('RGB'\)"):
        from_dataset(Listed([(image.convert("P"), 0)]), tasks=1)


def test_a_dataset_of_floats_keeps_its_numbers() -> None:
    inputs, labels = torch.linspace(-9, 9, 160).view(16, 10).bfloat16(), torch.arange(16) % 2
    both = TensorDataset(inputs, labels)
    benchmark = from_dataset(both, tasks=2, test=both)
    assert torch.equal(benchmark.train_inputs, inputs.float())
    assert benchmark.test_labels.tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "the dataset is empty"),
        (
            [(torch.zeros(1, 2), 0), (torch.full((1, 2), float("nan")), 1)],
            "the dataset: input 1: input 0 has a NaN",
        ),
        ([(torch.tensor([[3]]), 0)], "the dataset: input 0 must be uint8 or floats, got int64"),
        (
            [(torch.zeros(1, 2, 2), 0), (torch.zeros(1, 3, 3), 1)],
            r"input 1: the model takes 1 channels of 2 x 2 pixels.*; got \[1, 3, 3\]",
        ),
        ([(torch.zeros(1, 2, 2), 0)] * 3, "need at least 2 classes"),
    ],
)
def test_wrong_datasets_are_refused(items: list[tuple[Any, int]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_dataset(Listed(items), tasks=1)


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return itertools.count()


def test_a_dataset_without_a_length_is_refused() -> None:
    with pytest.raises(DataError, match="has no length"):
        from_dataset(Endless(), tasks=1)
