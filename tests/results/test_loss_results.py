"""Losses in records: kept, checked, and absent in what older versions wrote."""

import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from remask.results import Losses, Store
from tests.results.store_samples import make_record

LOSSES: dict[str, Any] = {
    "names": ["loss", "replay"],
    "steps": [10, 20],
    "learning": [0, 0],
    "values": [[2.5, math.nan], [1.25, 0.5]],
}


def test_losses_are_kept_with_what_was_not_noted(tmp_path: Path) -> None:
    record = make_record(losses=LOSSES)
    with Store(tmp_path / "results.db") as store:
        store.add(record)
        assert list(store.records()) == [record]
    assert record.losses is not None
    assert math.isnan(record.losses.values[0][1])


def test_a_loss_that_is_infinite_is_kept_as_no_number() -> None:
    assert math.isnan(Losses(**{**LOSSES, "values": [[math.inf, 1], [1, 1]]}).values[0][0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": [20, 10]}, "must increase"),
        ({"learning": [0]}, "each point needs a step"),
        ({"values": [[1.0], [1.0]]}, "a value for every name"),
    ],
)
def test_losses_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Losses(**{**LOSSES, **changed})
