"""Streams without told boundaries, and benchmarks dealt anew, from config to results."""

import torch

from remask.data.benchmark import load_benchmark
from remask.engine import TrialStack
from remask.experiments.configs import trial_configs
from remask.experiments.jobs import benchmark_of
from remask.methods import ER, Step

INF = float("inf")


class Watched(ER):
    """ER that notes what it was shown."""

    seen: list[tuple[torch.Tensor, torch.Tensor]]

    def loss(self, step: Step) -> torch.Tensor:
        assert step.active is not None
        self.seen.append((step.active.clone(), step.stream.labels.clone()))
        return super().loss(step)


def _watch(task_free: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    configs = trial_configs(
        benchmark="split-digits",
        method="er",
        masks=[-INF, None],
        seeds=[3],
        overrides={"task_free": task_free, "epochs": 1, "batch": 3},
    )
    Watched.seen = []
    for _ in TrialStack(configs, load_benchmark("split-digits"), method=Watched).run():
        pass
    return Watched.seen


def test_without_tasks_the_active_classes_are_those_of_the_batch() -> None:
    sizes = set()
    for active, labels in _watch(task_free=True):
        masked, unmasked = active.squeeze(1)
        assert masked.nonzero().flatten().tolist() == sorted(set(labels[0].tolist()))
        assert unmasked.all()
        sizes.add(int(masked.sum()))
    assert sizes == {1, 2}  # some batches of three hold one class only


def test_with_tasks_the_active_classes_are_those_of_the_task() -> None:
    assert {int(active[0].sum()) for active, _ in _watch(task_free=False)} == {2}


def test_a_trial_is_dealt_the_tasks_its_config_asks_for() -> None:
    (config,) = trial_configs(
        benchmark="split-digits",
        method="er",
        seeds=[0],
        overrides={"tasks": 3, "class_order": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0], "limit": 20},
    )
    benchmark = benchmark_of(config)
    assert benchmark.tasks == ((9, 8, 7, 6), (5, 4, 3), (2, 1, 0))
    assert len(benchmark.train_labels) == 200
    stack = TrialStack([config], benchmark)
    for _ in stack.run():
        pass
    (result,) = stack.results()
    assert len(result.class_il) == 3
    assert all(0 <= accuracy <= 100 for accuracy in result.class_il[-1])


def test_the_image_benchmarks_come_with_the_papers_net_and_schedule() -> None:
    (cifar100,) = trial_configs(benchmark="split-cifar100", method="mser", buffer=200, seeds=[0])
    assert (cifar100.net, cifar100.epochs, cifar100.lr_drops) == ("resnet18", 50, (35, 45))
    (tiny,) = trial_configs(benchmark="split-tiny-imagenet", method="derpp", seeds=[0])
    assert (tiny.net, tiny.epochs, tiny.lr_drops, tiny.batch) == ("resnet18", 100, (), 32)
    (short,) = trial_configs(
        benchmark="split-cifar100", method="er", seeds=[0], overrides={"epochs": 1}
    )
    assert short.lr_drops == ()
    (fashion,) = trial_configs(benchmark="split-fashion-mnist", method="er", seeds=[0])
    (mnist,) = trial_configs(benchmark="split-mnist", method="er", seeds=[0])
    assert fashion == mnist.model_copy(update={"benchmark": "split-fashion-mnist"})
