"""Getting a model out: nets of single trials, in Python, and as files that read back."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from remask import load_net
from remask.data.benchmark import Benchmark
from remask.engine import SavedNetError, TrialStack, save_net
from remask.methods import ER, METHODS, MethodError
from remask.nets.builders import mlp
from tests.command_line import CommandLine
from tests.engine.stack_samples import MakeConfig, batch_normed, finish

RUN = ("run", "--benchmark", "split-digits", "--epochs", "1", "--trials", "2", "--limit", "20")


def trained(config: MakeConfig, benchmark: Benchmark, method: str, **how: Any) -> TrialStack:
    name = "batch-normed" if how else "mlp"
    configs = [config(method=method, net=name, seed=seed, lr=0.05, epochs=1) for seed in (3, 5)]
    return finish(TrialStack(configs, benchmark, **how))


def said(net: nn.Module, inputs: Tensor, task: int, method: str) -> Tensor:
    with torch.no_grad():
        scores: Tensor = (
            net(inputs, task) if METHODS[method].name.startswith("pnn") else net(inputs)
        )
    return scores


def assert_predicts_as(stack: TrialStack, trial: int, net: nn.Module) -> None:
    random = torch.Generator().manual_seed(1)
    inputs = torch.rand((50, *stack.data.input_shape), generator=random)
    for task in range(len(stack.results()[0].tasks)):
        ours = said(net, inputs, task, stack.method.name)
        theirs = stack.scores(inputs, task)[trial]
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS)
def test_the_net_of_a_trial_predicts_as_the_trial_does_and_so_does_its_file(
    config: MakeConfig, tiny: Benchmark, tmp_path: Path, method: str
) -> None:
    stack = trained(config, tiny, method)
    for trial in (0, 1):
        net = stack.net(trial)
        assert not net.training
        assert_predicts_as(stack, trial, net)
        save_net(stack, trial, tmp_path / f"net{trial}")
        assert_predicts_as(stack, trial, load_net(tmp_path / f"net{trial}.safetensors"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "net0.json", "net0.safetensors", "net1.json", "net1.safetensors",
    ]  # fmt: skip


def test_running_statistics_come_out_as_well_and_the_net_is_a_copy(
    config: MakeConfig, tiny: Benchmark, tmp_path: Path
) -> None:
    stack = trained(config, tiny, "er", build_net=batch_normed)
    net = stack.net(1)
    assert_predicts_as(stack, 1, net)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    assert_predicts_as(stack, 1, stack.net(1))
    save_net(stack, 1, tmp_path / "own")
    assert_predicts_as(stack, 1, load_net(tmp_path / "own.json", build=batch_normed))
    with pytest.raises(SavedNetError, match=r"unknown net 'batch-normed'.*pass build="):
        load_net(tmp_path / "own")
    with pytest.raises(SavedNetError, match="other tensors than were saved"):
        load_net(tmp_path / "own", build=mlp)


class Slow(ER):
    """Predicts with a running mean of its weights."""

    name = "slow"
    remembers = ("slow",)
    predicts_with = ("slow",)

    def prepare(self) -> None:
        self.slow = {n: t.detach().clone() for n, t in self.context.net.state().items()}

    @torch.no_grad()
    def after_step(self, step: Any) -> None:
        for name, tensor in self.context.net.state().items():
            self.slow[name].lerp_(tensor, 0.05)

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        shared = inputs.expand(self.context.trials, *inputs.shape)
        return self.context.net.evaluate(shared, self.slow)


class SlowOut(Slow):
    name = "slow-out"

    @classmethod
    def predictor(cls, net: nn.Module, own: Any) -> nn.Module:
        net.load_state_dict({name.removeprefix("slow/"): tensor for name, tensor in own.items()})
        return net


def test_a_method_that_predicts_in_its_own_way_must_say_how_its_net_does(
    config: MakeConfig, tiny: Benchmark
) -> None:
    def stack(kind: type[Slow]) -> TrialStack:
        return finish(TrialStack([config(method=kind.name, net="mlp")], tiny, method=kind))

    with pytest.raises(MethodError, match="Define `predictor` as well"):
        stack(Slow).net(0)
    slow = stack(SlowOut)
    inputs = tiny.test_inputs * tiny.scale
    torch.testing.assert_close(slow.net(0)(inputs), slow.scores(inputs, 0)[0])
    working = slow._net.predict(inputs)[0]
    assert not torch.allclose(slow.net(0)(inputs), working, atol=1e-3)


def test_a_column_is_chosen_by_the_task_and_there_are_no_others(
    config: MakeConfig, tiny: Benchmark
) -> None:
    net = trained(config, tiny, "pnn").net(0)
    with pytest.raises(ValueError, match=r"tasks 0\.\.2, not 3"):
        net(tiny.test_inputs / 255, 3)


@pytest.mark.thorough
def test_the_page_is_right(
    repository: Path, remask: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (repository / "docs" / "nets.md").read_text("utf-8")
    (command,) = re.findall(r"^remask (run .*)", page, re.MULTILINE)
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert remask(*command.split(), "--workers", "1").code == 0
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["accuracy"] > 0.5
    shown = re.findall(r"^nets/(\S+)HASH\.(\S+)", page, re.MULTILINE)
    assert len(shown) == 2
    for start_of_name, suffix in shown:
        assert len(list(Path("nets").glob(f"{start_of_name}*.{suffix}"))) == 1


def test_a_trial_that_the_store_has_says_that_it_has_no_net_and_how_to_get_one(
    remask: CommandLine, tmp_path: Path
) -> None:
    command = (*RUN, "--method", "sgd", "--workers", "1")
    assert remask(*command).code == 0
    folder = tmp_path / "nets"
    answer = remask(*command, "--save-nets", str(folder))
    assert answer.code == 0
    assert f"Nets in {folder}: 0." in answer.text
    assert "Trials without one: 2. They were in the store already" in answer.text
    assert "--again" in answer.text
    answer = remask(*command, "--save-nets", str(folder), "--again")
    assert f"Nets in {folder}: 2." in answer.text
    assert "without one" not in answer.text
    assert len(list(folder.iterdir())) == 4


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_trained(
    remask: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    answer = remask(*RUN, "--method", "sgd", "--save-nets", str(tmp_path / "file" / "nets"))
    assert answer.code == 1
    assert answer.err.startswith("error: cannot ")
    assert "Traceback" not in answer.text


@pytest.fixture
def saved(config: MakeConfig, tiny: Benchmark, tmp_path: Path) -> Path:
    stack = TrialStack([config(method="icarl", net="mlp")], tiny)
    save_net(stack, 0, tmp_path / "net")
    return tmp_path / "net"


def change(path: Path, **changes: Any) -> None:
    note = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps({**note, **changes}))


def test_a_damaged_or_foreign_file_is_refused_with_the_reason(saved: Path) -> None:
    weights, note = saved.with_suffix(".safetensors"), saved.with_suffix(".json")
    good = weights.read_bytes(), note.read_bytes()
    weights.write_bytes(good[0][:-1])
    with pytest.raises(SavedNetError, match=r"is damaged, or is not what net\.json was written"):
        load_net(saved)
    weights.write_bytes(b"not tensors")
    change(saved, sha256=hashlib.sha256(b"not tensors").hexdigest())
    with pytest.raises(SavedNetError, match="does not fit the net"):
        load_net(saved)
    tensors = safetensors.torch.load(good[0])
    del tensors["method/means"]
    weights.write_bytes(safetensors.torch.save(tensors))
    change(saved, sha256=hashlib.sha256(weights.read_bytes()).hexdigest())
    with pytest.raises(SavedNetError, match="does not fit"):
        load_net(saved)
    weights.unlink()
    with pytest.raises(SavedNetError, match="cannot be read: No such file"):
        load_net(saved)
    for text in (b"", b"{}", b"[1", b'{"format": 2}', b"\xff"):
        note.write_bytes(text)
        with pytest.raises(SavedNetError, match="is not the description of a saved net"):
            load_net(saved)
    note.unlink()
    with pytest.raises(SavedNetError, match="A net is two files"):
        load_net(saved)
    with pytest.raises(SavedNetError, match="cannot be read"):
        load_net(saved.parent)


@pytest.mark.parametrize(
    "lie",
    [{"net": "resnet18"}, {"num_classes": 7}, {"input_shape": [10**9, 10**9]}, {"input_shape": []},
     {"input_shape": [-3]}, {"num_classes": 10**15}, {"method": None}, {"method": "pnn"}],
)  # fmt: skip
def test_a_note_that_lies_takes_no_memory_and_is_refused(saved: Path, lie: dict[str, Any]) -> None:
    change(saved, **lie)
    with pytest.raises(SavedNetError, match="does not fit the net"):
        load_net(saved)


OWN = """\
from pathlib import Path
from remask.nets.builders import mlp
Path("imported").touch()
def build(shape, classes):
    return mlp(shape, classes, hidden=(5,))
"""


@pytest.mark.processes
def test_own_code_that_a_file_names_is_imported_only_if_the_caller_says_so(tmp_path: Path) -> None:
    (tmp_path / "own_net.py").write_text(OWN)
    code = (
        "import remask, sys; from pathlib import Path\n"
        "(path,) = Path('nets').glob('*.json')\n"
        "try:\n    remask.load_net(path)\nexcept remask.errors.RemaskError as error:\n"
        "    assert 'own_code=True' in str(error), error\n"
        "assert not Path('imported').exists()\n"
        "net = remask.load_net(path, own_code=True)\n"
        "assert Path('imported').exists()\n"
        "import torch; print(list(net(torch.zeros(2, 1, 8, 8)).shape))\n"
    )
    run = [
        *("run", "--method", "sgd", "--epochs", "1", "--trials", "1", "--limit", "5"),
        *("--net", "own_net:build", "--save-nets", "nets", "--store", "results.db"),
    ]
    subprocess.run([sys.executable, "-m", "remask", *run], cwd=tmp_path, check=True)
    (tmp_path / "imported").unlink()
    done = subprocess.run(
        [sys.executable, "-c", "import remask.errors\n" + code],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[2, 10]"
