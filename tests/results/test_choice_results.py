"""What trials with the mask "auto" chose, in records, stores, exports and words."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from remask.reports.selection import masks_chosen
from remask.results import MaskChoice, Store, TrialRecord, export, read_export, summarise
from tests.results.store_samples import make_config, make_record


def chose(name: str) -> MaskChoice:
    return MaskChoice(
        chosen=name,
        reason="1.2 ±0.5 points ahead",
        scores={"0 fading 12": 80.0, "none": 81.2},
        errors={"0 fading 12": 0.0, "none": 0.5},
        old_samples=40,
        samples=52,
    )


def auto_record(*chosen: str, **changes: Any) -> TrialRecord:
    config = make_config(**{"mask": "auto", "buffer": 1000, **changes})
    return make_record(config=config, choices=tuple(map(chose, chosen)))


def test_a_store_keeps_what_was_chosen_and_finds_trials_by_the_mask_auto(tmp_path: Path) -> None:
    tasks = len(make_record().class_il)
    record = auto_record(*["none"] * tasks)
    with Store(tmp_path / "results.db") as store:
        store.add(record)
        store.add(make_record())
        assert store.get(record.config_hash) == record
        assert store.count() == 2
    export([record], "json", tmp_path / "trials.json")
    assert read_export(tmp_path / "trials.json") == [record]
    assert record.system == "MSER(auto)"


def test_only_a_trial_that_chooses_its_mask_has_choices_and_one_for_each_task() -> None:
    with pytest.raises(ValidationError, match="one per task"):
        auto_record("none", "none", "none")
    with pytest.raises(ValidationError, match="one per task"):
        make_record(choices=(chose("none"),))


def test_a_line_says_how_many_trials_chose_which_mask_after_each_task() -> None:
    tasks = len(make_record().class_il)
    records = [
        auto_record(*["0 fading 12"] * (tasks - 1), "none", seed=0),
        auto_record(*["0 fading 12"] * tasks, seed=1),
        auto_record(*["0 fading 12"] * tasks, seed=2),
        make_record(),
    ]
    (line,) = masks_chosen(summarise(records))
    assert line.startswith("masks that MSER(auto), ")
    assert line.endswith("| 0 fading 12 (2), none (1)")
    assert line.count("0 fading 12 (3)") == tasks - 1
