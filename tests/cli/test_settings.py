"""A setting is one field: its option, key, keyword and line in the docs are made from it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import remask as package
from remask.cli.results import FILTER_OPTIONS
from remask.cli.trials import RUN_OPTIONS, SETTINGS
from remask.config import TrialConfig
from remask.experiments.configs import configs_from
from remask.experiments.grids import grid_configs
from remask.experiments.options import RunOptions
from remask.store.filters import FILTERS
from tests.cli.settings_page import PAGE, with_tables
from tests.command_line import CommandLine


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


def test_the_help_of_a_command_has_all_its_settings_and_filters(remask: CommandLine) -> None:
    fields = {*TrialConfig.model_fields, *RunOptions.model_fields} - {"progress", "weights"}
    settings = {name.replace("_", "-") for name in fields} | {"weight"}
    expected: dict[tuple[str, ...], set[str]] = {("run",): settings, ("sweep",): settings}
    for command in ("list", "export", "compare", "delete"):
        expected["results", command] = {*FILTERS}
    for words, names in expected.items():
        shown = re.findall(r"(?<![\w-])--([a-z][a-z-]*)", remask(*words, "--help").out)
        assert names <= {*shown}, words


@pytest.mark.usefixtures("repository")
def test_the_tables_of_the_docs_are_what_the_fields_say() -> None:
    page = PAGE.read_text("utf-8")
    assert page == with_tables(page), "python -m tests.cli.settings_page writes them"


@pytest.mark.parametrize(
    "masking",
    [{"mask": "-inf"}, {"mask": 0.5, "positive_mask": True, "mask_stored": True, "fade": 2.0}],
)
def test_every_setting_is_a_key_of_files_and_grids(tmp_path: Path, masking: dict[str, Any]) -> None:
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
