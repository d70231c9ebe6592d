"""What holds for every record, whatever is in it."""

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from remask.config import TrialConfig
from remask.store import TrialRecord, summarise
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


@few
@given(CONFIGS, CONFIGS, st.sampled_from(["seed", "buffer", "batch", "lr"]))
def test_configs_have_the_same_hash_exactly_if_they_are_equal(
    one: TrialConfig, other: TrialConfig, name: str
) -> None:
    assert (one.hash == other.hash) == (one == other)
    assert one.model_copy(update={name: getattr(one, name) + 1}).hash != one.hash
    assert TrialConfig.model_validate(json.loads(one.canonical)) == one


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
