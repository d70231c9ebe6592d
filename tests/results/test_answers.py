"""What is kept of the answers after the last task, and of what a trial took."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from remask.results import Store, TrialRecord, export, read_export, scores, summarise, write
from tests.command_line import CommandLine
from tests.results.store_samples import make_config, make_record

ANSWERS: dict[str, Any] = {
    "confusion": [[3, 1, 0, 0], [0, 4, 0, 0], [0, 0, 2, 2], [0, 0, 0, 4]],
    "counts": [4, 12],
    "confidence": [1.0, 10.8],
    "right": [1, 12],
}


def answered(**parts: Any) -> TrialRecord:
    basics = {"answers": ANSWERS, "flops": 1e12, "memory_bytes": 2240}
    return make_record(make_config(seed=parts.pop("seed", 1)), **{**basics, **parts})


def test_answers_and_costs_come_back_from_the_store_and_from_an_export(tmp_path: Path) -> None:
    records = [answered(seed=seed) for seed in range(3)]
    with Store(tmp_path / "results.db") as store:
        store.add_all(records)
        assert list(store.records()) == records
    export(records, "json", tmp_path / "trials.json")
    assert read_export(tmp_path / "trials.json") == records


def test_tables_of_trials_have_the_calibration_error_and_the_costs() -> None:
    assert scores(answered())["class_il_ECE"] == pytest.approx(100 * 1.2 / 16)
    stream = io.BytesIO()
    write([answered(), make_record(make_config(seed=2))], "csv", stream)
    row, without = csv.DictReader(io.StringIO(stream.getvalue().decode()))
    assert float(row["class_il_ECE"]) == pytest.approx(7.5)
    assert (float(row["flops"]), row["memory_bytes"]) == (1e12, "2240")
    assert (without["class_il_ECE"], without["flops"], without["memory_bytes"]) == ("", "", "")


def test_the_cost_of_a_cell_is_the_mean_over_its_trials_if_all_say_it() -> None:
    [cell] = summarise([answered(), answered(seed=2, flops=3e12, seconds=20.0)])
    assert (cell.costs["flops"].mean, cell.costs["seconds"].mean) == (2e12, 16.25)
    [cell] = summarise([answered(), make_record(make_config(seed=2))])
    assert cell.costs["flops"].mean != cell.costs["flops"].mean  # NaN
    assert cell.costs["seconds"].mean == 12.5


@pytest.mark.parametrize(
    "damage",
    [
        {"confusion": [[1, 2], [3]]},
        {"confusion": [[1, 2], [3, 4]]},  # of four classes
        {"confusion": [[-1, 0, 0, 0], *ANSWERS["confusion"][1:]]},
        {"counts": [1]},
        {"confidence": [-1.0, 0.0]},
        {"more": 1},
    ],
)
def test_answers_that_contradict_themselves_are_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        answered(answers={**ANSWERS, **damage})


def test_a_run_keeps_its_answers_and_what_it_took(remask: CommandLine) -> None:
    quick = ("--benchmark", "split-digits", "--limit", "15", "--workers", "1", "--trials", "1")
    assert remask("run", *quick, "--buffer", "20").code == 0
    with Store(remask.store) as store:
        [record] = store.records()
    assert record.answers is not None
    tested = [sum(row) for row in record.answers.confusion]
    assert tested == [15] * 10
    right = sum(row[label] for label, row in enumerate(record.answers.confusion))
    assert sum(record.answers.right) == right
    assert record.memory_bytes == 20 * (64 + 8)
    # 150 samples, and as many replayed, per epoch; an MLP of 64, 100, 100 and 10 units has 2 FLOPs
    # per weight forward, and twice as many back.
    per_sample = 3 * 2 * (64 * 100 + 100 * 100 + 100 * 10)
    assert record.flops == record.config.epochs * 300 * per_sample
