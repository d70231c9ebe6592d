"""Samples on disk: rows are what was written, whatever else the file may be is refused."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from remask.memory import JoinedRows, MappedRows, SampleFileError
from remask.memory import rows as rows_module
from remask.memory.rows import Array


def written(path: Path, array: Array) -> Path:
    np.save(path, array)
    return path


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_rows_are_those_of_the_file(tmp_path: Path, kind: type) -> None:
    array: Array = np.arange(60).reshape(10, 2, 3).astype(kind)
    rows = MappedRows(written(tmp_path / "a.npy", array))
    assert rows.shape == (10, 2, 3)
    assert len(rows) == 10
    numbers = torch.tensor([[3, 3, 0], [9, 1, 2]])
    assert torch.equal(rows.take(numbers), torch.from_numpy(array)[numbers])
    assert torch.equal(torch.cat(list(rows.chunks())), torch.from_numpy(array))


def test_joined_rows_are_counted_through(tmp_path: Path) -> None:
    arrays = [np.random.default_rng(n).integers(0, 255, (n, 4)).astype(np.uint8) for n in (3, 1, 5)]
    files = [MappedRows(written(tmp_path / f"{len(a)}.npy", a)) for a in arrays[:2]]
    rows = JoinedRows([*files, torch.from_numpy(arrays[2])])
    every = torch.from_numpy(np.concatenate(arrays))
    numbers = torch.tensor([8, 0, 2, 3, 4, 4, 7, 1])
    assert torch.equal(rows.take(numbers), every[numbers])
    assert len(rows) == 9


def test_what_all_trials_share_is_read_once(tmp_path: Path) -> None:
    rows = MappedRows(written(tmp_path / "a.npy", np.arange(20, dtype=np.uint8).reshape(10, 2)))
    read: list[int] = []
    plain = rows.read

    def counting(numbers: Array) -> Array:
        read.append(len(numbers))
        return plain(numbers)

    rows.read = counting  # type: ignore[method-assign]
    shared, own = torch.tensor([[4, 7]] * 3), torch.tensor([[4, 7], [7, 4], [4, 7]])
    assert rows.take_stacked(shared).tolist() == [[[8, 9], [14, 15]]] * 3
    assert rows.take_stacked(own)[1].tolist() == [[14, 15], [8, 9]]
    assert read == [2, 6]


def test_what_was_mapped_is_let_go_and_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "_MOST_RESIDENT", 1000)
    monkeypatch.setattr(rows_module, "_AT_ONCE", 30)
    array = np.random.default_rng(0).integers(0, 255, (500, 16)).astype(np.uint8)
    rows = JoinedRows([MappedRows(written(tmp_path / f"{n}.npy", array)) for n in (1, 2)])
    for start in range(0, 1000, 100):
        numbers = torch.arange(start, start + 100)
        assert torch.equal(rows.take(numbers), torch.from_numpy(array)[numbers % 500])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.zeros((2, 3)), r"it has float64 \[2, 3\], not rows of uint8, float32 or int64"),
        (np.zeros((2, 3), np.uint8, order="F"), "not rows"),
        (np.array(3, np.uint8), r"it has uint8 \[\]"),
        (np.array([{"a": 1}], dtype=object), "Python objects"),
        (b"not numpy at all", "magic string"),
        (b"", "cannot use the samples"),
    ],
)
def test_a_file_that_is_no_array_of_samples_is_refused(
    tmp_path: Path, content: Array | bytes, message: str
) -> None:
    path = tmp_path / "a.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content)
    with pytest.raises(SampleFileError, match=message) as caught:
        MappedRows(path)
    assert str(path) in str(caught.value)


def test_a_file_that_was_cut_off_is_refused_and_so_is_one_that_is_not_there(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((10, 10), np.uint8))
    (tmp_path / "a.npy").write_bytes(buffer.getvalue()[:-1])
    for name in ("a.npy", "b.npy"):
        with pytest.raises(SampleFileError, match=name):
            MappedRows(tmp_path / name)


def test_samples_of_different_shapes_cannot_be_joined() -> None:
    with pytest.raises(SampleFileError, match=r"\[3\] and torch.uint8 \[4\] are not"):
        JoinedRows([torch.zeros(2, 3, dtype=torch.uint8), torch.zeros(2, 4, dtype=torch.uint8)])
