"""What becomes of accuracy within tasks: in the store, in exports, from the command line."""

import csv
import io
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from remask.experiments import rerun_command
from remask.results import Store, TrialRecord, export, read_export, scores, write
from tests.command_line import CommandLine
from tests.results.store_samples import NAN, failed, make_config, make_record

CURVE: dict[str, Any] = {
    "steps": [10, 100, 105, 200],
    "learning": [0, 0, 1, 1],
    "class_il": [[40.0, NAN], [90.0, NAN], [60.0, 5.0], [80.0, 88.0]],
    "task_il": [[70.0, NAN], [95.0, NAN], [94.0, 50.0], [95.0, 90.0]],
}
QUICK = ("--benchmark", "split-digits", "--limit", "15", "--workers", "1", "--trials", "2")


def measured_record(curve: dict[str, Any] | None = CURVE, **settings: Any) -> TrialRecord:
    return make_record(make_config(**{"evaluate_every": 10, **settings}), curve=curve)


def test_a_curve_comes_back_from_the_store_and_from_an_export(tmp_path: Path) -> None:
    records = [measured_record(seed=seed) for seed in range(3)]
    with Store(tmp_path / "results.db") as store:
        store.add_all(records)
        assert list(store.records()) == records
    export(records, "json", tmp_path / "trials.json")
    assert read_export(tmp_path / "trials.json") == records


def test_its_metrics_are_among_the_scores_and_in_tables_of_trials() -> None:
    record = measured_record()
    found = scores(record)
    assert found["class_il_min_ACC"] == 60.0
    assert found["class_il_WC_ACC"] == (88.0 + 60.0) / 2
    assert found["class_il_switch_drop"] == 30.0
    assert found["task_il_switch_drop"] == 1.0
    stream = io.BytesIO()
    write([record], "csv", stream)
    (row,) = csv.DictReader(io.StringIO(stream.getvalue().decode()))
    assert float(row["class_il_min_ACC"]) == 60.0
    assert row["evaluate_every"] == "10"


@pytest.mark.parametrize("record", [make_record(), failed()], ids=["finished", "failed"])
def test_without_a_curve_they_are_not_defined(record: TrialRecord) -> None:
    found = scores(record)
    for name in ("min_ACC", "WC_ACC", "switch_drop"):
        assert math.isnan(found[f"class_il_{name}"])


def test_a_failed_trial_that_was_to_be_measured_has_no_curve() -> None:
    assert failed(make_config(evaluate_every=10)).curve is None


@pytest.mark.parametrize(
    "damage",
    [
        {"steps": [10, 100, 105]},
        {"steps": [10, 100, 100, 200]},
        {"steps": [0, 100, 105, 200]},
        {"learning": [0, 1, 0, 1]},
        {"learning": [0, 0, 1, 2]},
        {"learning": [-1, 0, 1, 1]},
        {"class_il": [[40.0], [90.0], [60.0], [80.0]]},
        {"class_il": [[140.0, NAN], [90.0, NAN], [60.0, 5.0], [80.0, 88.0]]},
        {"task_il": []},
        {"more": 1},
    ],
)
def test_a_curve_that_contradicts_itself_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        measured_record({**CURVE, **damage})


def test_a_curve_is_there_where_the_config_asks_for_one_and_only_there() -> None:
    with pytest.raises(ValidationError, match="if the config asks"):
        measured_record(None)
    with pytest.raises(ValidationError, match="if the config asks"):
        measured_record(evaluate_every=0)


def test_a_curve_with_very_many_points_is_refused_before_it_is_read() -> None:
    points = 100_001
    with pytest.raises(ValidationError, match="at most 100000"):
        measured_record({**CURVE, "steps": [*range(1, points + 1)]})


def test_the_command_line_measures_and_results_are_the_same_without(remask: CommandLine) -> None:
    assert remask("run", *QUICK).code == 0
    assert remask("run", *QUICK, "--evaluate-every", "2").code == 0
    with Store(remask.store) as store:
        records = list(store.records())
    by_seed: dict[int, dict[int, TrialRecord]] = {}
    for record in records:
        by_seed.setdefault(record.seed, {})[record.config.evaluate_every] = record
    assert len(by_seed) == 2
    for trials in by_seed.values():
        assert trials[0].class_il == trials[2].class_il
        assert trials[0].confidence == trials[2].confidence
        assert trials[0].curve is None
        assert trials[2].curve is not None
        assert not math.isnan(scores(trials[2])["class_il_min_ACC"])


def test_a_negative_interval_is_refused_by_name(remask: CommandLine) -> None:
    ended = remask("run", *QUICK, "--evaluate-every", "-5")
    assert ended.code != 0
    assert "evaluate" in ended.err


def test_the_command_that_runs_a_cell_again_measures_again() -> None:
    assert "--evaluate-every 10" in rerun_command(make_config(evaluate_every=10), [0, 1])
