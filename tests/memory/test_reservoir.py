"""The reservoir: exact probabilities, uniform draws, and the plan against a slow reference."""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from remask.memory import Reservoir, ReservoirPlan
from remask.memory.reservoir import draw_distinct, offer_slots
from remask.randomness import generator

# Seeds are fixed, so a test either always passes or always fails. A p-value this small means that
# the distribution is wrong; an off-by-one gives less than 1e-6 in every test here.
UNLIKELY = 1e-3


def p_value(counts: Iterable[int], expected: Iterable[float]) -> float:
    """Pearson's chi-square test that counts come from the expected ones, all of them positive."""
    seen, due = np.array(list(counts), float), np.array(list(expected), float)
    assert len(seen) == len(due)
    assert seen.sum() == pytest.approx(due.sum())
    statistic = float(((seen - due) ** 2 / due).sum())
    freedom = torch.tensor((len(due) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2).double()))


def reservoir(**changes: Any) -> Reservoir:
    fields: dict[str, Any] = {"trials": 1, "capacity": 3, "input_shape": (), "num_classes": 1}
    fields |= {"input_type": torch.float32, "stores_logits": False}
    return Reservoir(**(fields | changes))


def plan(
    sizes: Sequence[int], *, capacity: int = 3, seeds: Sequence[int] = (0,), **changes: Any
) -> ReservoirPlan:
    memory = reservoir(trials=len(seeds), capacity=capacity)
    labels = torch.zeros(len(seeds), sum(sizes), dtype=torch.int64)
    fields: dict[str, Any] = {"seen": 0, "begin": 0, "draws": 1, "draw_size": 2, "key": (0, 0)}
    return memory.plan(labels, sizes, seeds=seeds, **(fields | changes))


def contents(planned: ReservoirPlan, sizes: Sequence[int], trials: int, capacity: int) -> Tensor:
    """Follow a plan: the number of the sample that ends in each slot, [S, M]; -1 = empty."""
    memory = torch.full((trials * capacity,), -1)
    start = 0
    for size, kept in zip(sizes, map(planned.kept, range(len(sizes))), strict=True):
        if kept is not None:
            source, target = kept
            memory[target] = start + source % size
        start += size
    return memory.view(trials, capacity)


# ---- Which samples are kept ---------------------------------------------------------------------


class Scripted:
    """Stands in for a random generator: answers what it is told, and notes what it was asked."""

    def __init__(self, answers: Sequence[int] | None) -> None:
        self.answers = answers
        self.highs: list[int] = []

    def integers(self, low: int, high: np.ndarray[Any, np.dtype[np.int64]]) -> Any:
        assert low == 0
        self.highs = high.tolist()
        return np.zeros_like(high) if self.answers is None else np.array(self.answers)


def exact_distribution(capacity: int, count: int) -> dict[tuple[int, ...], Fraction]:
    """Go through every answer the generator could give: final contents -> probability."""
    asked = Scripted(None)
    offer_slots(cast(np.random.Generator, asked), 0, count, capacity)
    ways = list(itertools.product(*map(range, asked.highs)))
    chances: Counter[tuple[int, ...]] = Counter()
    for answers in ways:
        slots = offer_slots(cast(np.random.Generator, Scripted(answers)), 0, count, capacity)
        memory = [-1] * capacity
        for sample, slot in enumerate(slots.tolist()):
            if slot >= 0:
                memory[slot] = sample
        chances[tuple(memory)] += 1
    return {memory: Fraction(n, len(ways)) for memory, n in chances.items()}


@pytest.mark.parametrize(("capacity", "count"), [(1, 5), (2, 5), (3, 6), (4, 4), (3, 2)])
def test_every_sample_is_kept_with_exactly_the_same_probability(capacity: int, count: int) -> None:
    chances = exact_distribution(capacity, count)
    for sample in range(count):
        kept = sum((p for memory, p in chances.items() if sample in memory), Fraction(0))
        assert kept == Fraction(min(capacity, count), count)


def test_every_set_of_samples_is_kept_with_exactly_the_same_probability() -> None:
    # More than equal inclusion: of 5 samples, each of the 10 pairs, 1/10.
    pairs: dict[frozenset[int], Fraction] = {}
    for memory, probability in exact_distribution(2, 5).items():
        pairs[frozenset(memory)] = pairs.get(frozenset(memory), Fraction(0)) + probability
    assert len(pairs) == 10
    assert set(pairs.values()) == {Fraction(1, 10)}


# ---- Which slots are drawn ----------------------------------------------------------------------


@pytest.mark.parametrize("filled", range(7))
@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_draw_has_distinct_filled_slots_and_no_more_than_there_are(
    filled: int, size: int
) -> None:
    draws = draw_distinct(generator(0, "test"), np.full(200, filled), size)
    assert draws.shape == (200, size)
    for draw in draws[:, : min(filled, size)].tolist():
        assert len(set(draw)) == min(filled, size)
        assert set(draw) <= set(range(filled))


def test_every_subset_is_drawn_equally_often_and_two_draws_are_independent() -> None:
    # A batch of 5 fills the memory, so the second step draws twice from slots 0..4.
    trials = 10_000
    planned = plan([5, 1], capacity=5, draws=2, seeds=range(trials))
    assert planned.draws(0) is None
    drawn = planned.draws(1)
    assert drawn is not None
    rows = drawn - 5 * torch.arange(trials)[:, None]
    assert rows.shape == (trials, 4)
    subsets = {frozenset(pair): i for i, pair in enumerate(itertools.combinations(range(5), 2))}
    table = np.zeros((10, 10), dtype=np.int64)
    for a, b, c, d in rows.tolist():
        table[subsets[frozenset((a, b))], subsets[frozenset((c, d))]] += 1
    assert p_value(table.sum(axis=1).tolist(), [trials / 10] * 10) > UNLIKELY
    assert p_value(table.sum(axis=0).tolist(), [trials / 10] * 10) > UNLIKELY
    assert p_value(table.flatten().tolist(), [trials / 100] * 100) > UNLIKELY


def test_draws_of_following_steps_and_epochs_are_independent_of_each_other() -> None:
    trials = 5_000
    first = plan([1, 1], seen=5, capacity=5, draw_size=1, seeds=range(trials), key=(0, 0))
    second = plan([1], seen=5, capacity=5, draw_size=1, seeds=range(trials), key=(0, 1))
    slots = []
    for drawn in [plan.draws(n) for plan in (first, second) for n in range(len(plan.filled) - 1)]:
        assert drawn is not None
        slots.append((drawn % 5).squeeze(1))
    for a, b in itertools.combinations(slots, 2):
        assert p_value(torch.bincount(5 * a + b, minlength=25).tolist(), [trials / 25] * 25) > (
            UNLIKELY
        )


def test_a_step_draws_from_what_was_there_before_its_own_batch() -> None:
    sizes, trials = [4, 4, 4, 3], 300
    planned = plan(sizes, capacity=10, draw_size=6, seeds=range(trials))
    assert planned.draws(0) is None
    for drawn, filled in zip(map(planned.draws, (1, 2, 3)), [4, 8, 10], strict=True):
        assert drawn is not None
        slots = drawn - 10 * torch.arange(trials)[:, None]
        assert slots.shape == (trials, min(6, filled))
        # All of it, and only that: every filled slot turns up, none beyond.
        assert sorted(set(slots.flatten().tolist())) == list(range(filled))


# ---- The plan against one sample at a time ------------------------------------------------------


@pytest.mark.parametrize("capacity", [1, 2, 7, 30, 200])
@pytest.mark.parametrize("batch", [1, 4, 7, 64])
def test_the_plan_equals_one_sample_at_a_time_over_epochs_and_tasks(
    capacity: int, batch: int
) -> None:
    seeds = [3, 8]
    rows = len(seeds) * capacity
    memory = reservoir(
        trials=2, capacity=capacity, input_shape=(1,), input_type=torch.uint8, num_classes=2
    )
    slow: list[list[int]] = [[] for _ in seeds]
    presented = 0
    for phase, count in enumerate([23, 9, 41]):
        full, rest = divmod(count, batch)
        sizes = [batch] * full + [rest] * (rest > 0)
        for epoch in range(3):
            key = (phase, epoch)
            planned = plan(sizes, capacity=capacity, seen=presented, seeds=seeds, key=key)
            drawn = [
                generator(seed, "reservoir", *key).integers(0, presented + 1 + np.arange(count))
                for seed in seeds
            ]
            start = 0
            for size, kept in zip(sizes, map(planned.kept, range(len(sizes))), strict=True):
                numbers = presented + start + torch.arange(size)
                labels = torch.stack([1000 + numbers, 5000 + numbers]).flatten()
                if kept is not None:
                    memory.insert(
                        kept,
                        rows=torch.arange(2 * size),
                        inputs=(labels % 251).to(torch.uint8)[:, None],
                        labels=labels,
                        logits=torch.zeros(2, size, 2),
                    )
                for trial, own in enumerate(slow):
                    for i in range(size):
                        label, place = int(labels[trial * size + i]), drawn[trial][start + i]
                        if presented + start + i < capacity:
                            own.append(label)
                        elif place < capacity:
                            own[place] = label
                start += size
            presented += count
            for trial, own in enumerate(slow):
                stored = memory.labels[trial * capacity : (trial + 1) * capacity].tolist()
                assert stored[: len(own)] == own
                assert not any(stored[len(own) :])
    assert len(memory.labels) == rows
    assert isinstance(memory.inputs, Tensor)
    filled = memory.labels > 0
    assert torch.equal(memory.inputs[filled, 0], (memory.labels[filled] % 251).to(torch.uint8))


# ---- What a slot holds --------------------------------------------------------------------------


@pytest.mark.parametrize("input_type", [torch.uint8, torch.float32])
@pytest.mark.parametrize("stores_logits", [True, False])
def test_an_insertion_copies_input_label_and_logits_to_the_slots_and_nowhere_else(
    stores_logits: bool, input_type: torch.dtype
) -> None:
    shape: dict[str, Any] = {"trials": 2, "capacity": 2, "input_shape": (1, 2), "num_classes": 3}
    memory = reservoir(input_type=input_type, stores_logits=stores_logits, **shape)
    inputs = torch.arange(12, dtype=input_type).reshape(6, 1, 2)
    labels = torch.tensor([10, 11, 12, 13, 14, 15])
    logits = torch.arange(12.0).reshape(2, 2, 3)
    # Trial 0 saw rows 4 and 1, trial 1 rows 0 and 5. Keep the second of trial 0 in its slot 0 and
    # the first of trial 1 in its slot 1 (row 3 of the memory).
    kept = torch.tensor([1, 2]), torch.tensor([0, 3])
    memory.insert(kept, torch.tensor([4, 1, 0, 5]), inputs, labels, logits)
    assert isinstance(memory.inputs, Tensor)
    assert memory.inputs.dtype == input_type
    assert memory.inputs.flatten(1).tolist() == [[2, 3], [0, 0], [0, 0], [0, 1]]
    assert memory.labels.tolist() == [11, 0, 0, 10]
    assert set(memory.state()) == {"inputs", "labels"} | ({"logits"} if stores_logits else set())
    if memory.logits is not None:
        assert memory.logits.tolist() == [[3, 4, 5], [0, 0, 0], [0, 0, 0], [6, 7, 8]]
