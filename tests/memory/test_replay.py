"""A replay memory by itself: what it keeps, draws, saves and refuses."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from remask.config import MemoryPolicy
from remask.memory import ReplayMemory, ReplayMemoryError
from tests.memory.test_reservoir import UNLIKELY, p_value

POLICIES = ["reservoir", "balanced", "merging"]


def numbered(start: int, stop: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Samples that carry their number, of classes in turn."""
    numbers = torch.arange(start, stop)
    return numbers.float().view(-1, 1), numbers % classes


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_drawn_was_added_together_and_no_sample_twice(policy: Any) -> None:
    memory = ReplayMemory(20, policy)
    for start in range(0, 100, 7):
        x, y = numbered(start, start + 7)
        memory.add(x, y, logits=torch.cat([x, -x], dim=1))
        assert len(memory) == min(20, start + 7)
        drawn = memory.draw(6)
        numbers = drawn.inputs.flatten()
        assert len({*numbers.tolist()}) == 6
        assert torch.equal(drawn.labels, numbers.long() % 3)
        assert drawn.logits is not None
        assert torch.equal(drawn.logits, torch.stack([numbers, -numbers], dim=1))
    assert len(memory.draw(1000).labels) == 20


def test_a_reservoir_keeps_every_sample_equally_often() -> None:
    times: Counter[int] = Counter()
    for seed in range(1_200):
        memory = ReplayMemory(4, seed=seed)
        for start, stop in ((0, 3), (3, 9), (9, 12)):
            memory.add(*numbered(start, stop))
        times.update(memory.draw(4).inputs.flatten().int().tolist())
    assert p_value([times[n] for n in range(12)], [400] * 12) > UNLIKELY


def test_every_sample_in_memory_is_drawn_equally_often() -> None:
    memory = ReplayMemory(8)
    memory.add(*numbered(0, 8))
    drawn = torch.cat([memory.draw(3).inputs for _ in range(2_000)]).flatten().long()
    assert p_value(torch.bincount(drawn, minlength=8).tolist(), [750] * 8) > UNLIKELY


def test_a_balanced_memory_keeps_rare_classes_and_any_labels() -> None:
    memory = ReplayMemory(30, "balanced")
    labels = torch.full((5_000,), 10**12)
    labels[[7, 8, 9, 4_000]] = -5
    labels[2_000:3_000] = 2
    for part in torch.split(torch.arange(5_000), 64):
        memory.add(part, labels[part])
    assert memory.class_counts() == {-5: 4, 2: 13, 10**12: 13}
    drawn = memory.draw(30)
    assert torch.equal(labels[drawn.inputs], drawn.labels)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_memory_that_was_saved_goes_on_with_the_same_samples(policy: Any, tmp_path: Path) -> None:
    def filled(stop: int) -> ReplayMemory:
        memory = ReplayMemory(4, policy, seed=3)
        for start in range(0, stop, 5):
            memory.add(*numbered(start, start + 5, classes=4))
            memory.draw(2)
        return memory

    for stop in (0, 5, 80):  # from 65 samples on, a merging memory merges
        whole, saved = filled(stop), filled(stop).state_dict()
        torch.save(saved, tmp_path / "a.pt")
        safetensors.torch.save_file(saved, tmp_path / "a.safetensors")
        for state in (
            torch.load(tmp_path / "a.pt", weights_only=True),
            safetensors.torch.load_file(tmp_path / "a.safetensors"),
        ):
            memory = ReplayMemory(4, policy, seed=3)
            memory.load_state_dict(state)
            again = filled(stop)
            for start in range(stop, stop + 40, 5):
                for each in (memory, again):
                    each.add(*numbered(start, start + 5, classes=4))
                ours, theirs = memory.draw(4), again.draw(4)
                assert torch.equal(ours.inputs, theirs.inputs)
        assert len(whole) == min(stop, 4)


def test_a_saved_state_is_a_copy() -> None:
    memory = ReplayMemory(3)
    memory.add(*numbered(0, 3))
    state = memory.state_dict()
    memory.add(*numbered(100, 200))
    assert state["inputs"].flatten().tolist() == [0, 1, 2]
    other = ReplayMemory(3)
    other.load_state_dict(state)
    other.add(*numbered(100, 200))
    assert state["inputs"].flatten().tolist() == [0, 1, 2]


def test_logits_may_get_wider_and_earlier_ones_are_zero_for_new_classes() -> None:
    memory = ReplayMemory(10)
    memory.add(*numbered(0, 2), logits=torch.ones(2, 3))
    memory.add(*numbered(2, 4), logits=torch.ones(2, 5))
    drawn = memory.draw(4)
    assert drawn.logits is not None
    early = drawn.inputs.flatten() < 2
    assert drawn.logits[early].tolist() == [[1, 1, 1, 0, 0]] * 2
    assert drawn.logits[~early].tolist() == [[1] * 5] * 2
    again = ReplayMemory(10)
    again.load_state_dict(memory.state_dict())
    again.add(*numbered(4, 5), logits=torch.ones(1, 6))
    with pytest.raises(ReplayMemoryError, match="at least 6 classes, as before"):
        again.add(*numbered(5, 6), logits=torch.ones(1, 5))


def test_nothing_of_the_graph_is_kept_and_what_is_drawn_may_be_changed() -> None:
    memory = ReplayMemory(4)
    x = torch.ones(2, 3, requires_grad=True)
    memory.add(x * 2, torch.tensor([0, 1]), logits=x * 3)
    drawn = memory.draw(2)
    assert drawn.logits is not None
    assert not drawn.inputs.requires_grad
    assert not drawn.logits.requires_grad
    drawn.inputs.zero_()
    assert memory.draw(2).inputs.sum() == 12


@pytest.mark.parametrize("kind", [torch.uint8, torch.float16, torch.float64, torch.int32])
def test_inputs_keep_their_type_and_shape(kind: torch.dtype) -> None:
    memory = ReplayMemory(4, device="cpu")
    memory.add(torch.ones(3, 2, 5, dtype=kind), np.array([1, 2, 3], dtype=np.int32))
    drawn = memory.draw(2)
    assert drawn.inputs.dtype == kind
    assert drawn.inputs.shape == (2, 2, 5)
    assert drawn.labels.dtype == torch.int64
    assert drawn.logits is None


def test_samples_live_on_the_device_of_the_first_ones() -> None:
    memory = ReplayMemory(4)
    memory.add(torch.ones(2, 3, device="meta"), torch.tensor([0, 1]))
    memory.add(torch.ones(2, 3), torch.tensor([0, 1]))
    assert memory.draw(2).inputs.device.type == "meta"
    assert ReplayMemory(4, device="meta") is not None


@pytest.mark.parametrize(
    ("x", "y", "logits", "message"),
    [
        (torch.ones(2, 3), torch.tensor([0]), None, r"one label per sample; got inputs: \[2, 3\]"),
        (torch.ones(2, 3), torch.tensor([0.0, 1.0]), None, "labels must be integers"),
        (torch.ones(2, 4), torch.tensor([0, 1]), None, r"holds samples torch.float32 \[3\]"),
        (torch.ones(2, 3).int(), torch.tensor([0, 1]), None, "got torch.int32"),
        (torch.ones(2, 3), torch.tensor([0, 1]), torch.ones(2), r"logits must be \[2, K\]"),
        (torch.ones(2, 3), torch.tensor([0, 1]), torch.ones(2, 4), "were added without logits"),
    ],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_samples_that_do_not_fit_are_refused_and_change_nothing(
    policy: Any, x: Tensor, y: Tensor, logits: Tensor | None, message: str
) -> None:
    memory = ReplayMemory(4, policy)
    memory.add(torch.zeros(3, 3), torch.tensor([0, 1, 1]))
    before = memory.state_dict()
    with pytest.raises(ReplayMemoryError, match=message):
        memory.add(x, y, logits)
    after = memory.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_drawing_from_an_empty_memory_raises() -> None:
    memory = ReplayMemory(4)
    with pytest.raises(ReplayMemoryError, match="the memory is empty; add samples first"):
        memory.draw(1)
    assert len(memory) == 0
    assert memory.class_counts() == {}


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ReplayMemoryError, match="at least 1, got 0"):
        ReplayMemory(0)
    with pytest.raises(ReplayMemoryError, match="reservoir, balanced, merging, got 'fifo'"):
        ReplayMemory(3, "fifo")  # type: ignore[arg-type]
    with pytest.raises(ReplayMemoryError, match="capacity must be a whole number, got 2"):
        ReplayMemory(2.5)  # type: ignore[arg-type]
    with pytest.raises(ReplayMemoryError, match="capacity must be a whole number, got '3'"):
        ReplayMemory("3")  # type: ignore[arg-type]
    memory = ReplayMemory(4)
    memory.add(*numbered(0, 4))
    with pytest.raises(ReplayMemoryError, match="n must be a whole number, got 2"):
        memory.draw(2.0)  # type: ignore[arg-type]
    with pytest.raises(ReplayMemoryError, match="capacity must be a whole number, got 2"):
        memory.resize(2.5)  # type: ignore[arg-type]
    assert (memory.capacity, len(memory)) == (4, 4)


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    memory = ReplayMemory(4, "balanced")
    memory.add(*numbered(0, 6))
    good = memory.state_dict()
    broken: list[dict[str, Tensor]] = [
        {},
        {**good, "more": torch.zeros(1)},
        {**good, "made_with": torch.tensor([5, 1, 0])},
        {**good, "inputs": good["inputs"][:2]},
        {**good, "labels": good["labels"] + 50},
        {**good, "counters": torch.tensor([2, 1, 0])},
    ]
    for state in broken:
        with pytest.raises(ReplayMemoryError):
            memory.load_state_dict(state)
        now = memory.state_dict()
        assert all(torch.equal(good[name], now[name]) for name in good)


def tokens(first: int, count: int) -> dict[str, Tensor]:
    numbers = torch.arange(first, first + count)
    return {"input_ids": numbers[:, None].repeat(1, 3), "mask": numbers[:, None] % 2 == 0}


@pytest.mark.parametrize("policy", ["reservoir", "balanced"])
def test_dicts_of_tensors_are_kept_and_drawn_as_dicts(policy: MemoryPolicy) -> None:
    plain, memory = ReplayMemory(10, policy), ReplayMemory(10, policy)
    for first in range(0, 60, 6):
        labels = torch.arange(first, first + 6) % 3
        plain.add(torch.arange(first, first + 6), labels)
        memory.add(tokens(first, 6), labels)
    restored = ReplayMemory(10, policy)
    restored.load_state_dict(memory.state_dict())
    expected = plain.draw(7)
    for each in (memory, restored):
        drawn = each.draw(7)
        assert torch.equal(drawn.labels, expected.labels)
        assert {*drawn.inputs} == {"input_ids", "mask"}
        assert torch.equal(drawn.inputs["input_ids"], expected.inputs[:, None].repeat(1, 3))
        assert torch.equal(drawn.inputs["mask"], expected.inputs[:, None] % 2 == 0)


def test_what_is_not_a_tensor_is_refused_with_a_message() -> None:
    memory = ReplayMemory(4)
    labels = torch.zeros(2, dtype=torch.int64)
    for x, message in (
        (["a text", "another"], r"x is a list that torch cannot convert.*tokenise texts"),
        ({"text": ["a", "b"]}, r"x\['text'\] is a list that torch"),
        ({}, "non-empty dict"),
        (
            {"a": torch.zeros(2), "b": torch.zeros(3)},
            r"got inputs/a: \[2\], inputs/b: \[3\], labels: \[2\]",
        ),
    ):
        with pytest.raises(ReplayMemoryError, match=message):
            memory.add(x, labels)
    with pytest.raises(ReplayMemoryError, match="y is a list that torch cannot convert"):
        memory.add(torch.zeros(2), ["cat", "dog"])
    with pytest.raises(ReplayMemoryError, match="logits must be a tensor, got list"):
        memory.add(torch.zeros(2), labels, [[0.0], [1.0]])  # type: ignore[arg-type]
    with pytest.raises(
        ReplayMemoryError, match="needs a tensor x of floating point or uint8, got a: "
    ):
        ReplayMemory(4, "merging").add({"a": torch.zeros(2)}, labels)
    assert len(memory) == 0
    memory.add({"a": torch.zeros(2)}, labels)
    for other in (
        {"b": torch.zeros(2)},
        torch.zeros(2),
        {"a": torch.zeros(2), "b": torch.zeros(2)},
    ):
        with pytest.raises(ReplayMemoryError, match="the memory holds samples a: "):
            memory.add(other, labels)
    assert len(memory) == 2


def test_dense_labels_are_kept_with_their_samples_and_logits() -> None:
    memory = ReplayMemory(6)
    for start in range(0, 40, 5):
        x, y = numbered(start, start + 5)
        maps = y[:, None, None].expand(5, 2, 3).clone()
        maps[:, 0, 0] = 9
        memory.add(x, maps, logits=x[:, :, None, None].expand(5, 4, 2, 3))
    drawn = memory.draw(6)
    assert drawn.labels.shape == (6, 2, 3)
    assert torch.equal(drawn.labels[:, 1, 1], drawn.inputs.flatten().long() % 3)
    assert drawn.logits is not None
    assert torch.equal(drawn.logits[:, 0, 0, 0], drawn.inputs.flatten())
    counts = memory.class_counts()
    assert counts[9] == 6
    assert counts[0] + counts.get(1, 0) + counts.get(2, 0) == 6
    memory.add(drawn.inputs[:1], drawn.labels[:1], logits=torch.ones(1, 7, 2, 3))
    assert memory.draw(6).logits.shape == (6, 7, 2, 3)  # type: ignore[union-attr]
    count = memory.class_counts()[0]
    assert memory.forget(0) == count == 6 - len(memory) > 0
    assert 0 not in memory.class_counts()
    with pytest.raises(ReplayMemoryError, match='"balanced" needs one label per sample'):
        ReplayMemory(6, "balanced").add(*drawn[:2])
    with pytest.raises(ReplayMemoryError, match=r"labels \[2, 3\], got torch.float32 \[1\]"):
        memory.add(*numbered(0, 5), logits=torch.ones(5, 7))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_forgotten_class_is_gone_and_its_slots_are_filled_again(policy: Any) -> None:
    memory = ReplayMemory(12, policy)
    assert memory.forget(1) == 0
    for start in range(0, 60, 6):
        memory.add(*numbered(start, start + 6))
    before = memory.class_counts()
    assert memory.forget(1) == before[1]
    assert memory.class_counts() == {0: before[0], 2: before[2]}
    assert len(memory) == 12 - before[1]
    state = memory.state_dict()
    assert 1 not in state["classes"]
    again = ReplayMemory(12, policy)
    again.load_state_dict(state)
    for each in (memory, again):
        each.add(torch.full((before[1], 1), 70.0), torch.full((before[1],), 7))
        assert each.class_counts() == {0: before[0], 2: before[2], 7: before[1]}
        for start in range(100, 200, 6):
            each.add(*numbered(start, start + 6, classes=2))
        assert len(each) == 12
    assert torch.equal(memory.draw(12).inputs, again.draw(12).inputs)
    for label in (0, 1, 2, 7):
        memory.forget(label)
    assert len(memory) == 0
    memory.load_state_dict(memory.state_dict())
    memory.resize(5)
    memory.add(*numbered(0, 2))
    assert memory.class_counts() == {0: 1, 1: 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_memory_may_shrink_and_grow(policy: Any) -> None:
    memory = ReplayMemory(30, policy, seed=1)
    x, y = numbered(0, 100)
    y[:94] = 0
    memory.add(x, y, logits=x)
    held = set(memory.draw(30).inputs.flatten().tolist())
    memory.resize(9)
    drawn = memory.draw(100)
    assert len(memory) == memory.capacity == len(drawn.labels) == 9
    assert {*drawn.inputs.flatten().tolist()} < held
    assert torch.equal(torch.as_tensor(drawn.logits), drawn.inputs)
    if policy == "balanced":
        assert {*memory.class_counts().values()} == {2, 3, 4} or memory.class_counts()[0] >= 3
    memory.resize(20)
    assert len(memory) == 9
    memory.add(*numbered(200, 211), logits=torch.zeros(11, 1))
    assert len(memory) == 20
    again = ReplayMemory(20, policy, seed=1)
    again.load_state_dict(memory.state_dict())
    for each in (memory, again):
        each.add(*numbered(300, 350), logits=torch.zeros(50, 1))
    assert torch.equal(memory.draw(20).inputs, again.draw(20).inputs)
    with pytest.raises(ReplayMemoryError, match="capacity must be at least 1, got 0"):
        memory.resize(0)


def test_a_smaller_balanced_memory_keeps_fair_shares() -> None:
    memory = ReplayMemory(30, "balanced")
    memory.add(torch.arange(60), torch.tensor([0] * 40 + [1] * 2 + [2] * 18))
    assert memory.class_counts() == {0: 14, 1: 2, 2: 14}
    memory.resize(10)
    assert memory.class_counts() == {0: 4, 1: 2, 2: 4}


def test_a_memory_yields_its_samples_and_prints_what_it_holds() -> None:
    memory = ReplayMemory(4, "balanced", seed=3)
    assert repr(memory) == "ReplayMemory(4, 'balanced', seed=3): empty"
    assert list(memory) == []
    memory.add(tokens(0, 3), torch.tensor([0, 1, 1]), logits=torch.eye(3))
    assert repr(memory) == (
        "ReplayMemory(4, 'balanced', seed=3): 3 samples of 2 classes, "
        "input_ids: torch.int64 [3], mask: torch.bool [1]"
    )
    rows = list(memory)
    assert [int(row.labels) for row in rows] == [0, 1, 1]
    assert rows[2].inputs["input_ids"].tolist() == [2, 2, 2]
    assert torch.equal(torch.stack([row.logits for row in rows]), torch.eye(3))  # type: ignore[misc]
    rows[0].inputs["input_ids"].zero_()
    assert [row.inputs["input_ids"][0] for row in memory] == [0, 1, 2]
