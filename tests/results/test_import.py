"""Trials from an exported file."""

import json
from pathlib import Path
from typing import Any

import pytest

from remask.results import Store, StoreError, export, read_export
from tests.command_line import CommandLine
from tests.results.store_samples import (
    contents,
    diverged,
    failed,
    make_config,
    make_record,
    make_records,
)

_RECORDS = [
    *make_records(2, mask=float("-inf")),
    diverged(make_config(seed=7)),
    failed(make_config(seed=8)),
]


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    path = tmp_path / "trials.json"
    export(_RECORDS, "json", path)
    return path


def test_what_was_exported_is_read_back_as_it_was(exported: Path) -> None:
    assert read_export(exported) == _RECORDS


def test_an_import_adds_what_the_store_lacks_and_changes_nothing(
    remask: CommandLine, exported: Path
) -> None:
    mine = make_record(_RECORDS[0].config, seconds=1.0)
    with Store(remask.store) as store:
        store.add(mine)
    answer = remask("results", "import", str(exported))
    assert answer.code == 0
    assert "4 trials read, 3 of them new" in answer.text
    with Store(remask.store) as store:
        assert store.count() == 4
        assert store.get(mine.config_hash) == mine
    assert "0 of them new" in remask("results", "import", str(exported)).text


def test_the_published_results_are_imported_with_their_tasks(
    repository: Path, remask: CommandLine
) -> None:
    published = repository / "docs" / "data" / "split-mnist.json"
    answer = remask("results", "import", str(published))
    assert answer.code == 0, answer.err
    with Store(remask.store) as store:
        tasks = {record.tasks for record in store.records()}
    assert tasks == {((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))}


def _broken(change: str, value: Any) -> Any:
    def break_it(content: dict[str, Any]) -> Any:
        content["trials"][1][change] = value
        return content

    return break_it


@pytest.mark.parametrize(
    ("break_it", "expected"),
    [
        (lambda _: [], "has no trials"),
        (lambda _: {"trials": 3}, "has no trials"),
        (lambda _: {"trials": ["x"]}, "trial 0 of"),
        (_broken("seconds", -1), "trial 1 of"),
        (_broken("tasks", [[0, 1], [2, 4]]), "each task needs classes from 0 to 3"),
        (_broken("class_il", [[1.0]]), "square matrices"),
        (_broken("config_hash", "0" * 64), "its hash is not that of its config"),
        (_broken("unknown", 1), "unknown"),
    ],
)
def test_a_damaged_export_is_refused_and_nothing_of_it_is_stored(
    remask: CommandLine, exported: Path, break_it: Any, expected: str
) -> None:
    exported.write_text(json.dumps(break_it(json.loads(exported.read_text()))))
    with Store(remask.store) as store:
        store.add(make_record())
    before = contents(remask.store.parent)
    answer = remask("results", "import", str(exported))
    assert answer.code == 1
    assert expected in answer.text
    assert contents(remask.store.parent) == before


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"{", b"[" * 100_000])
def test_what_is_no_json_is_refused(exported: Path, content: bytes) -> None:
    exported.write_bytes(content)
    with pytest.raises(StoreError, match="is not JSON"):
        read_export(exported)


def test_a_file_that_is_not_there_gets_a_message(remask: CommandLine, tmp_path: Path) -> None:
    answer = remask("results", "import", str(tmp_path / "nowhere.json"))
    assert answer.code == 1
    assert "cannot be read" in answer.text
