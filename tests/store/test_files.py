"""The store and its file: what it opens, what it refuses, and what it never harms."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from remask.experiments.doctor import examine
from remask.store import Store, StoreError
from remask.store.database import VERSION, StoreMovedError
from remask.store.store import COLUMNS
from tests.command_line import CommandLine
from tests.store.store_samples import contents, make_config, make_record, make_records

PAGE = 4096


def filled(path: Path, number: int = 5) -> Path:
    with Store(path) as store:
        store.add_all(make_records(number))
    return path


def refusal(path: Path) -> str:
    """The error when the store is opened; nothing may have changed by then."""
    before = contents(path.parent)
    with pytest.raises(StoreError) as caught:
        Store(path)
    assert contents(path.parent) == before
    assert str(path) in str(caught.value)
    return str(caught.value)


def diagnoses(path: Path) -> list[str]:
    return [symptom.state for symptom in examine(path) if symptom.subject == "store"]


@contextmanager
def without_privileges() -> Iterator[Path]:
    """A folder in which permissions count, also when root runs the tests."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = os.geteuid() == 0
        if root:
            os.chown(folder, 65534, 65534)
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o700)


# Opening


def test_opening_makes_the_file_and_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "50% & more?" / "results #1.db"
    with pytest.raises(StoreError, match=r"there are no results at .*results #1\.db"):
        Store(path, create=False)
    assert not path.parent.exists()
    assert filled(path).is_file()
    with Store(path, create=False) as store:
        assert store.count() == 5
        # Commits wait for the disk, and readers do not wait for writers.
        asked = [
            store._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "busy_timeout")
        ]
        assert asked == ["wal", 2, 30_000]  # 2: full
    assert list(path.parent.iterdir()) == [path]


# Refusing


@pytest.mark.parametrize("junk", [b"x", b"seed,accuracy\n1,99\n" * 1000, b"SQLite format 3\0"])
def test_a_file_of_another_kind_is_refused_and_unchanged(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "results.db"
    path.write_bytes(junk)
    assert "left as it is" in refusal(path)


def test_a_truncated_or_overwritten_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = filled(tmp_path / "results.db", 40)
    whole = path.read_bytes()
    assert len(whole) > 8 * PAGE
    for length in (1, 15, 16, 100, 101, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, len(whole) - PAGE):
        path.write_bytes(whole[:length])
        assert "left as it is" in refusal(path)
    path.write_bytes(whole[:PAGE] + bytes(PAGE) + whole[2 * PAGE :])
    assert "is damaged" in refusal(path)
    assert diagnoses(path) == ["wrong"]


@pytest.mark.processes
def test_a_damaged_file_with_a_leftover_log_is_left_alone(tmp_path: Path) -> None:
    path = filled(tmp_path / "results.db", 40)
    whole = path.read_bytes()
    with Store(path) as store:
        store.add(make_record(make_config(seed=99)))
        log = Path(f"{path}-wal")
        left = log.read_bytes()
    assert left
    log.write_bytes(left)
    path.write_bytes(whole[: 5 * PAGE])
    assert "is damaged" in refusal(path)
    # SQLite would delete the log if the file beside it were empty or missing.
    path.write_bytes(b"")
    assert "results.db-wal beside it has contents" in refusal(path)
    path.unlink()
    assert "results.db-wal beside it has contents" in refusal(path)


def test_the_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE bookmarks (address TEXT)")
    assert "of another program" in refusal(path)


@pytest.mark.parametrize(
    ("version", "remedy"), [(VERSION - 1, "Choose another"), (VERSION + 1, "Upgrade remask")]
)
def test_a_store_of_another_version_is_refused(tmp_path: Path, version: int, remedy: str) -> None:
    path = filled(tmp_path / "results.db", 1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    assert remedy in refusal(path)
    assert diagnoses(path) == ["wrong"]


def test_a_folder_a_pipe_and_a_path_through_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    assert "is a folder" in refusal(tmp_path / "folder")
    assert "is a device or pipe" in refusal(tmp_path / "pipe")
    assert "Not a directory" in refusal(tmp_path / "file" / "results.db")


def test_a_store_that_cannot_be_written_says_what_to_do_and_can_be_read() -> None:
    with without_privileges() as folder:
        path = filled(folder / "results.db")
        before = contents(folder)
        path.chmod(0o400)
        folder.chmod(0o500)
        assert "copy it to another folder" in refusal(path)
        assert "Fix the permissions" in refusal(folder / "new.db")
        assert "Fix the permissions" in refusal(folder / "sub" / "new.db")
        for mode in (0o500, 0o700):  # of the folder
            folder.chmod(mode)
            with Store(path, create=False) as store:
                assert len(list(store.records())) == store.count() == 5
                assert store.find(make_records(1)[0].config_hash[:12]).seed == 0
                with pytest.raises(StoreError, match="is read-only"):
                    store.add(make_record(make_config(seed=9)))
        assert contents(folder) == before
        path.chmod(0)
        with pytest.raises(StoreError, match="Fix the permissions"):
            Store(path)


def test_a_read_only_store_whose_newest_results_are_in_its_log_says_so() -> None:
    with without_privileges() as folder:
        path = filled(folder / "results.db")
        Path(f"{path}-wal").write_bytes(b"something")
        Path(f"{path}-shm").unlink(missing_ok=True)
        folder.chmod(0o500)
        with pytest.raises(StoreError, match="Copy both to another folder"):
            Store(path, create=False)


# Damaged rows


@pytest.mark.parametrize("column", COLUMNS)
def test_a_change_of_any_column_is_found(remask: CommandLine, column: str) -> None:
    path = filled(remask.store, 3)
    with closing(sqlite3.connect(path)) as connection, connection:
        (value,) = connection.execute(
            f"SELECT {column} FROM trials NOT INDEXED WHERE seed = 1"
        ).fetchone()
        changed: object = 7 if value is None else None
        if column == "status":
            changed = "diverged"
        elif column == "details":
            changed = value.replace("Linux", "linux")  # which is a valid record
        elif isinstance(value, str):
            changed = value[1:] or "x"
        elif isinstance(value, bytes):
            changed = bytes([value[0] ^ 1]) + value[1:]
        elif changed is None:
            changed = value + 1
        connection.execute(f"UPDATE trials SET {column} = ? WHERE seed = 1", [changed])
    found: list[StoreError] = []
    with Store(path) as store:
        assert len(list(store.records(damaged=found))) == 2
        (error,) = found
        assert "is damaged" in str(error)
        with pytest.raises(StoreError, match="is damaged"):
            list(store.records())
        listed = len(list(store.summaries(damaged=[])))
    assert listed == (3 if column == "details" else 2)
    assert diagnoses(path) == ["ok", "wrong"]


def test_a_damaged_row_is_named_and_others_are_shown(remask: CommandLine, tmp_path: Path) -> None:
    filled(remask.store, 3)
    with closing(sqlite3.connect(remask.store)) as connection, connection:
        connection.execute("UPDATE trials SET packed = CAST(x'fffe' AS TEXT) WHERE seed = 1")
    config_hash = make_record(make_config(seed=1)).config_hash
    for command in (
        ("results", "list"),
        ("results", "export", str(tmp_path / "out.json")),
        ("report", str(tmp_path / "out.html")),
    ):
        assert f"results delete --hash {config_hash}" in remask.refusal(*command)
    assert "trials: 2" in remask("results", "list").out
    remask.succeed("results", "delete", "--hash", config_hash, "--yes")
    remask.succeed("results", "list")


# Trouble while writing
def test_a_store_locked_by_another_writer_says_so_and_works_again_later(tmp_path: Path) -> None:
    path = filled(tmp_path / "results.db")
    other = sqlite3.connect(path, isolation_level=None)
    with closing(other), Store(path, timeout=0.05) as store:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="is locked: another process has been writing"):
            store.add(make_record(make_config(seed=9)))
        assert store.count() == 5
        other.execute("COMMIT")
        assert store.add(make_record(make_config(seed=9)))


@pytest.mark.parametrize("what", ["deleted", "replaced", "relinked"])
def test_a_store_whose_file_is_gone_can_still_be_read(tmp_path: Path, what: str) -> None:
    first, second = make_records(2)
    real, path = filled(tmp_path / "real.db", 1), tmp_path / "results.db"
    path.symlink_to(real)
    with Store(path) as store:
        assert not store.add(first)
        if what == "deleted":
            real.unlink()
        else:
            taken = real if what == "replaced" else path
            filled(tmp_path / "other.db", 3).replace(taken)
        with pytest.raises(StoreMovedError, match="moved, deleted or replaced"):
            store.check_in_place()
        with pytest.raises(StoreMovedError, match="not there"):
            store.add(second)
        assert {record.config for record in store.held()} == {first.config, second.config}


@pytest.mark.parametrize("what", ["moved", "replaced", "removed"])
def test_the_log_of_a_store_that_went_away_does_not_harm_the_next_file_at_its_path(
    tmp_path: Path, what: str
) -> None:
    path = filled(tmp_path / "results.db", 40)  # which is no longer in the log
    with Store(path) as store:
        store.add_all(make_records(20, buffer=500))
        if what == "removed":
            path.unlink()
        else:
            path.rename(tmp_path / "elsewhere.db")
        if what == "replaced":
            filled(tmp_path / "other.db", 3).rename(path)
    with Store(path) as following:
        assert following.count() == (3 if what == "replaced" else 0)
        assert following.add_all(make_records(5, buffer=700)) == 5
    with Store(path) as following:
        assert len(list(following.records())) == following.count()
    if what != "removed":
        with Store(tmp_path / "elsewhere.db") as moved:
            assert moved.count() == 60
