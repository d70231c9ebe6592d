"""Merging stores: all or none, and the other one is only read."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from remask.store import Store, StoreError, merge
from tests.command_line import CommandLine
from tests.store.store_samples import contents, failed, make_config, make_record

WORSE = [[50.0, float("nan")], [10.0, 20.0]]


def _store(path: Path, *records: object) -> Path:
    with Store(path) as store:
        store.add_all(records)  # type: ignore[arg-type]
    return path


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A store with the seeds 1 and 2, in a folder by itself."""
    (tmp_path / "there").mkdir()
    return _store(
        tmp_path / "there" / "other.db",
        *(make_record(make_config(seed=seed), seconds=99.0) for seed in (1, 2)),
    )


def test_new_trials_are_added_and_the_other_store_is_only_read(tmp_path: Path, other: Path) -> None:
    path = _store(tmp_path / "a.db", *(make_record(make_config(seed=seed)) for seed in (0, 1)))
    before = contents(other.parent)
    with Store(path) as store:
        merged = merge(store, other)
        assert (merged.read, merged.new, merged.replaced, merged.kept) == (2, 1, 0, 0)
        assert [(r.seed, r.seconds) for r in store.records()] == [(0, 12.5), (1, 12.5), (2, 99.0)]
        assert merge(store, other).new == 0
    assert contents(other.parent) == before


@pytest.mark.parametrize(("prefer", "accuracy"), [("ours", 99.0), ("theirs", 50.0)])
def test_a_trial_with_another_result_is_named_and_nothing_is_merged_unless_one_is_preferred(
    remask: CommandLine, tmp_path: Path, prefer: str, accuracy: float
) -> None:
    mine = make_record(make_config(seed=1))
    theirs = make_record(make_config(seed=1), class_il=WORSE)
    _store(remask.store, mine)
    path = _store(tmp_path / "other.db", make_record(make_config(seed=0)), theirs)
    message = remask.refusal("results", "merge", str(path))
    assert f"{mine.config_hash[:12]} (ER on split-digits, buffer 200, seed 1)" in message
    assert "Nothing was merged" in message
    assert remask.records() == [mine]
    answer = remask.succeed("results", "merge", str(path), "--prefer", prefer)
    assert "2 trials read, 1 of them new, 1 " in answer.out
    assert [record.class_il[0][0] for record in remask.records()] == [99.0, accuracy]


def test_a_failed_trial_gives_way_and_replaces_nothing(tmp_path: Path) -> None:
    first, second = make_config(seed=0), make_config(seed=1)
    ours = _store(tmp_path / "a.db", failed(first), make_record(second))
    theirs = _store(tmp_path / "b.db", make_record(first), failed(second))
    with Store(ours) as store:
        assert merge(store, theirs).new == 1
        assert [record.status for record in store.records()] == ["finished", "finished"]


def test_what_another_process_has_just_written_is_merged_too(tmp_path: Path, other: Path) -> None:
    with Store(other) as writing, Store(tmp_path / "a.db") as store:
        writing.add(make_record(make_config(seed=9)))  # it is in the log, not in the file
        assert merge(store, other).read == 3


def test_what_is_damaged_or_no_store_or_the_store_itself_is_refused(
    remask: CommandLine, tmp_path: Path, other: Path
) -> None:
    damaged = tmp_path / "damaged.db"
    shutil.copy(other, damaged)
    with sqlite3.connect(damaged) as connection:
        connection.execute("UPDATE trials SET details = '[]' WHERE seed = 2")
    connection.close()
    text = tmp_path / "text.db"
    text.write_text("no store")
    for path, reason in (
        (damaged, "is damaged"),
        (text, "not an SQLite file"),
        (tmp_path / "nowhere.db", "no such file"),
    ):
        message = remask.refusal("results", "merge", str(path))
        assert reason in message
        assert str(path) in message.replace(" ", "")
    with Store(remask.store) as store:
        assert store.count() == 0
        with pytest.raises(StoreError, match="the store itself"):
            merge(store, remask.store)
