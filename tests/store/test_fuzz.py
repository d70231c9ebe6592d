"""Whatever is typed, written into a file or imported: an answer or a message, no traceback."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remask.config import TrialConfig
from remask.store.export import trial_json
from tests.command_line import Answer, CommandLine
from tests.store.store_samples import diverged, failed, make_config, make_record, make_records

EXAMPLES = int(os.environ.get("REMASK_FUZZ_EXAMPLES", "12"))
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SMALL = ("--trials", "1", "--epochs", "1", "--workers", "1")

_text = st.text(st.characters(blacklist_characters="\x00", blacklist_categories=["Cs"]), max_size=8)
_number = st.one_of(
    st.integers(-(10**20), 10**20), st.floats(), st.sampled_from([0, 1, 2, -1, 0.5])
)
_words = ["er", "derpp", "mser", "joint", "none", "-inf", "none,-1", "split-digits", "cpu", ""]
_value = st.one_of(_number.map(str), _text, st.sampled_from(_words))
_options = [
    "--benchmark", "--method", "--mask", "--buffer", "--seed", "--lr", "--batch", "--replay-batch",
    "--alpha", "--beta", "--net", "--device", "--threads", "--stack", "--checkpoint-seconds",
    "--config", "--output", "--json", "--quiet", "--dry-run", "--again", "--unknown",
]  # fmt: skip
# Without --trials and --epochs among the options, a run that happens to be valid stays small.
_arguments = st.lists(
    st.tuples(st.sampled_from(_options), _value).map(list) | _value.map(lambda value: [value]),
    max_size=4,
).map(lambda parts: [word for part in parts for word in part])
_commands = st.sampled_from(
    [["run"], ["resume"], ["results", "list"], ["results", "show"], ["results", "export"],
     ["report"], ["sweep"], ["data", "verify"], ["data", "where"], ["methods"], ["rnu"], []]
)  # fmt: skip
_scalar = st.one_of(st.booleans(), _number, _text, st.lists(st.integers(-3, 3) | _text, max_size=3))
_fields = st.sampled_from(
    ["benchmark", "method", "mask", "buffer", "seed", "lr", "batch", "replay_batch", "alpha",
     "beta", "net", "metod", "store"]
)  # fmt: skip
_settings = st.dictionaries(_fields, _scalar, max_size=4)
_axes = st.dictionaries(_fields, _scalar | st.lists(_scalar, max_size=2), max_size=2)


@pytest.fixture(autouse=True)
def _outside_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # files with made-up names are written


def _is_an_answer_or_a_message(answer: Answer) -> bool:
    assert "Traceback" not in answer.text, answer.text
    assert "bug in remask" not in answer.text, answer.text
    assert answer.code in (0, 1, 2), answer
    assert answer.code == 0 or answer.text, "a failure without a word"
    return True


@pytest.mark.thorough
@fuzzed
@given(command=_commands, arguments=_arguments)
def test_any_arguments_get_an_answer_or_a_message(
    remask: CommandLine, command: list[str], arguments: list[str]
) -> None:
    small = SMALL if command == ["run"] else ()
    assert _is_an_answer_or_a_message(remask(*command, *small, *arguments))


def _toml(values: Mapping[str, object]) -> str:
    return "".join(f"{name} = {_toml_value(value)}\n" for name, value in values.items())


def _toml_value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(character):08x}" for character in value) + '"'
    return str(value).lower()


@fuzzed
@given(config=_settings.map(lambda fields: _toml(fields).encode()) | st.binary(max_size=300))
def test_any_config_file_gets_an_answer_or_a_message(remask: CommandLine, config: bytes) -> None:
    Path("run.toml").write_bytes(config)
    assert _is_an_answer_or_a_message(remask("run", "--config", "run.toml", *SMALL))


@pytest.mark.thorough
@fuzzed
@given(shared=_settings, grid=_axes, zipped=_axes)
def test_any_grid_gets_an_answer_or_a_message(
    remask: CommandLine,
    shared: dict[str, object],
    grid: dict[str, object],
    zipped: dict[str, object],
) -> None:
    text = _toml({"trials": 1, "epochs": 1, "limit": 5, **shared})
    for heading, axes in (("[grid]\n", grid), ("[[zip]]\n", zipped)):
        text += heading + _toml(axes) if axes else ""
    Path("grid.toml").write_text(text, encoding="utf-8")
    assert _is_an_answer_or_a_message(remask("sweep", "grid.toml", "--workers", "1"))


# Exports of ours with anything in them replaced

_json_value = st.one_of(
    st.none(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.sampled_from(
        ["[/foo]", "\x1b[2J", "=1+1", "9999-12-31T23:59:59-09:00", "\ud800", "x" * 600]
    ),
    st.lists(st.lists(st.floats(0, 100), min_size=1, max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=2),
)


def _replace(tree: Any, path: list[int], value: Any) -> None:
    """Walk down by the numbers of `path`, as far as it goes, and replace what is there."""
    for depth, step in enumerate(path):
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key = keys[step % len(keys)]
        if depth == len(path) - 1 or not isinstance(tree[key], dict | list) or not tree[key]:
            tree[key] = value
            return
        tree = tree[key]


@pytest.mark.thorough
@fuzzed
@given(path=st.lists(st.integers(0, 99), min_size=1, max_size=5), value=_json_value)
def test_any_import_gets_an_answer_or_a_message_and_leaves_a_store_that_works(
    remask: CommandLine, path: list[int], value: Any
) -> None:
    records = [*make_records(2, mask=-1, weights={"gamma": 0.5}), diverged(), failed()]
    trials = [trial_json(record) for record in records]
    _replace(trials, path, value)
    with suppress(ValueError, TypeError, KeyError):  # more than the hash shall be checked
        for trial in trials:
            trial["config_hash"] = TrialConfig.model_validate(trial["config"]).hash
    Path("trials.json").write_text(json.dumps({"trials": trials}))
    remask.store.unlink(missing_ok=True)
    remask.add(make_record(make_config(seed=99)))
    answer = remask("results", "import", "trials.json")
    assert _is_an_answer_or_a_message(answer)
    new = len(remask.records()) - 1
    assert f"{new} of them new" in answer.out if answer.code == 0 else new == 0, answer
    exports = [("results", "export", f"out.{ending}") for ending in ("csv", "json", "tex")]
    for command in (("results", "list"), ("results", "compare"), *exports, ("report", "out.html")):
        assert "\x1b" not in remask.succeed(*command).out
    again = remask("results", "import", "out.json")
    assert f"{new + 1} trials read, 0 of them new" in again.out, again
