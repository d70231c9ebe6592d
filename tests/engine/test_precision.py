"""`precision="bf16"`: layers compute in bfloat16, and everything else stays as it was."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from remask import run, settings
from remask.engine import validation
from remask.engine.linear_stack import stack_nets
from remask.engine.module_stack import ModuleStack
from remask.losses import trial_cross_entropy
from remask.nets.builders import net_builder


@pytest.mark.parametrize("trials", [1, 2])
@pytest.mark.parametrize("name", ["mlp", "resnet18:16"])
def test_layers_compute_in_bfloat16_and_weights_stay_float32(name: str, trials: int) -> None:
    torch.manual_seed(0)
    nets = [net_builder(name)((3, 16, 16), 4) for _ in range(trials)]
    stack, exact = stack_nets(nets, precision="bf16"), stack_nets(nets)
    assert isinstance(stack, ModuleStack)
    inputs, labels = torch.randn(trials, 6, 3, 16, 16), torch.randint(4, (trials, 6))
    logits, truth = stack(inputs), exact(inputs)
    assert logits.dtype == stack.features(inputs, training=True).dtype == torch.float32
    error = (logits - truth).abs().max() / truth.abs().max()
    assert 1e-4 < error < 0.05  # 8 bits of mantissa; with 24 it would be 1e-7
    gradients = stack.gradients(trial_cross_entropy(logits, labels, None, None))
    assert {value.dtype for value in gradients.values()} == {torch.float32}
    assert {value.dtype for value in stack.parameters.values()} == {torch.float32}


@pytest.mark.processes
@pytest.mark.parametrize("layers_first", [False, True])
def test_bfloat16_works_or_is_refused_but_never_ends_the_process(layers_first: bool) -> None:
    """Where AMX is trapped it does: with a message only if torch's layers were used before."""
    script = (
        "import torch; from remask.engine.linear_stack import stack_nets"
        "\nfrom remask.errors import RemaskError"
        "\nnet = torch.nn.Linear(64, 64)"
        f"\nif {layers_first}: net(torch.ones(1, 64))"
        "\ntry: print(stack_nets([net], precision='bf16')(torch.ones(1, 2, 64)).shape)"
        "\nexcept RemaskError as error: print(error)"
    )
    environment = {n: v for n, v in os.environ.items() if n != "ONEDNN_MAX_CPU_ISA"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    worked = "torch.Size([1, 2, 64])" in done.stdout
    assert worked or (layers_first and "ONEDNN_MAX_CPU_ISA=" in done.stdout)


@pytest.mark.processes
def test_a_try_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "mm", lambda *_: time.sleep(60))  # the child inherits it
    monkeypatch.setattr(validation, "_LONGEST_TRY", 0.2)
    started = time.monotonic()
    assert not validation._survives()
    assert time.monotonic() - started < 30


@pytest.mark.thorough
def test_digits_are_learnt_as_well_in_bfloat16(tmp_path: Path) -> None:
    results = run(
        configs=[
            settings("split-digits", "derpp", 200, -1.0, seed=seed, precision=precision)
            for precision in ("float32", "bf16")
            for seed in range(3)
        ],
        store=tmp_path / "results.db",
        workers=1,
    )
    exact, rounded = (cell.spreads["class_il_A_T"].mean for cell in results.cells())
    assert rounded == pytest.approx(exact, abs=1)
    assert rounded != exact
