"""Steps by hand in both protocols; the online protocol's pixels; shares of the data."""

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
from tests.engine.stack_samples import MakeConfig, assert_same, batch_normed, net_of

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


@pytest.mark.parametrize("protocol", ["paper", "online"])
@pytest.mark.parametrize(
    ("method", "mask"), [("er", None), ("er", -1.0), ("der", -1.0), ("derpp", -torch.inf)]
)
def test_a_step_with_batch_statistics_is_the_one_by_hand(
    method: str, mask: float | None, protocol: str, config: MakeConfig, tiny: Benchmark
) -> None:
    single = config(method=method, mask=mask, protocol=protocol, augment=False)
    steps: list[list[Seen]] = []
    stack = TrialStack([single], tiny, method=watched(method, steps), build_net=batch_normed)
    net = batch_normed(tiny.input_shape, tiny.num_classes).train()
    absent = torch.ones(tiny.num_classes, dtype=torch.bool)
    absent[list(tiny.tasks[0])] = False
    arrived: dict[bytes, Tensor] = {}
    run = stack.run()
    for number in range(4):
        before = {name[4:]: tensor[0] for name, tensor in net_of(stack).items()}
        weights = {n: before[n].clone().requires_grad_() for n, _ in net.named_parameters()}
        next(run)
        (inputs, labels, _), *replays = steps[number]
        batches = [inputs, *(images for images, _, _ in replays)]
        if protocol == "online":
            forwards = [batches[:1], batches[1:]]
        else:
            forwards = [batches] if method == "er" else [[batch] for batch in batches]
        logits: list[Tensor] = []
        for parts in filter(None, forwards):
            said: Tensor = functional_call(net, weights, (torch.cat(parts),))
            logits += torch.split(said, [len(part) for part in parts])

        stream = logits[0] if mask is None else logits[0].masked_fill(absent, mask)
        losses = [F.cross_entropy(stream, labels)]
        for place, (images, classes, stored) in enumerate(replays):
            if stored is not None and place == 0:
                losses.append(single.alpha * F.mse_loss(logits[1], stored))
                for image, kept in zip(images, stored, strict=True):
                    torch.testing.assert_close(kept, arrived[image.numpy().tobytes()])
            else:
                weight = 1.0 if stored is None else single.beta
                losses.append(weight * F.cross_entropy(logits[1 + place], classes))
        loss = torch.stack(losses).sum()
        if protocol == "paper" and method == "er":  # one mean over all samples
            every = torch.cat([labels, *(classes for _, classes, _ in replays)])
            loss = F.cross_entropy(torch.cat([stream, *logits[1:]]), every)
        gradients = torch.autograd.grad(loss, list(weights.values()))
        for (name, value), gradient in zip(weights.items(), gradients, strict=True):
            after = stack.state()[f"net/{name}"][0]
            torch.testing.assert_close(after, value.detach() - single.lr * gradient, msg=name)
        for image, own in zip(inputs, logits[0].detach(), strict=True):
            arrived[image.numpy().tobytes()] = own
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
