"""The store and its file: what it opens, what it refuses, and what it never harms."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from remask.results import Store, StoreError, StoreMovedError
from tests.results.store_samples import contents, make_config, make_record, make_records


def filled(path: Path, number: int = 5) -> Path:
    with Store(path) as store:
        for record in make_records(number):
            store.add(record)
    return path


def refusal(path: Path) -> str:
    """What is said when the store is opened; nothing may have changed by then."""
    before = contents(path.parent)
    with pytest.raises(StoreError) as caught:
        Store(path)
    assert contents(path.parent) == before
    message = str(caught.value)
    assert str(path) in message
    return message


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
    assert filled(path).is_file()
    with Store(path) as store:
        assert store.count() == 5
    assert list(path.parent.iterdir()) == [path]


def test_commits_wait_for_the_disk_and_readers_do_not_wait_for_writers(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        asked = {
            name: store._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    full = 2
    assert asked == {
        "journal_mode": "wal",
        "synchronous": full,
        "foreign_keys": 1,
        "busy_timeout": 30_000,
    }


def test_an_empty_file_is_taken_for_a_store_that_was_about_to_be_made(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    path.touch()
    assert filled(path).stat().st_size > 0


def test_a_store_that_must_be_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "results.db"
    with pytest.raises(StoreError, match=r"there are no results at .*results\.db"):
        Store(path, create=False)
    assert not path.parent.exists()
    filled(path)
    with Store(path, create=False) as store:
        assert store.count() == 5


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.db")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed database"):
        store.add(make_record())


# Refusing


@pytest.mark.parametrize("junk", [b"x", b"seed,accuracy\n1,99\n" * 1000, b"SQLite format 3\0"])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "results.db"
    path.write_bytes(junk)
    assert "left as it is" in refusal(path)


def test_a_truncated_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = filled(tmp_path / "results.db", 40)
    whole = path.read_bytes()
    page = 4096
    assert len(whole) > 8 * page
    for length in (1, 15, 16, 100, 101, page - 1, page, page + 1, 3 * page, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "left as it is" in refusal(path)


def test_a_file_with_overwritten_pages_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = filled(tmp_path / "results.db", 40)
    whole = bytearray(path.read_bytes())
    whole[4096:8192] = bytes(4096)
    path.write_bytes(whole)
    assert "is damaged" in refusal(path)


@pytest.mark.processes
def test_a_damaged_file_with_a_leftover_log_is_left_alone(tmp_path: Path) -> None:
    path = filled(tmp_path / "results.db", 40)
    script = (
        "import os, sys; from pathlib import Path; from tests.results.store_samples import *;"
        "from remask.results import Store; store = Store(Path(sys.argv[1]));"
        "store.add(make_record(make_config(seed=99))); os._exit(0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, env=environment)
    log = Path(f"{path}-wal")
    assert log.stat().st_size > 0
    path.write_bytes(path.read_bytes()[: 5 * 4096])
    assert "is damaged" in refusal(path)
    # SQLite would throw the log away if the file beside it were empty or gone.
    path.write_bytes(b"")
    assert "results.db-wal beside it has contents" in refusal(path)
    path.unlink()
    assert "results.db-wal beside it has contents" in refusal(path)


def test_the_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE bookmarks (address TEXT)")
    assert "of another program" in refusal(path)


def test_a_folder_a_pipe_and_a_path_through_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    assert "is a folder" in refusal(tmp_path / "folder")
    assert "is a device or pipe" in refusal(tmp_path / "pipe")
    assert "Not a directory" in refusal(tmp_path / "file" / "results.db")


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    with without_privileges() as folder:
        folder.chmod(0o500)
        assert "Fix the permissions" in refusal(folder / "results.db")
        assert "Fix the permissions" in refusal(folder / "sub" / "results.db")


def test_a_store_in_a_folder_that_became_read_only_says_what_to_do() -> None:
    with without_privileges() as folder:
        path = filled(folder / "results.db")
        folder.chmod(0o500)
        assert "copy it to another folder" in refusal(path)


def test_a_read_only_file_can_be_read_but_not_added_to() -> None:
    with without_privileges() as folder:
        path = filled(folder / "results.db")
        before = path.read_bytes()
        path.chmod(0o400)
        with Store(path) as store:
            assert len(list(store.records())) == 5
            with pytest.raises(StoreError, match="is read-only"):
                store.add(make_record(make_config(seed=9)))
            assert store.count() == 5
        assert path.read_bytes() == before


def test_a_store_where_nothing_can_be_written_can_be_read_if_no_new_one_is_asked_for() -> None:
    with without_privileges() as folder:
        path = filled(folder / "results.db")
        before = contents(folder)
        path.chmod(0o400)
        folder.chmod(0o500)
        with Store(path, create=False) as store:
            assert len(list(store.records())) == store.count() == 5
            assert store.find(make_records(1)[0].config_hash[:12]).seed == 0
            with pytest.raises(StoreError, match="is read-only"):
                store.add(make_record(make_config(seed=9)))
        assert contents(folder) == before


def test_a_store_on_a_disc_whose_newest_results_are_in_its_log_says_so() -> None:
    with without_privileges() as folder:
        path = filled(folder / "results.db")
        Path(f"{path}-wal").write_bytes(b"something")
        Path(f"{path}-shm").unlink(missing_ok=True)
        folder.chmod(0o500)
        with pytest.raises(StoreError, match="Copy both to another folder"):
            Store(path, create=False)


def test_a_file_that_cannot_be_read_is_refused() -> None:
    with without_privileges() as folder:
        path = filled(folder / "results.db")
        path.chmod(0)
        with pytest.raises(StoreError, match="Permission denied"):
            Store(path)


# Trouble while writing


def test_a_full_disk_loses_nothing_that_was_stored(tmp_path: Path) -> None:
    path = filled(tmp_path / "results.db")
    stored = []
    with Store(path) as store:
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 3}")
        with pytest.raises(StoreError, match="disk is full"):  # noqa: PT012
            for seed in range(100, 200):
                assert store.add(make_record(make_config(seed=seed)))
                stored.append(seed)
        assert stored
        store._connection.execute("PRAGMA max_page_count = 1000000")
        assert store.add(make_record(make_config(seed=200)))
    with Store(path) as store:
        assert [record.seed for record in store.records()] == [*range(5), *stored, 200]


def test_opening_waits_for_a_process_that_is_making_the_store(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("PRAGMA user_version = 0")  # makes the file more than empty
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.3, lambda: other.execute("COMMIT"))
        release.start()
        with Store(path) as store:
            assert store.add(make_record())
        release.join()


def test_a_store_locked_by_another_writer_says_so_and_works_again_later(tmp_path: Path) -> None:
    path = filled(tmp_path / "results.db")
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        Store(path, timeout=0.05) as store,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="is locked: another process has been writing"):
            store.add(make_record(make_config(seed=9)))
        assert store.count() == 5
        other.execute("COMMIT")
        assert store.add(make_record(make_config(seed=9)))


@pytest.mark.parametrize("what", ["deleted", "moved", "replaced", "replaced behind a link"])
def test_a_store_whose_file_is_no_longer_there_says_so_and_can_still_be_read(
    tmp_path: Path, what: str
) -> None:
    first, second = make_records(2)
    real, path = filled(tmp_path / "real.db", 1), tmp_path / "results.db"
    path.symlink_to(real)
    with Store(path) as store:
        assert not store.add(first)
        if what == "deleted":
            real.unlink()
        elif what == "moved":
            real.rename(tmp_path / "elsewhere.db")
        elif what == "replaced":
            filled(tmp_path / "other.db", 3).replace(real)
        else:
            path.unlink()
            path.symlink_to(filled(tmp_path / "other.db", 3))
        with pytest.raises(StoreMovedError, match="moved, deleted or replaced"):
            store.check_in_place()
        with pytest.raises(StoreMovedError, match="not there"):
            store.add(second)
        assert {record.config for record in store.held()} == {first.config, second.config}


@pytest.mark.parametrize("what", ["moved", "replaced", "removed"])
def test_the_log_of_a_store_that_went_away_does_no_harm_to_the_next_file_in_its_place(
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
    with Store(path) as next_one:
        assert next_one.count() == (3 if what == "replaced" else 0)
        assert next_one.add_all(make_records(5, buffer=700)) == 5
    with Store(path) as next_one:
        assert len(list(next_one.records())) == next_one.count()
    if what != "removed":
        with Store(tmp_path / "elsewhere.db") as moved:
            assert moved.count() == 60
