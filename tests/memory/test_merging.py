"""Memories that merge what they do not keep: into the nearest of the class, and nowhere else."""

import pytest
import torch
from torch import Tensor

from remask.memory import ReplayMemory, ReplayMemoryError, policies
from remask.memory.policies import Places, merge


def memory_of(
    places: list[list[float]], classes: list[int], *, dtype: torch.dtype = torch.float32
) -> Places:
    """The full memory of one trial, with logits that are all 0."""
    count = len(places)
    return Places(
        torch.tensor(places).to(dtype),
        torch.tensor(classes),
        torch.zeros(count, 2),
        torch.ones(count, dtype=torch.uint8),
    )


def offer(
    memory: Places,
    inputs: list[list[float]],
    labels: list[int],
    *,
    kept: list[int] | None = None,
    number: int = 0,
) -> list[list[float]]:
    """Merge a batch whose logits are all 1; returns what the places then hold."""
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
    assert memory.counts.tolist() == [1, 1]


def test_what_is_not_finite_is_merged_nowhere() -> None:
    memory = memory_of([[0, 0], [10, 0]], [0, 0])
    broken = [[torch.inf, 0], [torch.nan, 0], [-torch.inf, torch.inf]]
    assert offer(memory, broken, [0, 0, 0]) == [[0, 0], [10, 0]]


def test_of_samples_that_come_to_one_place_at_once_the_last_loose_one_counts() -> None:
    memory = memory_of([[0], [100]], [0, 0])
    assert offer(memory, [[2], [4], [8], [90]], [0] * 4, kept=[2]) == [[2], [95]]


def test_bytes_are_rounded_and_move_both_ways() -> None:
    memory = memory_of([[0, 200, 7]], [0], dtype=torch.uint8)
    assert offer(memory, [[255, 3, 7]], [0]) == [[128, 102, 7]]  # halves to the even one: -98.5


def test_each_step_looks_at_the_next_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "WINDOW", 2)
    memory = memory_of([[0], [10], [20], [30], [40]], [0] * 5)
    assert offer(memory, [[36]], [0], number=1) == [[0], [10], [20], [33], [40]]
    assert offer(memory, [[36]], [0], number=2)[4] == [38]  # the last window is a short one
    assert offer(memory, [[36]], [0], number=3)[1:3] == [[10], [28]]  # places 6 % 5 and 2


def clusters(samples: int) -> tuple[Tensor, Tensor]:
    """Two classes, each around two centres."""
    random = torch.Generator().manual_seed(0)
    which = torch.randint(4, (samples,), generator=random)
    centres = torch.tensor([[0.0, 0], [10, 0], [0, 10], [10, 10]])
    return centres[which] + torch.randn(samples, 2, generator=random), which // 2


def test_the_means_of_a_merging_memory_stand_for_more_than_as_many_samples() -> None:
    x, y = clusters(2000)
    distances = []
    for policy in ("reservoir", "merging"):
        memory = ReplayMemory(20, policy)
        for start in range(0, 2000, 10):
            memory.add(x[start : start + 10], y[start : start + 10])
        inputs, labels, _ = memory.draw(20)
        others = y.unsqueeze(1) != labels
        nearest = torch.cdist(x, inputs).masked_fill(others, torch.inf).amin(1)
        distances.append(float(nearest.mean()))
    assert distances[1] < 0.9 * distances[0]


def test_what_has_no_mean_is_refused() -> None:
    with pytest.raises(ReplayMemoryError, match=r"x of floating point or uint8, got torch\.int64"):
        ReplayMemory(4, "merging").add(torch.arange(6).view(3, 2), torch.zeros(3, dtype=torch.long))
