"""A setting is one field: its option, key, keyword and line in the docs are made from it."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import remask as package
from remask.cli.results import FILTER_OPTIONS
from remask.cli.trials import RUN_OPTIONS, SETTINGS
from remask.config import TrialConfig
from remask.experiments import running
from remask.experiments.configs import configs_from
from remask.experiments.grids import grid_configs
from remask.experiments.options import RunOptions
from remask.experiments.results import Results
from remask.store.filters import FILTERS
from tests.cli.settings_page import PAGE, with_tables
from tests.command_line import CommandLine

SOURCE = Path(package.__file__).parent


def _names_in_help(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", text))


def test_every_field_has_an_option_with_a_description_that_is_a_sentence() -> None:
    assert [option.name for option in SETTINGS.options] == list(TrialConfig.model_fields)
    assert {option.name for option in RUN_OPTIONS.options} == {*RunOptions.model_fields} - {
        "progress"
    }
    assert [option.name for option in FILTER_OPTIONS.options] == list(FILTERS)
    described = [*TrialConfig.model_fields.items(), *RunOptions.model_fields.items()]
    for name, field in described:
        text = field.description or ""
        assert text[:1].isupper(), name
        assert text.endswith("."), name


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_the_help_of_a_command_has_all_settings_and_options(
    remask: CommandLine, command: str
) -> None:
    fields = {*TrialConfig.model_fields, *RunOptions.model_fields} - {"progress", "weights"}
    expected = {name.replace("_", "-") for name in fields} | {"weight"}
    assert expected <= _names_in_help(remask(command, "--help").out)


@pytest.mark.parametrize("command", ["list", "export", "compare", "delete"])
def test_the_help_of_what_looks_at_results_has_all_filters(
    remask: CommandLine, command: str
) -> None:
    assert {*FILTERS} <= _names_in_help(remask("results", command, "--help").out)


@pytest.mark.usefixtures("repository")
def test_the_tables_of_the_docs_are_what_the_fields_say() -> None:
    page = PAGE.read_text("utf-8")
    assert page == with_tables(page), "python -m tests.cli.settings_page writes them"


@pytest.mark.parametrize(
    "masking",
    [{"mask": "-inf"}, {"mask": 0.5, "positive_mask": True, "mask_stored": True, "fade": 2.0}],
)
def test_every_setting_is_a_key_of_a_config_file_and_of_a_grid(
    tmp_path: Path, masking: dict[str, Any]
) -> None:
    wanted = package.settings(
        "split-digits", "derpp", 20, **masking, seed=3, net="resnet18:4", lr=0.3, batch=7,
        replay_batch=5, epochs=2, alpha=0.25, beta=0.75, lr_drops=[1], tasks=2,
        class_order=[3, 1, 0, 2, 4, 5, 6, 7, 9, 8], limit=9, validation=0.25, task_free=True,
    )  # fmt: skip
    written = wanted.model_dump(mode="json")
    assert written.keys() == TrialConfig.model_fields.keys()
    lines = {name: json.dumps(value) for name, value in written.items() if value is not None}
    lines |= {"trials": "1", "weights": "{}"}
    file, grid = tmp_path / "run.toml", tmp_path / "grid.toml"
    file.write_text("".join(f"{name} = {value}\n" for name, value in lines.items()))
    assert configs_from({}, file=file) == [wanted]
    axes = {name: f"[{value}]" for name, value in lines.items() if name != "weights"}
    grid.write_text("[grid]\n" + "".join(f"{name} = {value}\n" for name, value in axes.items()))
    assert grid_configs(grid, own_code=False) == [wanted]


_ODD = ["", "x", "nan", "-inf", "-1", "1e999", "9" * 30, "1,,2", "none"]


@pytest.mark.thorough
@pytest.mark.parametrize("option", [*SETTINGS.options, *RUN_OPTIONS.options], ids=lambda o: o.name)
def test_an_odd_value_is_taken_or_refused_with_a_message_that_names_it(
    option: inspect.Parameter, remask: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "run_trials", lambda *_: Results([]))  # nothing is trained
    name = "weight" if option.name == "weights" else option.name
    for value in _ODD:
        answer = remask("run", f"--{name.replace('_', '-')}={value}")
        assert answer.code in (0, 1, 2), answer
        assert "Traceback" not in answer.text
        assert "bug in remask" not in answer.text, (value, answer.text)
        common = (name, name.replace("_", "-"), "comma-separated")
        assert answer.code == 0 or any(word in answer.text for word in common), answer.text


# ---- One line more -------------------------------------------------------------------------------

_SCRIPT = """
import sys
from pathlib import Path
import remask
from remask.experiments.results import rerun_command
from remask.cli.trials import RUN_OPTIONS, SETTINGS
from remask.cli import main
from remask.store import Store
from tests.cli.settings_page import table

assert Path(remask.__file__).is_relative_to(sys.argv[1]), remask.__file__
assert "| `--momentum X` | `momentum` | Share of the last step. |" in table(SETTINGS)
assert "| `--patience N` | `patience` | Hours to wait. Default: 3. |" in table(RUN_OPTIONS)
how = {"store": "a.db", "workers": 1, "progress": False, "patience": 5}
common = {"epochs": 1, "limit": 3, "trials": 1}
(record,) = remask.run("split-digits", "sgd", momentum=0.5, **common, **how)
assert record.config.momentum == 0.5
(record,) = remask.sweep({"method": "sgd", **common, "grid": {"momentum": [0.25]}}, **how)
assert record.config.momentum == 0.25
Path("run.toml").write_text("momentum = 0.125\\nepochs = 1\\nlimit = 3\\ntrials = 1\\n")
for more in ([], ["--momentum", "0.0625"], ["--momentum", "2"]):
    sys.argv[1:] = ["run", "--config", "run.toml", "--method", "sgd", "--store", "a.db",
                    "--workers", "1", "--patience", "2", *more]
    try:
        main()
    except SystemExit as leaving:
        print(more, leaving.code)
with Store("a.db") as store:
    print(sorted(record.config.momentum for record in store.records()))
    commands = [rerun_command(record.config, [0]) for record in store.records()]
    print([command for command in commands if "--momentum 0.125" in command])
"""


@pytest.mark.processes
def test_a_new_setting_is_one_line(tmp_path: Path) -> None:
    """The line is written into a copy of the source, and everything else follows."""
    shutil.copytree(SOURCE, tmp_path / "src" / "remask", ignore=shutil.ignore_patterns("__pyc*"))
    _add_line(
        tmp_path / "src" / "remask" / "config.py",
        "    lr: float = ",
        '    momentum: float = Field(0.0, ge=0, lt=1, description="Share of the last step.")\n',
    )
    _add_line(
        tmp_path / "src" / "remask" / "experiments" / "options.py",
        "    device: str = ",
        '    patience: int = Field(3, ge=1, description="Hours to wait.")\n',
    )
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path / "src")],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), str(PAGE.parents[1])]),
            "OMP_NUM_THREADS": "1",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "[0.0625, 0.125, 0.25, 0.5]" in done.stdout
    assert "momentum = 2.0: should be less than 1" in done.stderr
    assert "--momentum 0.125" in done.stdout


def _add_line(file: Path, before: str, line: str) -> None:
    text = file.read_text("utf-8")
    assert text.count(before) == 1, before
    file.write_text(text.replace(before, line + before), "utf-8")
