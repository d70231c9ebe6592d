"""What is shown is what predicts, and a stack that was restored predicts as it did."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from remask.benchmarks import Benchmark
from remask.config import TrialConfig
from remask.engine import Position, TrialStack
from remask.methods import ER, METHODS
from tests.engine.stack_samples import finish

MakeConfig = Callable[..., TrialConfig]
MID_RUN = 2  # tasks that are finished before the stack is saved


class Opposite(ER):
    """Predicts the least likely class, as a method with a predictor of its own might."""

    name = "opposite"

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        return -self.context.net.predict(inputs) + 10 * task


def test_confidence_is_of_the_scores_that_the_accuracy_is_of(
    config: MakeConfig, tiny: Benchmark
) -> None:
    plain = finish(TrialStack([config(method="er", net="mlp")], tiny))
    single = config(method="opposite", net="mlp")
    opposite = finish(TrialStack([single], tiny, method=Opposite))
    (result,) = opposite.results()
    assert result.confidence != plain.results()[0].confidence
    for label, said in enumerate(result.confidence):
        task = next(number for number, task in enumerate(tiny.tasks) if label in task)
        rows = tiny.test_labels == label
        scores = opposite.scores(tiny.test_inputs[rows] * tiny.scale, task)[0]
        assert said == pytest.approx(float(scores.softmax(-1)[:, label].mean()), rel=1e-5)


def trained(config: MakeConfig, tiny: Benchmark, method: str) -> TrialStack:
    """Two trials that have just finished two of three tasks."""
    configs = [config(method=method, net="mlp", seed=seed, lr=0.05, epochs=1) for seed in (3, 5)]
    stack = TrialStack(configs, tiny)
    for position in stack.run():
        if position == (MID_RUN, 0, 0):
            break
    return stack


IN_A_NEW_PROCESS = """\
import sys
from pathlib import Path
import safetensors.torch, torch
from remask import Benchmark, TrialConfig, TrialStack
from remask.engine import Position

torch.set_num_threads(1)
folder = Path(sys.argv[1])
data = safetensors.torch.load_file(folder / "data.safetensors")
tasks = ((3, 0), (4,), (1, 2, 5))
tiny = Benchmark("tiny", data["x"], data["y"], data["x_test"], data["y_test"], tasks, 1 / 255)
for file in folder.glob("*.jsonl"):
    configs = [TrialConfig.model_validate_json(line) for line in file.read_text().splitlines()]
    stack = TrialStack(configs, tiny)
    stack.restore(safetensors.torch.load_file(file.with_suffix(".state")), Position(2, 0, 0))
    scores = {str(task): stack.scores(tiny.test_inputs / 255, task) for task in (0, 1)}
    safetensors.torch.save_file(scores, file.with_suffix(".scores"))
"""


@pytest.mark.processes
def test_every_method_predicts_the_same_bits_after_it_is_restored_in_a_new_process(
    config: MakeConfig, tiny: Benchmark, tmp_path: Path
) -> None:
    data = {
        "x": tiny.train_inputs, "y": tiny.train_labels,
        "x_test": tiny.test_inputs, "y_test": tiny.test_labels,
    }  # fmt: skip
    safetensors.torch.save_file(data, tmp_path / "data.safetensors")
    expected: dict[str, dict[str, Tensor]] = {}
    for method in METHODS:
        stack = trained(config, tiny, method)
        assert stack.position == Position(MID_RUN, 0, 0) or METHODS[method].learns == "union"
        lines = [c.model_dump_json() for c in stack.configs]
        (tmp_path / f"{method}.jsonl").write_text("\n".join(lines))
        state = {n: t.detach().clone().contiguous() for n, t in stack.state().items()}
        safetensors.torch.save_file(state, tmp_path / f"{method}.state")
        expected[method] = {str(t): stack.scores(tiny.test_inputs / 255, t) for t in (0, 1)}
    subprocess.run(
        [sys.executable, "-c", IN_A_NEW_PROCESS, str(tmp_path)],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    for method, scores in expected.items():
        again = safetensors.torch.load_file(tmp_path / f"{method}.scores")
        for task, said in scores.items():
            assert torch.isfinite(said).any(), method
            assert torch.equal(again[task], said), (method, task)
