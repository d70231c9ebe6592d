"""The balanced memory: fair shares, uniform within a class, the same from any step on."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from remask.memory import EMPTY, plan_balanced
from remask.memory.balanced import balanced_slots
from remask.memory.reservoir import Integers
from remask.randomness import generator
from tests.memory.test_reservoir import UNLIKELY, contents, p_value


def fair_shares(counts: list[int], capacity: int) -> list[int]:
    """Fill all classes equally until the memory is full: the least that each class keeps."""
    level = 0
    while sum(min(count, level + 1) for count in counts) <= capacity and level < max(counts):
        level += 1
    return [min(count, level) for count in counts]


def kept_of(labels: Integers, capacity: int, classes: int, seed: int = 0) -> Integers:
    """Which samples, by their numbers, are in memory after all have come; -1: an empty slot."""
    empty, none = np.full(capacity, EMPTY), np.zeros(classes, dtype=np.int64)
    numbers = generator(seed, "test").random((len(labels), 2))
    memory = np.full(capacity, -1, dtype=np.int64)
    for sample, slot in enumerate(balanced_slots(empty, none, labels, numbers).tolist()):
        if slot >= 0:
            memory[slot] = sample
    return memory


@pytest.mark.parametrize("order", ["mixed", "rare first", "rare last"])
def test_a_class_of_5_keeps_all_of_them_beside_one_of_50_000(order: str) -> None:
    counts = [50_000, 5, 700, 40, 5_000]
    labels = np.repeat(np.arange(5), counts)
    if order == "mixed":
        labels = generator(1, "order").permutation(labels)
    elif order == "rare first":
        labels = labels[np.argsort(np.array(counts)[labels], kind="stable")]
    else:
        labels = labels[np.argsort(-np.array(counts)[labels], kind="stable")]
    kept = kept_of(labels, 200, 5)
    assert len(set(kept.tolist())) == 200
    held = np.bincount(labels[kept], minlength=5)
    shares = fair_shares(counts, 200)
    assert shares == [51, 5, 51, 40, 51]
    assert (held >= shares).all()
    assert held.sum() == 200
    assert held.max() <= max(shares) + 1


@pytest.mark.parametrize("seed", range(30))
def test_every_class_keeps_its_samples_or_its_fair_share_at_any_time(seed: int) -> None:
    random = generator(seed, "sizes")
    classes, capacity = int(random.integers(1, 9)), int(random.integers(9, 40))
    shares = random.dirichlet(np.full(classes, 0.3))
    labels = random.choice(classes, 400, p=shares).astype(np.int64)
    for end in (5, 30, 100, 400):
        kept = kept_of(labels[:end], capacity, classes, seed)
        kept = kept[kept >= 0]
        assert len(set(kept.tolist())) == len(kept) == min(capacity, end)
        held = np.bincount(labels[kept], minlength=classes)
        counts = np.bincount(labels[:end], minlength=classes).tolist()
        assert (held >= fair_shares(counts, capacity)).all()


def test_within_a_class_every_sample_is_kept_equally_often() -> None:
    labels = np.array([0] * 6 + [1] * 2 + [0] * 3 + [2] + [0] * 3 + [1, 2] * 4)
    trials = 4_000
    times: Counter[int] = Counter()
    for seed in range(trials):
        times.update(kept_of(labels, 5, 3, seed).tolist())
    for label in range(3):
        samples = np.flatnonzero(labels == label).tolist()
        seen = [times[sample] for sample in samples]
        assert p_value(seen, [sum(seen) / len(seen)] * len(seen)) > UNLIKELY, (label, seen)


def test_more_classes_than_places_leave_one_sample_each_of_some() -> None:
    kept = kept_of(np.tile(np.arange(10), 20), 4, 10)
    assert len(set(kept.tolist())) == 4
    assert len(set((kept % 10).tolist())) == 4


# ---- The plan -----------------------------------------------------------------------------------


def plan_of(labels: Integers, **changes: Any) -> Any:
    trials = len(labels)
    fields: dict[str, Any] = {
        "classes": np.full((trials, 6), EMPTY),
        "offered": np.zeros((trials, 3), dtype=np.int64),
        "sizes": [4, 4, 4, 4, 2],
        "begin": 0,
        "draws": 2,
        "draw_size": 3,
        "seeds": range(trials),
        "key": (0, 0),
    }
    return plan_balanced(labels=labels, **(fields | changes))


def arriving(trials: int) -> Integers:
    return np.stack(
        [generator(s, "labels").choice(3, 18, p=[0.7, 0.2, 0.1]) for s in range(trials)]
    )


def test_a_plan_does_what_one_sample_after_the_other_does() -> None:
    labels = arriving(3)
    planned = plan_of(labels)
    memory = contents(planned, [4, 4, 4, 4, 2], 3, 6)
    for seed in range(3):
        numbers = generator(seed, "balanced", 0, 0).random((18, 2))
        slots = balanced_slots(np.full(6, EMPTY), np.zeros(3, np.int64), labels[seed], numbers)
        slow = [-1] * 6
        for sample, slot in enumerate(slots.tolist()):
            if slot >= 0:
                slow[slot] = sample
        assert memory[seed].tolist() == slow
    assert planned.filled == [0, 4, 6, 6, 6, 6]


@pytest.mark.parametrize("begin", range(1, 5))
def test_a_plan_from_any_step_on_is_the_rest_of_the_whole_one(begin: int) -> None:
    sizes, labels = [4, 4, 4, 4, 2], arriving(3)
    whole = plan_of(labels)
    memory = torch.full((18,), EMPTY)
    for step in range(begin):
        if whole.kept[step] is not None:
            source, target = whole.kept[step]
            rows = torch.from_numpy(labels[:, 4 * step : 4 * step + sizes[step]].copy()).flatten()
            memory[target] = rows[source]
    offered = np.stack([np.bincount(own[: 4 * begin], minlength=3) for own in labels])
    rest = plan_of(labels, classes=memory.view(3, 6).numpy(), offered=offered, begin=begin)
    for step in range(begin, 5):
        assert rest.filled[step] == whole.filled[step]
        assert torch.equal(rest.draws[step], whole.draws[step])
        assert (rest.kept[step] is None) == (whole.kept[step] is None)
        if whole.kept[step] is not None:
            for ours, theirs in zip(rest.kept[step], whole.kept[step], strict=True):
                assert torch.equal(ours, theirs)


def test_a_trial_has_the_same_plan_alone_and_in_company() -> None:
    labels = arriving(3)
    together, alone = plan_of(labels), plan_of(labels[1:2], seeds=[1])
    for step, size in enumerate([4, 4, 4, 4, 2]):
        if step:
            assert torch.equal(together.draws[step][1] - 6, alone.draws[step][0])
        kept, own = together.kept[step], alone.kept[step]
        if kept is None:
            assert own is None
            continue
        mine = kept[0] // size == 1
        if own is None:
            assert not mine.any()
        else:
            assert torch.equal(kept[0][mine] - size, own[0])
            assert torch.equal(kept[1][mine] - 6, own[1])


def test_draws_are_of_distinct_slots_that_are_filled() -> None:
    planned = plan_of(arriving(50))
    assert planned.draws[0] is None
    for drawn, filled in zip(planned.draws[1:], [4, 6, 6, 6], strict=True):
        slots = (drawn - 6 * torch.arange(50)[:, None]).view(50, 2, 3)
        assert sorted(set(slots.flatten().tolist())) == list(range(filled))
        assert all(len(set(draw)) == 3 for draw in slots.flatten(0, 1).tolist())


def test_a_sample_is_offered_once_in_the_first_epoch_of_its_task() -> None:
    later = plan_of(arriving(2), classes=np.tile([0, 0, 1, 1, 2, EMPTY], (2, 1)), key=(3, 1))
    assert not later.offers
    assert later.kept == [None] * 5
    assert later.filled == [5] * 6
