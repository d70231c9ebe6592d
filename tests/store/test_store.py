"""The store as its users see it: what goes in comes out, once."""

import itertools
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from remask.errors import UnknownNameError
from remask.store import Store, StoreError, TrialRecord
from remask.store.store import to_row
from tests.store.store_samples import (
    diverged,
    failed,
    make_config,
    make_record,
    make_records,
    redigest,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results.db") as opened:
        yield opened


def _details(**changes: object) -> str:
    """The details of a row with these changes."""
    return json.dumps({**json.loads(to_row(make_record())[-1]), **changes})


# Adding and getting


def test_a_trial_is_stored_once(store: Store) -> None:
    first, second = make_record(seconds=1), make_record(seconds=2)
    assert store.add(first)
    assert not store.add(second)
    assert list(store.records()) == [first]
    assert store.add(second, replace=True)
    assert list(store.records()) == [second]


def test_a_failed_trial_gives_way_to_one_that_came_to_its_end(store: Store) -> None:
    for outcome in (make_record(make_config(seed=1)), diverged(make_config(seed=2))):
        assert store.add(failed(outcome.config, "first"))
        assert not store.is_done(outcome.config_hash)
        assert not store.add(failed(outcome.config, "second"))
        assert store.add(outcome)
        assert not store.add(failed(outcome.config, "third"))
        assert store.get(outcome.config_hash) == outcome
        assert store.is_done(outcome.config_hash)
    unknown = make_config(seed=9).hash
    assert (store.is_done(unknown), store.get(unknown)) == (False, None)


def test_a_trial_is_found_by_the_beginning_of_its_hash(store: Store) -> None:
    records = make_records(40)
    store.add_all(records)
    wanted = records[3].config_hash
    assert store.find(wanted[:12].upper()) == records[3]
    with pytest.raises(StoreError, match=r"no trial in .*results.db with a hash that .* 'ffffff'"):
        store.find("ffffff")
    with pytest.raises(StoreError, match="use at least 4 digits"):
        store.find("x%")
    seeds: dict[str, int] = {}
    for seed in range(100, 3000):  # until two hashes begin with the same four digits
        digits = make_config(seed=seed).hash[:4]
        if digits in seeds:
            break
        seeds[digits] = seed
    store.add_all(make_record(make_config(seed=each)) for each in (seeds[digits], seed))
    with pytest.raises(StoreError, match=r"several trials .* Give more of it"):
        store.find(digits)


# Filters and order


def test_records_come_in_the_same_order_however_they_were_added(tmp_path: Path) -> None:
    configs = [
        make_config(benchmark=benchmark, method=method, mask=mask, buffer=buffer, seed=seed)
        for benchmark in ("a", "b")
        for method, mask in (("er", None), ("er", "-inf"), ("er", -1), ("sgd", None))
        for buffer in (20, 100)
        for seed in (2, 10)
    ]
    records = [make_record(config) for config in configs]
    for name, order in (("one.db", records), ("two.db", records[::-1])):
        with Store(tmp_path / name) as store:
            store.add_all(order)
            assert list(store.records()) == records


@pytest.mark.parametrize(
    ("filters", "seeds"),
    [
        ({}, [0, 1, 2, 3]),
        ({"benchmark": "split-mnist"}, [1]),
        ({"method": "derpp"}, [2]),
        ({"mask": "none"}, [0, 1, 2]),
        ({"mask": "-inf"}, [3]),
        ({"mask": ["-inf", None]}, [0, 1, 2, 3]),
        ({"mask": -1}, []),
        ({"buffer": "500"}, [2]),
        ({"buffer": (200, 500), "method": ["er"]}, [0, 1, 3]),
        ({"seed": [0, 3]}, [0, 3]),
        ({"seed": []}, []),
        ({"status": "failed", "seed": 0}, []),
        ({"since": "2026-02-01"}, [2, 3]),
        ({"since": datetime(2026, 2, 1, 0, 0, 1, tzinfo=UTC)}, [3]),
    ],
)
def test_filters_choose_trials(store: Store, filters: dict[str, object], seeds: list[int]) -> None:
    store.add(make_record(make_config(seed=0)))
    store.add(failed(make_config(seed=1, benchmark="split-mnist")))
    boundary = datetime(2026, 2, 1, tzinfo=UTC)
    store.add(make_record(make_config(seed=2, method="derpp", buffer=500), created=boundary))
    later = boundary + timedelta(seconds=2)
    store.add(make_record(make_config(seed=3, mask="-inf"), created=later))
    assert sorted(record.seed for record in store.records(filters)) == seeds
    assert store.count(filters) == len(seeds)


OWN = "my_method:WeightedReplay"
SYSTEMS: dict[int, tuple[str, str | float | None]] = {
    0: ("derpp", None),
    1: ("derpp", -1.0),
    2: ("derpp", "-inf"),
    3: ("er", None),
    4: ("er_ace", None),
    5: ("icarl", -1e9),
    6: (OWN, None),
    7: (OWN, -1.0),
    8: ("from-python", -0.5),
}
"""Seed -> method and mask."""


@pytest.fixture
def systems(store: Store) -> Store:
    for seed, (method, mask) in SYSTEMS.items():
        store.add(make_record(make_config(seed=seed, method=method, mask=mask)))
    return store


@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        ("derpp", [0, 1, 2]),
        ("DER++", [0, 1, 2]),
        ("MSDER++", [1, 2]),
        ("MSDER++(-1)", [1]),
        ("MSDER++(-inf)", [2]),
        ("MSDER++(\N{MINUS SIGN}∞)", [2]),
        ("mser", []),
        ("ER-ACE", [4]),
        (OWN, [6, 7]),
        ("WeightedReplay", [6, 7]),
        ("MSWeightedReplay(-1)", [7]),
        ("FROM-PYTHON", [8]),
        (["DER++", "msweightedreplay"], [0, 1, 2, 7]),
        ("another:Thing", []),
    ],
)
def test_a_method_is_found_by_any_name(systems: Store, name: object, seeds: list[int]) -> None:
    assert sorted(record.seed for record in systems.records({"method": name})) == seeds
    assert systems.count({"method": name}) == len(seeds)


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"method": "drepp"}, "did you mean 'derpp'?"),
        ({"method": "MSDRE++"}, "did you mean 'MSDER++'?"),
        ({"method": "my_method:WeightedRepaly"}, f"did you mean {OWN!r}?"),
        ({"method": "WeigtedReplay"}, "did you mean 'WeightedReplay'?"),
        ({"method": "nothing like it"}, "Known: agem, "),
        ({"bufer": 200}, "unknown filter 'bufer'; did you mean 'buffer'?"),
        ({"status": "done"}, "filter status: 'done' is not valid: must be 'finished',"),
        ({"buffer": "many"}, "filter buffer: 'many' is not valid: must be a whole number"),
        ({"mask": "low"}, "filter mask: 'low' is not valid"),
        ({"since": 2026}, "filter since: 2026 is not valid"),
    ],
)
def test_an_invalid_filter_is_an_error_with_what_is_allowed(
    systems: Store, filters: dict[str, object], message: str
) -> None:
    for ask in (systems.records, systems.count):
        with pytest.raises((UnknownNameError, StoreError), match=re.escape(message)):
            ask(filters)


def test_what_is_added_while_iterating_does_not_show(store: Store) -> None:
    store.add_all(make_records(3))
    seen = []
    for record in itertools.islice(store.records(), 10):  # it would go on for ever if it were wrong
        seen.append(record.seed)
        assert store.add(make_record(make_config(seed=100 + record.seed)))
    assert seen == [0, 1, 2]
    assert store.count() == 6


# Forged rows: their digests match


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("details", "[[1.0, null], [2.0", "Expecting"),
        ("details", "[" * 100_000, "recursion"),
        ("details", _details(class_il=[[1.0]]), "square matrices"),
        ("details", _details(flux=1.21), "newer remask .flux = 1.21"),
        ("seconds", -1, "seconds"),
        ("packed", b"1234", "29 metrics"),
        ("cell", '{"benchmark": "split-digits"}', "method"),
        ("cell", "[" * 100_000, "recursion"),
    ],
)
def test_a_forged_row_is_named(store: Store, column: str, value: object, reason: str) -> None:
    sound, broken = make_record(make_config(seed=0)), make_record()
    store.add_all([sound, broken])
    _forge(store, column, value, broken)
    message = f"(?s)the trial {broken.config_hash} in .*results.db .*({reason})"
    for read in (lambda: store.get(broken.config_hash), lambda: list(store.records())):
        with pytest.raises(StoreError, match=message):
            read()
    if column in ("packed", "cell"):
        with pytest.raises(StoreError, match=message):
            list(store.summaries())
    assert store.get(sound.config_hash) == sound


@pytest.mark.parametrize(("column", "value"), [("seed", 5), ("mask", -1.0), ("hardware", "Cray")])
def test_a_column_unlike_its_record_is_found(store: Store, column: str, value: object) -> None:
    store.add(make_record())
    _forge(store, column, value, make_record())
    with pytest.raises(StoreError, match=r"is damaged: .*, its record implies"):
        list(store.checked())


def _forge(store: Store, column: str, value: object, record: TrialRecord) -> None:
    statement = f"UPDATE trials SET {column} = ? WHERE config_hash = ?"
    with closing(sqlite3.connect(store.path)) as connection, connection:
        assert connection.execute(statement, [value, record.config_hash]).rowcount == 1
    redigest(store.path)
