"""The online protocol: pixels in [-1, 1], separate forwards, summed losses; shares of the data."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import TrialStack
from remask.methods import Method, Step, find_method
from tests.engine.stack_samples import MakeConfig, assert_same, batch_normed, net_of, snapshot

Seen = tuple[Tensor, Tensor, Tensor | None]  # inputs, labels, stored logits of one batch


def watched(method: str, steps: list[list[Seen]]) -> type[Method]:
    """The method, with the batches of every step collected."""
    base = find_method(method)

    class Watched(base):  # type: ignore[misc, valid-type]
        def after_step(self, step: Step) -> None:
            stored = base.stores_logits
            steps.append(
                [(step.stream.inputs[0], step.stream.labels[0], None)]
                + [(r.inputs[0], r.labels[0], r.recorded[0] if stored else None)
                   for r in step.replays]
            )  # fmt: skip
            super().after_step(step)

    return Watched


@pytest.mark.parametrize(("method", "mask"), [("er", None), ("er", -1.0), ("derpp", -torch.inf)])
def test_stream_and_replay_have_their_own_forward_and_their_losses_are_summed(
    method: str, mask: float | None, config: MakeConfig, tiny: Benchmark
) -> None:
    single = config(method=method, mask=mask, protocol="online", augment=False)
    steps: list[list[Seen]] = []
    stack = TrialStack([single], tiny, method=watched(method, steps), build_net=batch_normed)
    net = batch_normed(tiny.input_shape, tiny.num_classes).train()
    own = list(tiny.tasks[0])
    run = stack.run()
    for number in range(4):
        before = {n[4:]: t[0] for n, t in snapshot(stack).items() if n.startswith("net/")}
        weights = {n: before[n].clone().requires_grad_() for n, _ in net.named_parameters()}

        def logits(inputs: Tensor, weights: dict[str, Tensor] = weights) -> Tensor:
            said: Tensor = functional_call(net, weights, (inputs,))
            return said

        next(run)
        (inputs, labels, _), *replays = steps[number]
        masked = logits(inputs)
        if mask is not None:
            absent = torch.ones(tiny.num_classes, dtype=torch.bool)
            absent[own] = False
            masked = masked.masked_fill(absent, mask)
        loss = F.cross_entropy(masked, labels)
        if replays and method == "er":
            ((images, classes, _),) = replays
            loss = loss + F.cross_entropy(logits(images), classes)
        elif replays:
            (first, _, stored), (second, classes, _) = replays
            recalled, relearnt = torch.split(logits(torch.cat([first, second])), len(first))
            assert stored is not None
            loss = loss + single.alpha * F.mse_loss(recalled, stored)
            loss = loss + single.beta * F.cross_entropy(relearnt, classes)
        gradients = torch.autograd.grad(loss, list(weights.values()))
        for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
            after = stack.state()[f"net/{name}"][0]
            torch.testing.assert_close(after, weight.detach() - single.lr * gradient, msg=name)
    assert len(steps[3]) == find_method(method).draws + 1


def _inputs_of_the_first_step(config: TrialConfig, benchmark: Benchmark) -> Tensor:
    steps: list[list[Seen]] = []
    kind = watched(config.method, steps)
    next(TrialStack([config], benchmark, method=kind, build_net=batch_normed).run())
    return steps[0][0][0]


def test_pixels_lie_in_minus_one_to_one_and_the_border_of_a_crop_is_minus_one(
    config: MakeConfig, tiny: Benchmark
) -> None:
    bright = replace(
        tiny,
        train_inputs=torch.full_like(tiny.train_inputs, 255),
        mean=(0.3,),
        std=(0.2,),
        crop_padding=2,
    )
    online: dict[str, Any] = {"method": "er", "protocol": "online"}
    assert set(_inputs_of_the_first_step(config(**online), bright).flatten().tolist()) == {-1, 1}
    plain = _inputs_of_the_first_step(config(**online, augment=False), bright)
    assert set(plain.flatten().tolist()) == {1}
    usual = _inputs_of_the_first_step(config(method="er", augment=False), bright)
    torch.testing.assert_close(usual, torch.full_like(usual, 0.7 / 0.2))


def test_a_share_is_drawn_by_the_seed_and_leaves_the_test_data_complete(
    config: MakeConfig, tiny: Benchmark
) -> None:
    configs = [config(method="er", share=0.5, seed=seed) for seed in (0, 1)]
    whole = TrialStack([config(method="er")], tiny, build_net=batch_normed)
    stack = TrialStack(configs, tiny, build_net=batch_normed)
    sizes = torch.bincount(tiny.train_labels)
    learnt = sizes - (sizes / 2).round()
    assert [len(task.rows) for task in stack.tasks] == [
        int(learnt[list(task)].sum()) for task in tiny.tasks
    ]
    results = stack.finish()
    alone = TrialStack(configs[1:], tiny, build_net=batch_normed)
    alone.finish()
    assert_same({n: t[1:] for n, t in net_of(stack).items()}, net_of(alone))
    assert results[0].class_il != results[1].class_il
    # 6 test samples of class 3 and 3 of class 0: percentages are multiples of 100 / 9.
    whole.finish()
    for record in (*results, *whole.results()):
        assert record.task_il[0][0] * 9 / 100 == pytest.approx(round(record.task_il[0][0] * 0.09))
