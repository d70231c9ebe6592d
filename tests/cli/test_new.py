"""`remask new`: what it writes is checked and run as it is."""

import json
from pathlib import Path

import pytest

from remask.starting_points import KINDS
from tests.command_line import CommandLine

RUN = ("--lr", "0.1", "--batch", "10", "--replay-batch", "10", "--epochs", "1", "--trials", "1")
SMALL = (*RUN, "--buffer", "20", "--limit", "20", "--workers", "1")
USED = {
    "method": ("--method", "first_try_method:FirstTryMethod", "--weight", "past=0.5,1"),
    "net": ("--method", "er", "--net", "first_try_net:first_try_net"),
    "data": ("--method", "er", "--benchmark", "first_try_data:first_try_data"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_starting_point_passes_its_check_and_runs(
    remask: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"first_try_{kind}"
    written = json.loads(remask.succeed("new", kind, name, "--json").out)
    text = (tmp_path / f"{name}.py").read_text("utf-8")
    assert written["file"] == f"{name}.py"
    assert "starting" not in text.lower()
    assert written["check"] in text
    checked = remask.succeed(*written["check"].split()[1:], "--json")
    assert {finding["outcome"] for finding in json.loads(checked.out)} == {"passed"}
    remask.succeed("run", *USED[kind], *SMALL)
    assert {record.status for record in remask.records()} == {"finished"}


def test_a_file_that_is_there_is_left_as_it_is(
    remask: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("precious")
    message = remask.refusal("new", "method", "mine")
    assert "mine.py already exists, and was not changed" in message
    assert (tmp_path / "mine.py").read_text() == "precious"


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("method", "torch", "already a Python module"),
        ("net", "My-Net", "invalid module name"),
        ("data", "../data", "invalid module name"),
        ("metod", "mine", "metod"),
    ],
)
def test_a_name_that_will_not_do_is_refused(
    remask: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str,
    expected: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    answer = remask("new", kind, name)
    assert answer.code in (1, 2)
    assert expected in answer.text
    assert list(tmp_path.glob("*.py")) == []
