"""Balanced memories: fair shares, uniform within a class, the same from any step on."""

from collections import Counter
from typing import Any, Literal

import numpy as np
import pytest
import torch

from remask.memory import EMPTY
from remask.memory.policies import ClassBalance, Integers, task_slots
from remask.randomness import generator
from tests.memory.test_reservoir import UNLIKELY, contents, p_value, reservoir

Policy = Literal["streaming", "task by task"]
POLICIES: list[Policy] = ["streaming", "task by task"]


def least_shares(counts: list[int], capacity: int) -> list[int]:
    """Fill all classes equally until the memory is full: the least that each class keeps."""
    level = 0
    while sum(min(count, level + 1) for count in counts) <= capacity and level < max(counts):
        level += 1
    return [min(count, level) for count in counts]


def slots_of(
    policy: Policy, labels: Integers, capacity: int, classes: int, seed: int, tasks: int = 1
) -> list[int]:
    """The slot of each sample, or -1; the samples come in so many tasks of one size."""
    numbers = generator(seed, "test").random((len(labels), 2))
    memory, none = np.full(capacity, EMPTY), np.zeros(classes, dtype=np.int64)
    if policy == "streaming":
        balance = ClassBalance(memory, none)
        triples = zip(labels.tolist(), *numbers.T.tolist(), strict=True)
        return [balance.offer(*triple) for triple in triples]
    found: list[int] = []
    for rows in np.array_split(np.arange(len(labels)), tasks):
        offered = np.bincount(labels[: rows[0]], minlength=classes)
        own = task_slots(memory, offered, labels[rows], numbers[rows])
        for row, slot in zip(rows, own.tolist(), strict=True):
            if slot >= 0:
                memory[slot] = labels[row]
        found += own.tolist()
    return found


def kept_of(
    policy: Policy,
    labels: Integers,
    capacity: int,
    classes: int,
    seed: int = 0,
    *,
    tasks: int = 1,
    end: int | None = None,
) -> Integers:
    """Which samples, by their numbers, are in memory after some or all came; -1: an empty slot."""
    memory = np.full(capacity, -1, dtype=np.int64)
    slots = slots_of(policy, labels, capacity, classes, seed, tasks)
    for sample, slot in enumerate(slots[:end]):
        if slot >= 0:
            memory[slot] = sample
    return memory


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("order", ["mixed", "rare first", "rare last"])
def test_a_class_of_5_keeps_all_of_them_beside_one_of_50_000(order: str, policy: Policy) -> None:
    counts = [50_000, 5, 700, 40, 5_000]
    labels = np.repeat(np.arange(5), counts)
    if order == "mixed":
        labels = generator(1, "order").permutation(labels)
    elif order == "rare first":
        labels = labels[np.argsort(np.array(counts)[labels], kind="stable")]
    else:
        labels = labels[np.argsort(-np.array(counts)[labels], kind="stable")]
    kept = kept_of(policy, labels, 200, 5, tasks=5)
    assert len(set(kept.tolist())) == 200
    held = np.bincount(labels[kept], minlength=5)
    shares = least_shares(counts, 200)
    assert shares == [51, 5, 51, 40, 51]
    assert (held >= shares).all()
    assert held.sum() == 200
    assert held.max() <= max(shares) + 1


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(30))
def test_every_class_keeps_its_samples_or_its_fair_share(seed: int, policy: Policy) -> None:
    random = generator(seed, "sizes")
    classes, capacity = int(random.integers(1, 9)), int(random.integers(9, 40))
    shares = random.dirichlet(np.full(classes, 0.3))
    labels = random.choice(classes, 400, p=shares).astype(np.int64)
    for tasks in (1, 5, 80):  # what a task ends with, or at any time
        end = 400 // tasks
        kept = kept_of(policy, labels, capacity, classes, seed, tasks=tasks, end=end)
        kept = kept[kept >= 0]
        assert len(set(kept.tolist())) == len(kept) == min(capacity, end)
        held = np.bincount(labels[kept], minlength=classes)
        counts = np.bincount(labels[:end], minlength=classes).tolist()
        assert (held >= least_shares(counts, capacity)).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_within_a_class_every_sample_is_kept_equally_often(policy: Policy) -> None:
    labels = np.array([0] * 6 + [1] * 2 + [0] * 3 + [2] + [0] * 3 + [1, 2] * 4)
    trials = 4_000
    times: Counter[int] = Counter()
    for seed in range(trials):
        # As epochs do, each trial has the samples in an order of its own, but new classes later.
        order = np.arange(23)
        if policy == "task by task":
            random = generator(seed, "order")
            order = np.concatenate([random.permutation(11), 11 + random.permutation(12)])
        kept = kept_of(policy, labels[order], 5, 3, seed, tasks=2)
        times.update(order[kept].tolist())
    for label in range(3):
        for part in (range(23),) if policy == "streaming" else (range(11), range(11, 23)):
            samples = [sample for sample in part if labels[sample] == label]
            if samples:
                seen = [times[sample] for sample in samples]
                assert p_value(seen, [sum(seen) / len(seen)] * len(seen)) > UNLIKELY, (label, seen)


def test_new_classes_get_their_share_step_by_step_while_a_task_lasts() -> None:
    labels = generator(0, "order").permutation(np.repeat([0, 1], 500))
    labels = np.concatenate([labels, 2 + labels])
    for come, share in ((1000, 0), (1250, 10), (1500, 20), (1750, 30), (2000, 40)):
        kept = kept_of("task by task", labels, 80, 4, tasks=2, end=come)
        held = np.bincount(labels[kept], minlength=4)
        assert abs(held[2:].sum() - share) <= 2, (come, held)
        assert abs(held[0] - held[1]) <= 2
        at_once = kept_of("streaming", labels, 80, 4, end=come)
        assert (come == 1000) or np.bincount(labels[at_once], minlength=4).tolist() == [20] * 4


@pytest.mark.parametrize("times", [1, 3])
def test_a_known_class_that_comes_again_stays_a_uniform_sample(times: int) -> None:
    before, again = 60, 60 * times
    labels = np.concatenate([np.repeat([0, 1], 60), np.zeros(again, dtype=np.int64)])
    old = [
        int((kept_of("task by task", labels, 40, 2, seed, tasks=1 + times) < 2 * before).sum())
        for seed in range(300)
    ]
    of_class = np.mean(old) - 20  # all of class 1 are old
    assert of_class == pytest.approx(20 * before / (before + again), abs=0.6)


@pytest.mark.parametrize("policy", POLICIES)
def test_more_classes_than_places_leave_one_sample_each_of_some(policy: Policy) -> None:
    kept = kept_of(policy, np.tile(np.arange(10), 20), 4, 10)
    assert len(set(kept.tolist())) == 4
    assert len(set((kept % 10).tolist())) == 4


def plan_of(
    labels: Integers, *, classes: Integers | None = None, offered: Integers | None = None,
    **changes: Any,
) -> Any:  # fmt: skip
    trials = len(labels)
    memory = reservoir(trials=trials, capacity=6, num_classes=3, balanced=True)
    if classes is not None:
        memory.labels = torch.from_numpy(classes).flatten()
    if offered is not None:
        memory.offered = torch.from_numpy(offered)
    fields: dict[str, Any] = {
        "seen": 0,
        "begin": 0,
        "draws": 2,
        "draw_size": 3,
        "seeds": range(trials),
        "key": (0, 0),
    }
    return memory.plan(torch.from_numpy(labels), [4, 4, 4, 4, 2], **(fields | changes))


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
        slots = task_slots(np.full(6, EMPTY), np.zeros(3, np.int64), labels[seed], numbers)
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
        if whole.kept(step) is not None:
            source, target = whole.kept(step)
            rows = torch.from_numpy(labels[:, 4 * step : 4 * step + sizes[step]].copy()).flatten()
            memory[target] = rows[source]
    offered = np.stack([np.bincount(own[: 4 * begin], minlength=3) for own in labels])
    rest = plan_of(labels, classes=memory.view(3, 6).numpy(), offered=offered, begin=begin)
    for step in range(begin, 5):
        assert rest.filled[step] == whole.filled[step]
        assert torch.equal(rest.draws(step), whole.draws(step))
        assert (rest.kept(step) is None) == (whole.kept(step) is None)
        if whole.kept(step) is not None:
            for ours, theirs in zip(rest.kept(step), whole.kept(step), strict=True):
                assert torch.equal(ours, theirs)


def test_a_sample_is_offered_once_in_the_first_epoch_of_its_task() -> None:
    later = plan_of(arriving(2), classes=np.tile([0, 0, 1, 1, 2, EMPTY], (2, 1)), key=(3, 1))
    assert not later.offers
    assert [later.kept(number) for number in range(5)] == [None] * 5
    assert later.filled == [5] * 6
