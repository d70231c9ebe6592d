"""Old stores are brought up to date, with a backup; new ones are refused."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from remask.benchmarks import load_benchmark
from remask.config import TrialConfig
from remask.results import Store, StoreError, TrialRecord, database
from remask.results.database import APPLICATION_ID, Migration
from remask.results.schema import MIGRATIONS, to_row
from tests.results.store_samples import (
    contents,
    failed,
    make_config,
    make_record,
    make_records,
    trial_with_accuracy,
)


def add_note(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE trials ADD COLUMN note TEXT NOT NULL DEFAULT ''")
    connection.execute("UPDATE trials SET note = 'seed ' || seed")


def add_author(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE trials ADD COLUMN author TEXT")


def break_down(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM trials")
    raise sqlite3.OperationalError("the made-up migration broke down")


LATER: Sequence[Migration] = (*MIGRATIONS, add_note, add_author)
NOW, THEN = len(MIGRATIONS), len(LATER)
"""The version that this remask writes, and that of a later one."""
BACKUP = f"results.db.v{NOW}.bak"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "results.db"
    with Store(path) as store:
        for record in make_records(5):
            store.add(record)
    return path


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_store_has_the_latest_version_and_needs_no_backup(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db", migrations=LATER):
        pass
    assert version(tmp_path / "results.db") == THEN
    assert names(tmp_path) == ["results.db"]


def test_an_old_store_is_migrated_and_keeps_its_trials(path: Path) -> None:
    with Store(path, migrations=LATER) as store:
        assert list(store.records()) == make_records(5)
        assert store.add(make_record(make_config(seed=9)))
    assert version(path) == THEN
    with closing(sqlite3.connect(path)) as connection:
        notes = connection.execute("SELECT note, author FROM trials WHERE seed < 9 ORDER BY seed")
        assert notes.fetchall() == [(f"seed {seed}", None) for seed in range(5)]


def test_the_old_store_is_kept_as_a_backup_that_can_be_opened(path: Path) -> None:
    with Store(path, migrations=LATER):
        pass
    assert names(path.parent) == ["results.db", BACKUP]
    backup = path.with_name(BACKUP)
    with Store(backup) as store:
        assert list(store.records()) == make_records(5)
    assert version(backup) == NOW


def test_an_earlier_backup_is_not_overwritten(path: Path) -> None:
    for name in (BACKUP, f"{BACKUP}2"):
        path.with_name(name).write_text("precious")
    with Store(path, migrations=LATER):
        pass
    assert path.with_name(BACKUP).read_text() == "precious"
    assert path.with_name(f"{BACKUP}2").read_text() == "precious"
    assert version(path.with_name(f"{BACKUP}3")) == NOW


def test_a_store_that_is_up_to_date_is_not_backed_up(path: Path) -> None:
    with Store(path):
        pass
    assert names(path.parent) == ["results.db"]


def test_a_step_that_breaks_down_undoes_the_steps_before_it(path: Path) -> None:
    with pytest.raises(StoreError, match="the made-up migration broke down"):
        Store(path, migrations=(*MIGRATIONS, add_note, break_down))
    assert version(path) == NOW
    with Store(path, migrations=LATER) as store:
        assert list(store.records()) == make_records(5)


def test_a_backup_that_cannot_be_written_stops_the_migration(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(StoreError, match=r"cannot write the backup .*No space .*not migrated"):
        Store(path, migrations=LATER)
    assert names(path.parent) == ["results.db"]
    assert path.read_bytes() == before


@pytest.mark.processes
def test_a_process_that_dies_while_migrating_changes_nothing(path: Path) -> None:
    script = (
        "import os, sys; from remask.results import Store; from remask.results.schema import *\n"
        "def die(connection):\n"
        "    connection.execute('DELETE FROM trials'); os._exit(9)\n"
        "Store(sys.argv[1], migrations=(*MIGRATIONS, die))"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode == 9
    assert version(path) == NOW
    with Store(path) as store:
        assert list(store.records()) == make_records(5)


def test_a_store_of_a_later_remask_is_refused_and_left_alone(path: Path) -> None:
    with Store(path, migrations=LATER):
        pass
    before = contents(path.parent)
    with pytest.raises(StoreError) as caught:
        Store(path)
    assert f"{path} has schema version {THEN}" in str(caught.value)
    assert f"knows versions up to {NOW}" in str(caught.value)
    assert "Upgrade remask" in str(caught.value)
    assert contents(path.parent) == before


def test_a_store_that_is_migrated_while_open_is_no_longer_added_to(path: Path) -> None:
    with Store(path) as old:
        with Store(path, migrations=LATER) as new:
            assert new.count() == 5
        with pytest.raises(StoreError, match="Upgrade remask"):
            old.add(make_record(make_config(seed=9)))
        assert old.count() == 5


def test_a_store_that_another_process_migrates_meanwhile_is_not_migrated_twice(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_seen_the_old_version = threading.Event()

    def writing(connection: sqlite3.Connection) -> AbstractContextManager[None]:
        has_seen_the_old_version.set()
        return real_writing(connection)

    real_writing = database.writing
    monkeypatch.setattr(database, "writing", writing)

    def open_it() -> int:
        with Store(path, migrations=LATER) as store:
            return store.count()

    with (
        ThreadPoolExecutor() as pool,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        waiting = pool.submit(open_it)
        assert has_seen_the_old_version.wait(60)
        assert not waiting.done()
        add_note(other)
        add_author(other)
        other.execute(f"PRAGMA user_version = {THEN}")
        other.execute("COMMIT")
        assert waiting.result(timeout=30) == 5
    assert names(path.parent) == ["results.db"]


@pytest.mark.processes
def test_processes_that_migrate_at_once_do_it_once(path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[2]); from remask.results import Store\n"
        "from tests.results.test_migrations import LATER\n"
        "sys.stdin.readline()\n"
        "with Store(sys.argv[1], migrations=LATER) as store: assert store.count() == 5"
    )
    command = [sys.executable, "-c", script, str(path), str(Path(__file__).parents[2])]
    several = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(3)]
    for process in several:
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait(timeout=60) for process in several] == [0, 0, 0]
    assert version(path) == THEN
    assert names(path.parent) == ["results.db", BACKUP]


# From what to what


FIRST_COLUMNS = (
    "config_hash", "benchmark", "method", "mask", "buffer", "seed", "config", "status",
    "diverged_at", "error", "class_il", "task_il", "confidence", "versions", "source_commit",
    "machine", "started", "seconds", "created",
)  # fmt: skip


def write_first_version(path: Path, records: Sequence[TrialRecord]) -> None:
    """The file that the first release would have written of these trials."""
    with closing(sqlite3.connect(path)) as connection:
        MIGRATIONS[0](connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        places = ", ".join(f":{name}" for name in FIRST_COLUMNS)
        connection.executemany(
            f"INSERT INTO trials ({', '.join(FIRST_COLUMNS)}) VALUES ({places})",
            [to_row(record) for record in records],
        )
        connection.commit()


def of_five_tasks(config: TrialConfig, **parts: Any) -> TrialRecord:
    return trial_with_accuracy(config, 50.0).model_copy(
        update={"tasks": None, "class_names": None, **parts}
    )


@pytest.mark.parametrize(
    "asked",
    [{}, {"class_order": 7}, {"class_order": (3, 1, 0, 2, 4, 5, 6, 7, 9, 8)}, {"limit": 3}],
    ids=["as it is", "drawn", "given", "less data"],
)
def test_the_tasks_of_the_first_version_s_trials_are_those_their_config_deals(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    path = tmp_path / "results.db"
    write_first_version(path, [of_five_tasks(make_config(**asked))])
    with Store(path) as store:
        (record,) = store.records()
    benchmark = load_benchmark("split-digits", **asked)
    assert record.tasks == benchmark.tasks
    assert record.class_names == benchmark.class_names == tuple("0123456789")
    assert record == of_five_tasks(
        make_config(**asked), tasks=record.tasks, class_names=record.class_names
    )


def test_what_the_first_version_s_trials_do_not_say_is_not_made_up(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    old = [
        of_five_tasks(make_config(benchmark="mine:data")),
        of_five_tasks(make_config(benchmark="split-digits", tasks=4)),  # yet five were measured
        failed(make_config(seed=3)),
    ]
    write_first_version(path, old)
    with Store(path) as store:
        assert {record.config_hash: record for record in store.records()} == {
            record.config_hash: record for record in old
        }


def test_a_damaged_trial_does_not_stop_the_others_from_being_migrated(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    sound, broken = of_five_tasks(make_config(seed=1)), of_five_tasks(make_config(seed=2))
    write_first_version(path, [sound, broken])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE trials SET class_il = '[[' WHERE seed = 2")
        connection.commit()
    with Store(path) as store:
        found = store.get(sound.config_hash)
        assert found is not None
        assert found.tasks is not None
        with pytest.raises(StoreError, match="is damaged"):
            store.get(broken.config_hash)


def test_a_store_of_the_first_version_gets_a_place_for_titles(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    write_first_version(path, [of_five_tasks(make_config())])
    with Store(path) as store:
        titled = make_record(make_config(seed=1, method="my:Own"), title="Own way")
        assert store.add(titled)
        assert [record.title for record in store.records()] == [None, "Own way"]
