"""Checkpoints: what goes in comes out, bit by bit, or is refused with a reason."""

import math
from pathlib import Path

import pytest
import torch
from pydantic import JsonValue

from remask.engine import checkpoints
from remask.engine.checkpoints import Checkpoint, CheckpointError, CheckpointFolder
from remask.files import DurabilityError
from tests.runs.faults import filled, reopened, save, state, version_of

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
)  # fmt: skip
SHAPES = ((), (0,), (1,), (3, 0, 2), (2, 3, 5))


def round_trip(
    folder: Path, tensors: dict[str, torch.Tensor], extra: dict[str, JsonValue] | None = None
) -> Checkpoint:
    writer = CheckpointFolder(folder, "run")
    writer.load(tensors)
    writer.save(tensors, {"step": 2**62}, extra or {})
    found = CheckpointFolder(folder, "run").load(tensors)
    assert found is not None
    return found


def random_bits(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Any bit pattern, so that NaNs with payloads, negative zeros and subnormals are among them."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    size = torch.empty((), dtype=dtype).element_size()
    count = math.prod(shape)
    return torch.randint(0, 256, (count * size,), dtype=torch.uint8).view(dtype).reshape(shape)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_every_dtype_shape_and_layout_comes_back_bit_by_bit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tensors = {
        f"{dtype}/{shape}": random_bits(dtype, shape) for dtype in DTYPES for shape in SHAPES
    }
    base = torch.arange(24.0).reshape(2, 3, 4)
    tensors |= {
        "base": base,
        "again": base,
        "row": base[1],
        "across": base.mT,
        "gaps": base[..., ::2],
    }
    found = round_trip(tmp_path, tensors)
    assert found.position == {"step": 2**62}
    assert found.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert found.tensors[name].shape == tensor.shape
        assert bits(found.tensors[name]) == bits(tensor)


def test_the_last_two_are_kept_and_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    folder = reopened(tmp_path)
    assert folder.load(state(0)) is None
    assert [save(folder, version) for version in (1, 2, 3)] == [1, 2, 3]
    folder = reopened(tmp_path)
    found = folder.load(state(0))
    assert version_of(found) == 3
    assert found is not None
    assert (found.number, found.warnings) == (3, ())
    assert save(folder, 4) == 4
    assert {path.name for path in tmp_path.iterdir()} == {
        "checkpoint-00000003.safetensors",
        "checkpoint-00000004.safetensors",
    }


def test_numbers_are_compared_as_numbers(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "checkpoint-00000003.safetensors").rename(
        tmp_path / "checkpoint-100000000.safetensors"
    )
    folder = reopened(tmp_path)
    assert version_of(folder.load(state(0))) == 3
    assert save(folder, 4) == 100_000_001
    assert version_of(reopened(tmp_path).load(state(0))) == 4


def test_the_good_checkpoint_is_kept_rather_than_the_damaged_one(tmp_path: Path) -> None:
    filled(tmp_path)
    damaged = tmp_path / "checkpoint-00000003.safetensors"
    damaged.write_bytes(b"")
    folder = reopened(tmp_path)
    assert version_of(folder.load(state(0))) == 2
    save(folder, 4)
    (tmp_path / "checkpoint-00000004.safetensors").write_bytes(b"")
    assert version_of(reopened(tmp_path).load(state(0))) == 2
    assert not damaged.exists()


def test_damage_to_both_is_an_error_and_deletes_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    before = sorted(tmp_path.iterdir())
    before[0].write_bytes(before[0].read_bytes()[:-1])
    before[1].write_bytes(before[1].read_bytes()[:-1] + b"\xff")
    folder = reopened(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        folder.load(state(0))
    for path in before:
        assert f"{path} is damaged: its checksum is wrong" in str(caught.value)
    with pytest.raises(CheckpointError, match="were not loaded"):
        save(folder, 4)
    assert sorted(tmp_path.iterdir()) == before


def test_another_runs_checkpoint_is_refused_and_never_overwritten(tmp_path: Path) -> None:
    filled(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    other = CheckpointFolder(tmp_path, "other run")
    with pytest.raises(CheckpointError, match="belongs to another run, 'run', not to 'other run'"):
        other.load(state(0))
    with pytest.raises(CheckpointError, match="were not loaded"):
        save(other, 4)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_newer_format_is_refused_and_an_older_checkpoint_is_not_taken_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = filled(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_FORMAT", 2)
        save(folder, 4)
    newest = tmp_path / "checkpoint-00000004.safetensors"
    with pytest.raises(CheckpointError) as caught:
        reopened(tmp_path).load(state(0))
    assert f"{newest} does not fit this run: it was written by a newer remask" in str(caught.value)
    assert newest.exists()


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"net/weight": torch.zeros(3, 2)}, "other tensors than were saved: 'memory/inputs'"),
        ({**state(0), "z": torch.zeros(1)}, "other tensors than were saved: 'z'"),
        (
            {**state(0), "net/weight": torch.zeros(2, 3)},
            "saved net/weight is torch.float32 [3, 2], that of this run is torch.float32 [2, 3]",
        ),
        ({**state(0), "net/weight": torch.zeros(3, 2).int()}, "of this run is torch.int32 [3, 2]"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    tmp_path: Path, expected: dict[str, torch.Tensor], message: str
) -> None:
    filled(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        reopened(tmp_path).load(expected)
    assert message in str(caught.value)


def test_damage_that_came_before_a_refusal_is_told_too(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "checkpoint-00000003.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"00000003.* is damaged.*00000002.* another run"):
        CheckpointFolder(tmp_path, "other").load(state(0))


def test_files_of_other_names_are_left_alone(tmp_path: Path) -> None:
    for name in ("checkpoint-1.safetensors", "checkpoint-00000009.safetensors.bak", "x.tmp"):
        (tmp_path / name).touch()
    filled(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3 + 2


def test_a_folder_that_cannot_be_listed_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DurabilityError, match="cannot list"):
        reopened(tmp_path / "file").load(state(0))
