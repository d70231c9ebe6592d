"""Tasks that share classes: domains of the same classes, and blurred borders."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from remask.data.benchmark import Benchmark, load_benchmark, resplit, same_benchmark, save_benchmark
from remask.data.classes import SplitError
from remask.data.domains import in_domains, permute, rotate
from remask.engine import TrialStack
from remask.engine.validation import ContradictionError
from remask.methods import METHODS
from tests.engine.stack_samples import MakeConfig, assert_same, finish, learn_all, net_of, small_mlp

TASKS = ((0, 1, 2, 3, 4, 5), (0, 1, 2), (2, 3, 4, 5))


@pytest.fixture
def shared(tiny_benchmark: Callable[..., Benchmark]) -> Benchmark:
    """All six classes first, then three of them, then four, one of which was in the second, too."""
    whole = tiny_benchmark(((0, 1, 2, 3, 4, 5),))

    def tasks_of(labels: Tensor) -> Tensor:
        tasks = torch.zeros_like(labels)
        for label in range(6):
            having = [number for number, classes in enumerate(TASKS) if label in classes]
            rows = (labels == label).nonzero().flatten()
            tasks[rows] = torch.tensor(having)[torch.arange(len(rows)) % len(having)]
        return tasks

    return replace(
        whole,
        tasks=TASKS,
        train_tasks=tasks_of(whole.train_labels),
        test_tasks=tasks_of(whole.test_labels),
    )


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"joint"}))
def test_a_benchmark_whose_tasks_share_classes_equals_the_same_tasks_one_by_one(
    method: str, config: MakeConfig, shared: Benchmark
) -> None:
    single = config(method=method)
    whole = finish(TrialStack([single], shared, build_net=small_mlp))
    stack = learn_all(TrialStack([single], whole.data, build_net=small_mlp), shared)
    assert_same(net_of(whole), net_of(stack))
    (record,), (again,) = whole.results(), stack.results()
    np.testing.assert_array_equal(record.class_il, again.class_il)
    np.testing.assert_array_equal(record.task_il, again.task_il)
    assert record.tasks == TASKS


@pytest.mark.parametrize("changes", [{"validation": 0.3}, {"share": 0.5}, {"mask": "auto"}])
def test_shared_classes_work_with_held_out_data_and_masks(
    changes: dict[str, Any], config: MakeConfig, shared: Benchmark
) -> None:
    configs = [config(method="er", buffer=30, seed=seed, **changes) for seed in (0, 1)]
    stack = finish(TrialStack(configs, shared, build_net=small_mlp))
    alone = finish(TrialStack(configs[1:], shared, build_net=small_mlp))
    for record in stack.results():
        assert np.isfinite(np.array(record.class_il)[np.tril_indices(3)]).all()
    assert stack.results()[1].class_il == alone.results()[0].class_il
    assert stack.results()[1].validation_class_il == alone.results()[0].validation_class_il


def test_in_a_task_of_all_classes_a_mask_changes_nothing(
    config: MakeConfig, shared: Benchmark
) -> None:
    labels = (shared.train_labels, shared.test_labels)
    every = (tuple(range(6)),) * 2
    halves = [torch.zeros_like(own) for own in labels]
    for half, own in zip(halves, labels, strict=True):
        for label in range(6):
            half[(own == label).nonzero().flatten()[::2]] = 1
    both = replace(shared, tasks=every, train_tasks=halves[0], test_tasks=halves[1])
    configs = [config(method="er", mask=mask) for mask in (None, -1.0)]
    plain, masked = finish(TrialStack(configs, both, build_net=small_mlp)).results()
    assert plain.class_il == masked.class_il == plain.task_il


def test_tasks_of_samples_are_checked_kept_and_not_split_again(
    shared: Benchmark, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shared.num_classes == 6
    train, test = shared.train_tasks, shared.test_tasks
    assert train is not None
    assert test is not None
    rows = torch.cat([shared.train_indices(number) for number in range(3)])
    assert rows.sort().values.tolist() == list(range(len(shared.train_labels)))
    with pytest.raises(ValueError, match="give both train_tasks and test_tasks"):
        replace(shared, test_tasks=None)
    with pytest.raises(ValueError, match="must be int64, one for each"):
        replace(shared, train_tasks=train[1:])
    with pytest.raises(ValueError, match=r"task 1 has train data of \[0, 1, 2\], not of"):
        replace(shared, tasks=(TASKS[0], (0, 1), TASKS[2]))
    beyond = train.clone()
    beyond[rows[0]] = 7
    with pytest.raises(ValueError, match=r"train_tasks must be in 0\.\.2"):
        replace(shared, train_tasks=beyond)
    with pytest.raises(SplitError, match="share classes, so tasks cannot be changed"):
        resplit(shared, tasks=2)
    monkeypatch.setenv("REMASK_DATA", str(tmp_path))
    assert same_benchmark(load_benchmark(save_benchmark(shared)), shared)
    whole = replace(shared, train_tasks=None, test_tasks=None, tasks=TASKS[:1])
    assert not same_benchmark(shared, whole)


def test_images_are_permuted_and_rotated_by_task() -> None:
    images = torch.arange(256, dtype=torch.uint8).view(4, 1, 8, 8)
    changed, tasks = in_domains(images, "permuted", 3)
    assert tasks.tolist() == [0, 1, 2, 0]
    assert torch.equal(changed[0], images[0])
    assert torch.equal(changed[3], images[3])
    assert changed[1].flatten().sort().values.tolist() == images[1].flatten().tolist()
    assert not torch.equal(permute(images, 1), permute(images, 2))
    assert torch.equal(rotate(images, 0), images)
    assert torch.equal(rotate(images, 90), images.rot90(1, (2, 3)))
    assert torch.equal(rotate(images, 180), images.flip(2, 3))


@pytest.mark.parametrize("name", ["permuted-mnist", "rotated-mnist"])
def test_a_benchmark_of_domains_has_all_classes_in_each_of_its_20_tasks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = (
        np.zeros((400, 1, 4, 4), np.uint8),
        np.repeat(np.arange(10, dtype=np.uint8), 40),
    )
    arrays = {
        f"{part}_{kind}": values
        for part in ("train", "test")
        for kind, values in (("images", images), ("labels", labels))
    }
    monkeypatch.setattr("remask.data.benchmark.load", lambda *_: arrays)
    benchmark = load_benchmark(name)
    assert benchmark.tasks == (tuple(range(10)),) * 20
    assert benchmark.train_tasks is not None
    assert benchmark.train_tasks.bincount().tolist() == [20] * 20


def test_blurred_borders_move_a_share_of_each_class_to_the_tasks_beside_its_own(
    config: MakeConfig, digits: Benchmark
) -> None:
    blurred = resplit(digits, blur=0.1, limit=60)
    plain = resplit(digits, limit=60)
    assert blurred.tasks == ((0, 1, 2, 3), (0, 1, 2, 3, 4, 5), (2, 3, 4, 5, 6, 7),
                             (4, 5, 6, 7, 8, 9), (6, 7, 8, 9))  # fmt: skip
    for number in range(5):
        labels = blurred.train_labels[blurred.train_indices(number)]
        own = (labels // 2 == number).sum()
        beside = torch.bincount((labels // 2 - number).abs())
        assert own == 2 * 54
        assert beside.tolist() == [108, 18 if number in (1, 3) else 12 if number == 2 else 6]
        assert torch.equal(blurred.test_indices(number), plain.test_indices(number))
    stack = finish(
        TrialStack([config(benchmark="split-digits", method="er", mask=-1.0, blur=0.1, limit=60)],
                   blurred, build_net=small_mlp)
    )  # fmt: skip
    assert np.isfinite(np.array(stack.results()[0].class_il)[np.tril_indices(5)]).all()
    with pytest.raises(ContradictionError, match=r"loaded with blur=0\.1"):
        TrialStack([config(benchmark="split-digits")], resplit(digits, blur=0.1))
    with pytest.raises(ContradictionError, match="loaded without blur"):
        TrialStack([config(benchmark="split-digits", blur=0.1)], digits)
