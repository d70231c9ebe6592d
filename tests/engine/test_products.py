"""Products of stacked matrices, by MKL and by oneDNN."""

import pytest
import torch
from torch import Tensor

from remask.benchmarks import Benchmark, split_classes
from remask.config import COMMON_WEIGHTS, TrialConfig
from remask.engine import TrialStack, products
from remask.methods import METHODS
from tests.engine.stack_samples import finish

SHAPES = [(96, 784, 100), (512, 100, 100), (1024, 300, 17)]  # rows, in, out


@pytest.fixture(params=[True, False], ids=["onednn", "mkl"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways, whatever the processor."""
    if request.param and products._OPERATOR is None:
        pytest.skip("this torch has no operator for it")
    monkeypatch.setattr(products, "_mkl_leaves_avx512_unused", lambda: request.param)
    return bool(request.param)


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(("rows", "width", "out"), SHAPES)
@pytest.mark.usefixtures("library")
def test_every_product_is_what_double_precision_says(rows: int, width: int, out: int) -> None:
    inputs, weight, bias = _random(3, rows, width), _random(3, out, width), _random(3, out)
    slope = _random(3, rows, out)
    exact = inputs.double() @ weight.double().mT
    torch.testing.assert_close(
        products.linear(inputs, weight, bias).double(),
        exact + bias.double().unsqueeze(1),
        rtol=1e-5,
        atol=1e-3,
    )
    torch.testing.assert_close(
        products.product(inputs, weight.mT).double(), exact, rtol=1e-5, atol=1e-3
    )
    written = slope.double().mT @ inputs.double()
    torch.testing.assert_close(
        products.product(slope.mT, inputs).double(), written, rtol=1e-5, atol=1e-3
    )
    total = weight.clone()
    products.add_product_(total, slope.mT, inputs)
    torch.testing.assert_close(total.double(), weight.double() + written, rtol=1e-5, atol=1e-3)


@pytest.mark.usefixtures("library")
def test_a_trial_has_the_same_bits_alone_and_in_a_stack() -> None:
    inputs, weight, bias = _random(3, 96, 784), _random(3, 100, 784), _random(3, 100)
    slope = _random(3, 96, 100)
    together, total = products.linear(inputs, weight, bias), weight.clone()
    products.add_product_(total, slope.mT, inputs)
    for trial in range(3):
        own = slice(trial, trial + 1)
        alone = weight[own].clone()
        products.add_product_(alone, slope[own].mT.clone(), inputs[own].clone())
        assert torch.equal(alone, total[own])
        assert torch.equal(
            products.linear(inputs[own].clone(), weight[own], bias[own]), together[own]
        )


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("method", ["derpp", "agem", "gem", "gss", "hal"])
def test_a_trial_with_large_products_is_the_same_alone_and_in_a_stack(method: str) -> None:
    benchmark = _random_digits()
    configs = [
        TrialConfig(
            benchmark="random",
            method=method,
            buffer=200,
            seed=seed,
            lr=0.05,
            batch=50,
            replay_batch=64 if METHODS[method].uses_replay_batch() else 0,
            epochs=1,
            alpha=0.2,
            beta=0.5,
            weights={n: v for n, v in METHODS[method].weights.items() if n not in COMMON_WEIGHTS},
        )
        for seed in range(3)
    ]
    together = finish(TrialStack(configs, benchmark)).state()
    for trial, config in enumerate(configs):
        alone = finish(TrialStack([config], benchmark)).state()
        for name in (name for name in alone if name.startswith("net/")):
            assert torch.equal(alone[name][0], together[name][trial])


def _random_digits() -> Benchmark:
    labels = torch.arange(600) % 6
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(256, (600, 1, 28, 28), dtype=torch.uint8, generator=generator)
    data = (inputs, labels, inputs[:12], labels[:12])
    return Benchmark("random", *data, split_classes(6, 3), 1 / 255)


def test_autograd_goes_through_torch(library: bool) -> None:
    inputs, weight = _random(2, 96, 784), _random(2, 100, 784).requires_grad_()
    outputs = products.linear(inputs, weight, _random(2, 100))
    (slope,) = torch.autograd.grad(outputs.sum(), weight)
    torch.testing.assert_close(slope, inputs.sum(1, keepdim=True).expand_as(slope))
    with torch.no_grad():
        assert products._by_onednn(inputs, weight.mT) is library


def test_small_products_and_other_devices_and_types_are_left_to_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "_mkl_leaves_avx512_unused", lambda: True)
    large = torch.zeros(1, 96, 784)
    assert products._by_onednn(large, large.mT)
    assert not products._by_onednn(large[:, :10], large.mT)
    assert not products._by_onednn(large[:, :10].repeat(9, 1, 1), large.mT.repeat(9, 1, 1))
    assert not products._by_onednn(large.double(), large.double().mT)
    assert not products._by_onednn(large.to("meta"), large.to("meta").mT)


def _changed(*_: object) -> Tensor:
    raise RuntimeError("expected at most 5 arguments")


@pytest.mark.parametrize("operator", [None, _changed, lambda *_: torch.zeros(2, 4)])
def test_a_torch_without_the_operator_or_with_another_is_left_to_itself(
    operator: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "_OPERATOR", operator)
    assert not products._operator_works()
