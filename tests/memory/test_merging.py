"""Memories that merge what they do not keep: into the nearest of the class, and nowhere else."""

import pytest
import torch
from torch import Tensor

from remask.memory import Reservoir, merge, merging


def memory_of(
    places: list[list[float]], classes: list[int], *, dtype: torch.dtype = torch.float32
) -> Reservoir:
    """The full memory of one trial, with logits that are all 0."""
    memory = Reservoir(
        trials=1,
        capacity=len(places),
        input_shape=(len(places[0]),),
        input_type=dtype,
        num_classes=2,
        stores_logits=True,
        merging=True,
    )
    assert isinstance(memory.inputs, Tensor)
    memory.inputs.copy_(torch.tensor(places))
    memory.labels.copy_(torch.tensor(classes))
    return memory


def offer(
    memory: Reservoir,
    inputs: list[list[float]],
    labels: list[int],
    *,
    kept: list[int] | None = None,
    number: int = 0,
) -> list[list[float]]:
    """Merge a batch whose logits are all 1; returns what the places then hold."""
    assert isinstance(memory.inputs, Tensor)
    merge(
        memory,
        torch.tensor([inputs]).to(memory.inputs.dtype),
        torch.tensor([labels]),
        torch.ones(1, len(labels), 2),
        kept=None if kept is None else torch.tensor(kept),
        number=number,
    )
    found: list[list[float]] = memory.inputs.tolist()
    return found


def test_a_sample_moves_the_nearest_of_its_class_to_the_mean_of_what_came_there() -> None:
    memory = memory_of([[0, 0], [10, 0], [3, 0]], [0, 0, 1])
    assert offer(memory, [[4, 0]], [0]) == [[2, 0], [10, 0], [3, 0]]  # (0 + 4) / 2, not 3's class
    assert offer(memory, [[5, 3]], [0]) == [[3, 1], [10, 0], [3, 0]]  # (0 + 4 + 5) / 3, 3 / 3
    assert memory.logits is not None
    torch.testing.assert_close(memory.logits[:, 0], torch.tensor([2 / 3, 0, 0]))


def test_of_many_that_come_to_a_place_the_latest_weigh_a_quarter() -> None:
    memory = memory_of([[0]], [0])
    means = [offer(memory, [[12]], [0])[0][0] for _ in range(5)]
    assert means == [6, 8, 9, 9.75, 10.3125]  # 1/2, 1/3, 1/4, and then 1/4 of the way each time


def test_a_sample_that_has_a_place_or_a_class_without_one_changes_nothing() -> None:
    memory = memory_of([[0], [10]], [0, 0])
    assert offer(memory, [[4], [6], [9]], [1, 0, 0], kept=[1, 2]) == [[0], [10]]
    assert memory.counts is not None
    assert memory.counts.tolist() == [1, 1]


def test_of_samples_that_come_to_one_place_at_once_the_last_loose_one_counts() -> None:
    memory = memory_of([[0], [100]], [0, 0])
    assert offer(memory, [[2], [4], [8], [90]], [0] * 4, kept=[2]) == [[2], [95]]


def test_bytes_are_rounded_and_move_both_ways() -> None:
    memory = memory_of([[0, 200, 7]], [0], dtype=torch.uint8)
    assert offer(memory, [[255, 3, 7]], [0]) == [[128, 102, 7]]  # halves to the even one: -98.5


def test_each_step_looks_at_the_next_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "WINDOW", 2)
    memory = memory_of([[0], [10], [20], [30], [40]], [0] * 5)
    assert offer(memory, [[36]], [0], number=1) == [[0], [10], [20], [33], [40]]
    assert offer(memory, [[36]], [0], number=2)[4] == [38]  # the last window is a short one
    assert offer(memory, [[36]], [0], number=3)[1:3] == [[10], [28]]  # places 6 % 5 and 2


def test_trials_do_not_meet() -> None:
    torch.manual_seed(0)
    sizes = {"capacity": 6, "input_shape": (3,), "input_type": torch.float32, "num_classes": 2}
    whole = Reservoir(trials=3, stores_logits=False, merging=True, **sizes)  # type: ignore[arg-type]
    assert isinstance(whole.inputs, Tensor)
    whole.inputs.normal_()
    whole.labels.random_(2)
    inputs, labels, logits = torch.randn(3, 5, 3), torch.randint(2, (3, 5)), torch.zeros(3, 5, 2)
    alone = []
    for trial in range(3):
        own = Reservoir(trials=1, stores_logits=False, merging=True, **sizes)  # type: ignore[arg-type]
        assert isinstance(own.inputs, Tensor)
        rows = slice(6 * trial, 6 * trial + 6)
        own.inputs.copy_(whole.inputs[rows])
        own.labels.copy_(whole.labels[rows])
        one = slice(trial, trial + 1)
        merge(own, inputs[one], labels[one], logits[one], kept=None, number=0)
        alone.append(own.inputs)
    merge(whole, inputs, labels, logits, kept=None, number=0)
    assert torch.equal(whole.inputs, torch.cat(alone))
