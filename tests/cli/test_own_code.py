"""Benchmarks, nets and methods of the user's own, named `module:name`."""

import re
import shlex
import shutil
import signal
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from remask import TrialStack
from remask.experiments import jobs
from remask.own_code import find_source
from remask.store import Store, TrialRecord
from tests.command_line import QUICK, Answer, CommandLine, run_process, start
from tests.repository import ROOT
from tests.store.store_samples import contents, make_config, make_record

EXAMPLES = [ROOT / "examples" / f"my_{name}.py" for name in ("data", "method", "net")]
PAGE = (ROOT / "docs" / "your-own.md").read_text("utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    shlex.split(command.replace("\\\n", " "))[1:]
    for command in re.findall(r"^remask run (?:.*\\\n)*.*", PAGE, re.MULTILINE)
]
SMALL = (
    "--buffer", "20", "--lr", "0.1", "--batch", "10", "--replay-batch", "10",
    "--trials", "2", "--workers", "1",
)  # fmt: skip
OWN = (
    "run", "--benchmark", "mine:photos", "--net", "mine:small_conv",
    "--method", "mine:WeightedReplay", *SMALL,
)  # fmt: skip
MINE = """\
from pathlib import Path
from my_data import photos
from my_method import WeightedReplay
from my_net import small_conv
Path("imported").touch()
"""


class OwnCode(CommandLine):
    """The command line in a folder with own code, which is imported again for every command."""

    def __call__(self, *args: str) -> Answer:
        with _fresh_imports(Path.cwd()):
            return super().__call__(*args)

    def records(self) -> list[TrialRecord]:
        """The trials of own code, without the one that the fixture stored."""
        return [record for record in super().records() if record.seed != 99]

    def results(self) -> list[object]:
        return [(r.config, r.class_il, r.task_il, r.confidence) for r in self.records()]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples and their data, and a module that touches a file when it is imported."""
    folder = tmp_path_factory.mktemp("examples") / "here"
    for label, name in enumerate(("ant", "bee", "cat")):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(24):
            pixels = np.random.default_rng([label, number]).integers(0, 120, (20, 18, 3))
            pixels[:, :, label] += 100
            Image.fromarray(pixels.astype(np.uint8)).save(
                folder / "photos" / name / f"{number}.png"
            )
    labels = np.arange(120) % 6
    inputs = np.random.default_rng(1).integers(0, 100, (120, 8)) + 150 * np.eye(6, 8)[labels]
    np.savez(folder / "measurements.npz", inputs=inputs.astype(np.uint8), labels=labels)
    for example in EXAMPLES:
        shutil.copy(example, folder)
    (folder / "mine.py").write_text(MINE)
    return folder


@pytest.fixture
def here(examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a copy of the examples."""
    folder = tmp_path / "here"
    shutil.copytree(examples, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def remask(
    here: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> OwnCode:
    """With one trial in the store, which is in a folder of its own."""
    (tmp_path / "kept").mkdir()
    command = OwnCode(tmp_path / "kept" / "results.db", monkeypatch, capfd)
    command.add(make_record(make_config(seed=99)))
    return command


@contextmanager
def _fresh_imports(folder: Path) -> Iterator[None]:
    """Remove at the end what was imported from the folder."""
    path, modules = list(sys.path), set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in {file.stem for file in folder.iterdir()} - modules:
            sys.modules.pop(name, None)
        jobs._load.cache_clear()


def _stop_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send SIGTERM to this process after a number of training steps."""
    run = TrialStack.run

    def stopped(stack: TrialStack, pace: float) -> Iterator[object]:
        for number, step in enumerate(run(stack)):  # step by step, whatever the pace
            if number == steps:
                signal.raise_signal(signal.SIGTERM)
            yield step

    monkeypatch.setattr(TrialStack, "run", stopped)


# What the page shows


def test_the_page_quotes_the_examples_as_they_are() -> None:
    for example in EXAMPLES:
        assert example.read_text("utf-8") in PYTHON, example.name


@pytest.mark.processes
def test_two_workers_of_the_installed_script_give_the_same_results(remask: OwnCode) -> None:
    """The folder of the script is not the current one, where own code is."""
    (command,) = (command for command in COMMANDS if "my_data:photos" in command)
    script = Path(sysconfig.get_path("scripts")) / "remask"
    run_process(script, *command, "--workers", "2")
    results, record = remask.results(), remask.records()[0]
    assert list(record.own_code) == ["my_data", "my_net"]
    assert record.tasks == ((0, 1), (2,))
    assert record.class_names == ("ant", "bee", "cat")
    remask.succeed(*command, "--workers", "1", "--again")
    assert remask.results() == results


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[2])
def test_a_command_of_the_page_runs_once(remask: OwnCode, command: list[str]) -> None:
    command = [*command, "--workers", "1", "--limit", "60"]
    answer = remask.succeed(*command)
    records = remask.records()
    given = dict(zip(command[1::2], command[2::2], strict=True))
    systems = len(given["--method"].split(",")) * len(given.get("--mask", "none").split(","))
    assert len(records) == 2 * systems
    assert answer.out.count("±") == 4 * systems
    for record in records:
        assert dict(record.config.weights) == ({"past": 2.0} if "--weight" in given else {})
        assert np.mean(record.class_il[-1]) > 100 / len(record.confidence)  # better than guessing
    assert f"All {len(records)} trials are in" in remask(*command).out
    assert remask.records() == records


def test_the_page_shows_what_a_check_prints(remask: OwnCode) -> None:
    ((command, printed),) = re.findall(
        r"```\n(remask check [^\n]*)\n```\n\nprints\n\n```\n(.*?)```", PAGE, re.DOTALL
    )
    assert remask.succeed(*shlex.split(command)[1:]).out == printed


@pytest.mark.slow
def test_the_python_of_the_page_runs(
    here: Path,
    remask: OwnCode,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (stacked,) = (block for block in PYTHON if "TrialStack(configs" in block)
    (ran,) = (block for block in PYTHON if "remask.run(" in block)
    monkeypatch.syspath_prepend(str(here))
    with _fresh_imports(here):
        exec(stacked, {})
        accuracies = eval(capfd.readouterr().out)
        exec(ran, {})
    assert len(accuracies) == 4
    assert accuracies[0] != accuracies[2]  # the same seed, another weight
    assert "MSWeightedReplay(-1)" in capfd.readouterr().out
    records = remask.records()
    assert {record.config.method for record in records} == {"er", "my_method:WeightedReplay"}
    assert {record.config.net for record in records} == {"my_net:small_conv"}
    assert [record.status for record in records] == ["finished"] * 8


# What can be run


@pytest.mark.slow
@pytest.mark.processes
def test_workers_skip_unreadable_images_and_name_them_once(here: Path, remask: OwnCode) -> None:
    (here / "photos" / "bee" / "3.png").write_bytes(b"no image")
    (here / "spoilt.py").write_text(
        "from remask.data import image_folder\n"
        "def photos():\n    return image_folder('photos', tasks=3, size=16)\n"
    )
    run = ("run", "--benchmark", "spoilt:photos", *SMALL[:-1], "2", "--stack", "1", "--epochs", "1")
    assert "--skip-unreadable" in remask.refusal(*run)
    process = start(*run, "--skip-unreadable", store=remask.store)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err.count("bee/3.png (not a") == 1
    assert len(remask.records()) == 2


# What is refused

BAD = {
    "raises": '"""A module."""\n\nraise RuntimeError("boom")\n',
    "unfinished": "def build(\n",
    "nets": """\
from torch import nn

def no_arguments():
    return nn.Linear(2, 2)

def raising(shape, classes):
    return {}["width"]

def text(shape, classes):
    return "a net"

def one_too_many(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes + 1))
""",
    "methods": """\
from remask import Method

class NoMethod:
    pass

class NoLoss(Method):
    draws = 1
""",
    "data": """\
from remask.data import arrays
from pathlib import Path

def nothing():
    return None

def raising():
    raise KeyError("gone")

def missing_file():
    return arrays(Path("nowhere.npz"), tasks=2)
""",
}
DATA = ("--lr", "0.1", "--batch", "10", "--replay-batch", "10", "--epochs", "1")
OWN_METHOD = ("--method", "my_method:WeightedReplay")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--net", "nowhere:build"], "no module 'nowhere' in {here} or installed"),
        (["--net", "raises:build"], "RuntimeError: boom (at {here}/raises.py:3)"),
        (["--net", "unfinished:build"], "(at {here}/unfinished.py:1)"),
        (["--net", "nets:nothing"], "{here}/nets.py has no 'nothing'"),
        (["--net", "nets:no_arguments"], "nets:no_arguments((1, 8, 8), 10) failed: TypeError"),
        (["--net", "nets:raising"], "KeyError: 'width' (at {here}/nets.py:7)"),
        (["--net", "nets:text"], "must return an nn.Module, not 'a net'"),
        (["--net", "nets:one_too_many"], "to logits [2, 10], got [2, 11]"),
        (["--method", "methods:NoMethod"], "must be a class derived from remask.Method"),
        (["--method", "methods:NoLoss"], "must define loss"),
        (["--benchmark", "data:nothing", *DATA], "must return a remask.Benchmark, not None"),
        (["--benchmark", "data:raising", *DATA], "KeyError: 'gone' (at {here}/data.py:8)"),
        (["--benchmark", "data:missing_file", *DATA], "cannot read nowhere.npz"),
        (["--benchmark", "data:nothing"], "set lr, batch, epochs, replay_batch"),
        (["--benchmark", "my_data:photos", *DATA, "--data", "photos"], "`data` is for"),
        ([*OWN_METHOD, "--weight", "pats=2"], "no weight 'pats'; did you mean 'past'?"),
        ([*OWN_METHOD, "--weight", "past=nan"], "past must be finite"),
    ],
)  # fmt: skip
def test_an_error_in_own_code_is_one_line_and_the_store_is_unchanged(
    here: Path, remask: OwnCode, arguments: list[str], expected: str
) -> None:
    for name, text in BAD.items():
        (here / f"{name}.py").write_text(text)
    before = contents(remask.store.parent)
    answer = remask("run", *arguments, "--trials", "1")
    assert (answer.code, answer.out) == (1, "")
    assert re.fullmatch("error: .*\n", answer.err)
    assert expected.format(here=here) in answer.err
    assert "bug in remask" not in answer.err
    assert contents(remask.store.parent) == before


@pytest.mark.processes
def test_a_loss_that_raises_fails_its_trial_until_it_is_fixed(here: Path, remask: OwnCode) -> None:
    method = here / "fragile.py"
    method.write_text(
        "from remask import Method\n\nclass Fragile(Method):\n    def loss(self, step):\n"
        "        return step.stream_loss() / 0 + undefined\n"
    )
    command = ("run", *QUICK, "--method", "fragile:Fragile", "--workers", "1")
    message = remask.refusal(*command)
    assert "NameError" in message
    assert f"{method}:5" in message.replace(" ", "")  # wherever the line was broken
    assert [record.status for record in remask.records()] == ["failed", "failed"]
    method.write_text(method.read_text().replace(" / 0 + undefined", ""))
    remask.succeed(*command)
    assert [record.status for record in remask.records()] == ["finished", "finished"]


def test_the_title_of_your_own_method_is_shown_everywhere(here: Path, remask: OwnCode) -> None:
    (here / "titled.py").write_text(
        "from remask.methods import ER\nclass Mine(ER):\n    title = 'Replay, mine'\n"
    )
    command = ("run", *QUICK, "--method", "titled:Mine", "--mask", "none,-1", "--trials", "1")
    answer = remask.succeed(*command, "--workers", "1")
    assert "MSReplay, mine(-1)" in answer.out
    assert [record.title for record in remask.records()] == ["Replay, mine"] * 2
    (here / "titled.py").unlink()
    assert "MSReplay, mine(-1)" in remask("results", "list").out
    remask.succeed("report", "page.html")
    assert "MSReplay, mine(-1)" in (here / "page.html").read_text()
    with Store(remask.store) as store:
        assert store.count({"method": "replay, mine"}) == 2
        assert store.count({"method": "MSReplay, mine(-1)"}) == 1


# Nets that cannot be stacked

UNSTACKABLE = {
    "decides": "inputs = inputs * 2 if inputs.sum() > 0 else inputs",
    "selects": "inputs = inputs / inputs[inputs > 0].mean()",
    "leaves_torch": "inputs = inputs * float(inputs.numpy().max())",
}
UNSTACKABLE_NET = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.last = nn.Linear(64, classes)

    def forward(self, inputs):
        inputs = inputs.flatten(1)
        {line}
        return self.last(inputs)

def build(shape, classes):
    return Net(classes)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("net", UNSTACKABLE)
def test_a_net_without_vmap_runs_trial_by_trial(here: Path, remask: OwnCode, net: str) -> None:
    (here / f"{net}.py").write_text(UNSTACKABLE_NET.format(line=UNSTACKABLE[net]))
    command = ("run", *QUICK, "--limit", "20", "--net", f"{net}:build", "--workers", "1")
    remask.succeed(*command)
    together = remask.records()
    remask.succeed(*command, "--stack", "1", "--again")
    alone = remask.records()
    assert [record.class_il for record in together] == [record.class_il for record in alone]


# What becomes of results when the code changes

PLAIN = """\
from remask import Method
from shared.losses import weigh

class Plain(Method):
    def loss(self, step):
        return weigh(step.stream_loss())
"""
RUN_PLAIN = ("run", *QUICK, "--method", "plain:Plain", "--workers", "1")


@pytest.fixture
def plain(here: Path) -> Path:
    """A method that imports a module of a package of the user's own; returns its file."""
    (here / "shared").mkdir()
    (here / "shared" / "losses.py").write_text("def weigh(loss):\n    return loss\n")
    (here / "plain.py").write_text(PLAIN)
    return here / "plain.py"


def test_results_of_older_code_are_used_with_a_note(plain: Path, remask: OwnCode) -> None:
    remask.succeed(*RUN_PLAIN)
    before = remask.records()
    assert [list(record.own_code) for record in before] == [["plain"]] * 2
    assert "older version" not in remask(*RUN_PLAIN).text
    imported = plain.parent / "shared" / "losses.py"
    imported.write_text(imported.read_text() + "# changed\n")
    answer = remask.succeed(*RUN_PLAIN, "--trials", "3")
    assert "2 stored trials were run with an older version of plain.py" in answer.text
    assert remask.records()[:2] == before
    answer = remask.succeed(*RUN_PLAIN, "--trials", "3", "--again")
    assert "older version" not in answer.text
    assert "older version" not in remask(*RUN_PLAIN, "--trials", "3").text
    assert remask.records()[0].own_code != before[0].own_code
    with Store(remask.store) as store:
        for record in remask.records():
            store.add(record.model_copy(update={"own_code": {}}), replace=True)
    assert "older version" not in remask(*RUN_PLAIN).text  # unknown


# Names that come from files


def test_looking_at_results_imports_no_own_code(here: Path, remask: OwnCode) -> None:
    remask.succeed(*OWN, "--epochs", "1")
    (here / "imported").unlink()
    shown = remask.records()[0].config_hash
    for command in (["list"], ["list", "--trials"], ["show", shown], ["export", "results.csv"]):
        remask.succeed("results", *command)
    assert "mine:photos" in (here / "results.csv").read_text()
    assert not (here / "imported").exists()


def test_a_stopped_run_of_own_code_resumes_only_if_allowed_and_keeps_its_first_version(
    here: Path, remask: OwnCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (*OWN, "--epochs", "4", "--trials", "1", "--workers", "1")
    with monkeypatch.context() as stopping:
        _stop_after(20, stopping)
        assert remask(*command).code == 143
    old = find_source("mine")
    (here / "imported").unlink()
    before = contents(remask.store.parent)
    message = remask.refusal("resume")
    assert "'mine:photos'" in message
    assert "--own-code" in message
    assert not (here / "imported").exists()
    assert contents(remask.store.parent) == before
    (here / "mine.py").write_text(MINE + "# changed\n")
    remask.succeed("resume", "--own-code", "--workers", "1")
    (record,), results = remask.records(), remask.results()
    assert old is not None
    assert record.own_code == {"mine": old.fingerprint}
    assert "1 stored trial was run with an older version of mine.py" in remask(*command).text
    remask.succeed(*command, "--again")
    assert remask.results() == results
