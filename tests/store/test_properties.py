"""What holds for every record, whatever is in it."""

import json
import math
import random
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remask.config import TrialConfig
from remask.store import Store, TrialRecord, summarise
from remask.store.export import trial_json
from tests.store.store_samples import diverged, failed, make_config, make_record

ANY_TEXT = st.text(
    st.characters(exclude_categories=["C", "Z"], include_characters=" "), max_size=20
)
CONFIGS = st.builds(
    make_config,
    benchmark=ANY_TEXT,
    method=ANY_TEXT,
    mask=st.none() | st.just("-inf") | st.floats(max_value=0, allow_nan=False),
    buffer=st.integers(0, 1000),
    seed=st.integers(0, 2**63 - 1),
    lr=st.floats(0, 1e3, exclude_min=True),
    alpha=st.floats(0, 1e6),
    validation=st.just(0.0) | st.floats(0, 1, exclude_max=True),
)
MEASURED = st.floats(0, 100) | st.just(math.nan)
# Few values each, so that some trials share a cell, and some cells a method and a buffer.
SIMILAR = st.builds(
    lambda make, **settings: make(make_config(**settings)),
    st.sampled_from([make_record, diverged, failed]),
    benchmark=st.sampled_from(["a", "b"]),
    mask=st.sampled_from([None, "-inf", -1.0]),
    lr=st.sampled_from([0.1, 0.5]),
    seed=st.integers(0, 3),
)
few = settings(max_examples=20, deadline=None)


@st.composite
def records(draw: Callable[[Any], Any]) -> TrialRecord:
    tasks = draw(st.integers(1, 3))
    row = st.lists(MEASURED, min_size=tasks, max_size=tasks)
    matrix = st.lists(row, min_size=tasks, max_size=tasks)
    ending = draw(
        st.just({})
        | st.builds(lambda step: {"status": "diverged", "diverged_at": step}, st.integers(0, 9**9))
        | st.builds(lambda text: {"status": "failed", "error": text}, st.text(max_size=40))
    )
    return make_record(
        draw(CONFIGS),
        class_il=draw(matrix),
        task_il=draw(matrix),
        confidence=draw(st.lists(st.floats(0, 1) | st.just(math.nan), min_size=tasks, max_size=4)),
        machine=draw(st.dictionaries(ANY_TEXT, ANY_TEXT | st.integers(0, 999), max_size=3)),
        started=draw(st.datetimes(timezones=st.just(UTC))),
        seconds=draw(st.floats(0, 1e9)),
        **ending,
    )


@few
@given(CONFIGS, CONFIGS, st.sampled_from(["seed", "buffer", "batch", "lr"]))
def test_configs_have_the_same_hash_exactly_if_they_are_equal(
    one: TrialConfig, other: TrialConfig, name: str
) -> None:
    assert (one.hash == other.hash) == (one == other)
    assert one.model_copy(update={name: getattr(one, name) + 1}).hash != one.hash
    assert TrialConfig.model_validate(json.loads(one.canonical)) == one


@pytest.mark.thorough
@few
@given(st.lists(records(), max_size=3))
def test_any_record_comes_back_as_it_went_in(several: list[TrialRecord]) -> None:
    with TemporaryDirectory() as folder, Store(Path(folder) / "results.db") as store:
        expected: dict[str, TrialRecord] = {}
        for record in several:
            there = expected.get(record.config_hash)
            new = there is None or (there.status == "failed" and record.status != "failed")
            assert store.add(record) == new
            if new:
                expected[record.config_hash] = record
        found = list(store.checked())
        assert {record.config_hash: record for record in found} == expected
        assert len(found) == store.count() == len(expected)
    for record in several:
        parts = json.loads(json.dumps(trial_json(record), allow_nan=False))
        assert parts.pop("config_hash") == record.config_hash
        del parts["metrics"]
        assert TrialRecord.model_validate(parts) == record


@few
@given(st.lists(SIMILAR, max_size=8), st.randoms())
def test_cells_take_in_every_trial_once_in_any_order(
    several: list[TrialRecord], chance: random.Random
) -> None:
    cells = summarise(several)
    assert sum(cell.ended.total() for cell in cells) == len(several)
    again = summarise(chance.sample(several, len(several)))
    assert [(cell.config, cell.label, cell.trials) for cell in again] == [
        (cell.config, cell.label, cell.trials) for cell in cells
    ]
    shown = [(cell.config.benchmark, cell.config.buffer, cell.label) for cell in cells]
    assert len(set(shown)) == len(cells)
