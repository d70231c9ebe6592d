"""A store that was interrupted, or in which bytes were changed."""

import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from remask.experiments.doctor import examine
from remask.results import Store, StoreError, read_store
from remask.results.schema import COLUMNS
from tests.command_line import CommandLine
from tests.results.store_samples import contents, make_record, make_records

_KILLED_WHILE_CREATING = """
import resource, signal, sys
from remask.results import Store
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
Store(sys.argv[1])
"""


def _kill_while_creating(path: Path, largest: int) -> None:
    """The kernel kills a process that writes more than `largest` bytes into a file."""
    command = [sys.executable, "-c", _KILLED_WHILE_CREATING, str(path), str(largest)]
    ended = subprocess.run(command, check=False, preexec_fn=_no_core, capture_output=True)
    assert ended.returncode == -signal.SIGXFSZ, ended.stderr


def _no_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@pytest.mark.processes
@pytest.mark.parametrize("largest", [0, 10, 300, 600, 1024, 3000, 4096, 5000, 8192, 20_000])
def test_a_store_whose_creation_was_killed_is_usable(tmp_path: Path, largest: int) -> None:
    path = tmp_path / "results.db"
    _kill_while_creating(path, largest)
    before = contents(tmp_path)
    (symptom,) = (found for found in examine(path) if found.subject == "store")
    assert symptom.state in ("ok", "note")
    assert contents(tmp_path) == before
    with Store(path) as store:
        assert store.add(make_record())
    assert [record.seed for record in read_store(path)] == [1]


@pytest.mark.processes
def test_a_kill_leaves_a_journal_that_doctor_reports(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    _kill_while_creating(path, 1024)
    assert path.stat().st_size == 1024
    assert Path(f"{path}-journal").stat().st_size > 0
    (symptom,) = (found for found in examine(path) if found.subject == "store")
    assert symptom.state == "note"
    assert "its creation was interrupted" in symptom.text
    with Store(path, create=False) as store:  # as `results list` opens it
        assert store.count() == 0


def test_the_journal_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE bookmarks (address TEXT)")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO bookmarks VALUES (?)", [("x" * 2000,)] * 50)
        interrupted = tmp_path / "copy" / "bookmarks.db"
        interrupted.parent.mkdir()
        shutil.copy(path, interrupted)
        shutil.copy(f"{path}-journal", f"{interrupted}-journal")
        connection.execute("ROLLBACK")
    before = contents(interrupted.parent)
    assert len(before) == 2
    with pytest.raises(StoreError, match="of another program"):
        Store(interrupted)
    assert contents(interrupted.parent) == before


@pytest.mark.parametrize("column", COLUMNS)
def test_a_change_of_any_column_is_found(tmp_path: Path, column: str) -> None:
    path = tmp_path / "results.db"
    with Store(path) as store:
        store.add_all(make_records(2))
    with closing(sqlite3.connect(path)) as connection, connection:
        (value,) = connection.execute(
            f"SELECT {column} FROM trials WHERE seed = 1 AND status IS NOT NULL"
        ).fetchone()
        if column == "status":
            changed: object = "diverged"
        elif value is None:
            changed = 7
        elif isinstance(value, str):
            changed = chr(ord(value[0]) ^ 1) + value[1:]
        elif isinstance(value, bytes):
            changed = bytes([value[0] ^ 1]) + value[1:]
        else:
            changed = value + 1
        connection.execute(
            f"UPDATE trials SET {column} = ? WHERE rowid = (SELECT max(rowid) FROM trials)",
            [changed],
        )
    found: list[StoreError] = []
    with Store(path) as store:
        assert len(list(store.sound_records(found))) == 1
    assert len(found) == 1
    assert "is damaged" in str(found[0])
    states = [symptom.state for symptom in examine(path) if symptom.subject == "store"]
    assert states == ["ok", "wrong"]


def test_a_list_finds_a_changed_summary(remask: CommandLine) -> None:
    with Store(remask.store) as store:
        store.add_all(make_records(3))
    for column in ("scores", "summary", "cell"):
        with closing(sqlite3.connect(remask.store)) as connection, connection:
            connection.execute(
                f"UPDATE trials SET {column} = substr({column}, 2) || substr({column}, 1, 1) "
                f"WHERE seed = 1"
            )
    answer = remask("results", "list")
    assert answer.code == 1
    assert "its summary does not match its digest" in answer.text
    assert "trials: 2" in answer.out


def test_a_list_reads_the_index_alone(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        store.add_all(make_records(3))
        queries: list[str] = []
        found = list(store.summaries([], {"method": "er", "status": "finished"}))
        assert len(found) == 3
    from remask.results.store import _ORDER, _SELECT_SUMMARY

    with closing(sqlite3.connect(tmp_path / "results.db")) as connection:
        query = f"EXPLAIN QUERY PLAN {_SELECT_SUMMARY} WHERE status IS 'finished' {_ORDER}"
        queries = [row[3] for row in connection.execute(query)]
    assert queries == ["SCAN trials USING COVERING INDEX trials_in_order"]


@pytest.mark.parametrize("version", [1, 6, 8])
def test_a_store_of_another_schema_version_is_refused_and_left_alone(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "results.db"
    with Store(path) as store:
        store.add(make_record())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = contents(tmp_path)
    remedy = "Upgrade remask" if version > 7 else "results export"
    with pytest.raises(StoreError, match=f"schema version {version}.*left as it is.*{remedy}"):
        Store(path)
    (symptom,) = (found for found in examine(path) if found.subject == "store")
    assert symptom.state == "wrong"
    assert contents(tmp_path) == before
