"""The memory of methods that choose for themselves, against lists; and the policy of GSS."""

import numpy as np
import torch
from torch import Tensor

from remask.memory import KeptRows, challenge


def rows(first: int, count: int) -> Tensor:
    """Rows that tell the trials apart: those of the second are 100 higher."""
    own = torch.arange(first, first + count)
    return torch.stack([own, own + 100])


def test_groups_of_unequal_size_are_kept_trimmed_and_added_to_as_lists_would_be() -> None:
    memory = KeptRows(trials=2, places=12, groups=3)
    expected: list[list[int]] = [[], [], []]
    first = 10
    for number, (count, quota) in enumerate([(5, 6), (2, 3), (3, 2)]):
        memory.trim(quota)
        expected = [group[:quota] for group in expected]
        for part in (count - 1, 1):
            memory.put(rows(first, part), number)
            expected[number] += range(first, first + part)
            first += part
    assert [memory.group(number)[0].tolist() for number in range(3)] == expected
    assert [memory.group(number)[1].tolist() for number in range(3)] == [
        [row + 100 for row in group] for group in expected
    ]
    assert memory.filled == sum(map(len, expected)) == 7


def test_trimming_says_which_slots_stayed_so_that_what_lies_beside_can_follow() -> None:
    memory = KeptRows(trials=2, places=8, groups=2)
    memory.put(rows(0, 3), 0)
    memory.put(rows(50, 4), 1)
    beside = memory.at(torch.arange(7).expand(2, -1)) * 2
    left = memory.trim(2)
    assert left.tolist() == [0, 1, 3, 4]
    assert torch.equal(memory.at(torch.arange(4).expand(2, -1)) * 2, beside[:, left])
    assert memory.trim(1, without=[0]).tolist() == [2]
    memory.put(rows(70, 2), 0)
    assert memory.rows()[0].tolist() == [70, 71, 50]


def test_a_high_rating_is_replaced_by_a_low_score_and_no_rating_of_zero_ever_is() -> None:
    memory = KeptRows(trials=2, places=3)
    memory.put(rows(0, 3))
    ratings = np.array([0.0, 5.0, 0.0])
    challenge(memory, ratings, 1, np.random.default_rng(0), torch.tensor([77]), np.zeros(1))
    assert memory.at(torch.arange(3).expand(2, -1)).tolist() == [[0, 1, 2], [100, 77, 102]]
    assert ratings.tolist() == [0.0, 0.0, 0.0]
    challenge(memory, ratings, 1, np.random.default_rng(0), torch.tensor([88]), np.ones(1))
    assert memory.at(torch.arange(3).expand(2, -1))[1].tolist() == [100, 77, 102]


def test_scores_that_are_not_numbers_change_nothing() -> None:
    memory = KeptRows(trials=1, places=2)
    memory.put(torch.tensor([[3, 4]]))
    ratings = np.array([1.0, 1.0])
    bad = np.array([np.nan, 0.0])
    challenge(memory, ratings, 0, np.random.default_rng(0), torch.tensor([5, 6]), bad)
    assert memory.group(0).tolist() == [[3, 4]]
    assert ratings.tolist() == [1.0, 1.0]


def test_rows_can_be_counted_anew_group_after_group() -> None:
    memory = KeptRows(trials=2, places=8, groups=3)
    memory.put(rows(30, 2), 0)
    memory.put(rows(60, 3), 2)
    assert memory.rows()[0].tolist() == [30, 31, 60, 61, 62]
    memory.renumber()
    assert memory.rows().tolist() == [[0, 1, 2, 3, 4]] * 2
    assert memory.group(2)[1].tolist() == [2, 3, 4]


def test_groups_that_share_their_places_may_become_more_and_be_saved_and_restored() -> None:
    memory = KeptRows(trials=2, places=6, groups=1)
    for number in range(3):
        memory.put(rows(10 * number, 2), number)
    saved = {name: tensor.clone() for name, tensor in memory.state().items()}
    other = KeptRows(trials=2, places=6, groups=1)
    other.grow(3)
    for name, tensor in other.state().items():
        tensor.copy_(saved[name])
    assert [other.group(number)[0].tolist() for number in range(3)] == [[0, 1], [10, 11], [20, 21]]
