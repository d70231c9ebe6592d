"""Cells, and the files that other programs read."""

import csv
import io
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remask.metrics import CURVE_METRICS
from remask.names import UnknownNameError, system_name
from remask.results import (
    FORMATS,
    Spread,
    StoreError,
    TrialRecord,
    export,
    scores,
    summarise,
    trial_json,
)
from tests.results.store_samples import NAN, diverged, failed, make_config, make_record


def trial(first: float, last: float, seed: int = 0, **settings: Any) -> TrialRecord:
    """Task 1 is learnt to 100 and ends at `first`, task 2 at `last`; 10 less when told the task."""
    return make_record(
        make_config(seed=seed, **settings),
        class_il=[[100.0, NAN], [first, last]],
        task_il=[[100.0, NAN], [first - 10, last - 10]],
    )


def written(records: list[TrialRecord], name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out"
        assert export(records, name, target) == len(records)
        return target.read_bytes().decode()


# Names


@pytest.mark.parametrize(
    ("method", "mask", "name"),
    [
        ("er", None, "ER"),
        ("er", -math.inf, "MSER(-inf)"),
        ("sgd", None, "SGD"),
        ("joint", None, "JOINT"),
        ("der", -0.5, "MSDER(-0.5)"),
        ("derpp", None, "DER++"),
        ("derpp", -1.0, "MSDER++(-1)"),
        ("icarl", -10, "MSiCaRL(-10)"),
        ("er", -0.0, "MSER(0)"),
        ("er", -1.23456789, "MSER(-1.23456789)"),
    ],
)
def test_a_system_is_named_after_its_method_and_mask(
    method: str, mask: float | None, name: str
) -> None:
    assert system_name(method, mask) == name


# Cells


def close(spread: Spread, mean: float, std: float) -> bool:
    return math.isclose(spread.mean, mean) and math.isclose(spread.std, std)


def test_a_cell_has_the_mean_and_population_deviation_over_seeds() -> None:
    [cell] = summarise([trial(40, 90, seed=1), trial(60, 90, seed=2), trial(50, 90, seed=3)])
    # A_T is 65, 75, 70 and F_T is 60, 40, 50; told the task, 55, 65, 60 and 70, 50, 60.
    assert close(cell.spreads["class_il_A_T"], 70.0, math.sqrt(50 / 3))
    assert close(cell.spreads["class_il_F_T"], 50.0, math.sqrt(200 / 3))
    assert close(cell.spreads["task_il_A_T"], 60.0, math.sqrt(50 / 3))
    assert close(cell.spreads["task_il_F_T"], 60.0, math.sqrt(200 / 3))
    assert (cell.label, cell.trials, cell.diverged, cell.failed) == ("ER", 3, 0, 0)


def test_trials_that_diverged_or_failed_are_counted_and_left_out_of_the_means() -> None:
    records = [
        trial(40, 90, seed=1),
        diverged(make_config(seed=2)),
        diverged(make_config(seed=3)),
        failed(make_config(seed=4)),
    ]
    [cell] = summarise(records)
    assert (cell.trials, cell.diverged, cell.failed) == (1, 2, 1)
    assert cell.spreads["class_il_A_T"] == Spread(65.0, 0.0, 1)
    [hopeless] = summarise(records[1:])
    assert hopeless.trials == 0
    assert math.isnan(hopeless.spreads["class_il_A_T"].mean)


def test_cells_differ_in_anything_but_the_seed_and_their_labels_say_in_what() -> None:
    records = [
        trial(10, 10, seed=2, lr=0.5),
        trial(10, 10, method="sgd", buffer=0),
        trial(10, 10, seed=1, mask="-inf"),
        trial(10, 10, seed=1, lr=0.03),
        trial(10, 10, seed=1, lr=0.5),
        trial(10, 10, buffer=500),
    ]
    cells = [(cell.label, cell.config.buffer, cell.trials) for cell in summarise(records)]
    assert cells == [
        ("ER, lr=0.03", 200, 1),
        ("ER, lr=0.5", 200, 2),
        ("ER", 500, 1),
        ("MSER(-inf)", 200, 1),
        ("SGD", 0, 1),
    ]


def test_a_method_that_is_evaluated_once_has_no_forgetting() -> None:
    record = make_record(class_il=[[NAN, NAN], [90, 80]], task_il=[[NAN, NAN], [90, 80]])
    [cell] = summarise([record])
    assert cell.spreads["class_il_A_T"].mean == 85.0
    assert math.isnan(cell.spreads["class_il_F_T"].mean)


def test_scores_are_all_metrics_in_both_settings() -> None:
    values = scores(trial(40, 90))
    of_curves = tuple(CURVE_METRICS)
    of_the_test = {
        name: value
        for name, value in values.items()
        if not name.startswith("val") and not name.endswith((*of_curves, "ECE"))
    }
    assert of_the_test == {
        "class_il_A_T": 65.0,
        "class_il_F_T": 60.0,
        "class_il_accuracy_over_time": 82.5,
        "class_il_plasticity": 95.0,
        "class_il_backward_transfer": -60.0,
        "task_il_A_T": 55.0,
        "task_il_F_T": 70.0,
        "task_il_accuracy_over_time": 77.5,
        "task_il_plasticity": 90.0,
        "task_il_backward_transfer": -70.0,
    }
    assert all(math.isnan(values[f"validation_{name}"]) for name in of_the_test)
    assert all(math.isnan(value) for value in scores(failed()).values())


# Formats


def test_csv_has_a_row_a_trial_with_config_and_metrics() -> None:
    records = [trial(40, 90, mask="-inf"), trial(60, 90, seed=1), failed(error='a "b",\nc')]
    rows = list(csv.DictReader(io.StringIO(written(records, "csv"), newline="")))
    assert [row["name"] for row in rows] == ["MSER(-inf)", "ER", "ER"]
    assert [row["mask"] for row in rows] == ["-inf", "none", "none"]
    assert [row["class_il_A_T"] for row in rows] == ["65.0", "75.0", ""]
    assert [row["task_il_F_T"] for row in rows] == ["70.0", "50.0", ""]
    assert rows[2]["error"] == 'a "b",\nc'
    assert rows[1]["seed"] == "1"
    assert rows[1]["lr"] == "0.1"
    assert rows[1]["started"] == "2026-01-31T12:00:00.000000+00:00"
    assert rows[1]["config_hash"] == records[1].config_hash


def test_json_has_everything_and_no_nan() -> None:
    records = [trial(40, 90, mask="-inf"), diverged(make_config(seed=3)), failed()]

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    read = json.loads(written(records, "json"), parse_constant=refuse)["trials"]
    assert read == [trial_json(record) for record in records]
    assert read[0]["metrics"]["class_il_A_T"] == 65.0
    assert read[0]["config"]["mask"] == "-inf"
    assert read[2]["metrics"]["class_il_A_T"] is None
    for each, record in zip(read, records, strict=True):
        assert each.pop("config_hash") == record.config_hash
        del each["metrics"]
        assert TrialRecord.model_validate(each) == record


def test_no_trials_make_an_empty_file_of_every_format() -> None:
    assert json.loads(written([], "json")) == {"trials": []}
    assert written([], "csv").startswith("config_hash,name,benchmark,method,mask,buffer,seed,")
    assert written([], "csv").count("\n") == 1
    assert r"\bottomrule" in written([], "latex")


def test_parquet_has_the_columns_of_csv_with_their_types(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    target = tmp_path / "results.parquet"
    export([trial(40, 90, mask="-inf"), trial(60, 90, seed=2**63 - 1)], "parquet", target)
    table = parquet.read_table(target)
    assert table.column_names == written([], "csv").strip().split(",")
    assert table["mask"].to_pylist() == [-math.inf, None]
    assert table["class_il_A_T"].to_pylist() == [65.0, 75.0]
    assert table["seed"].to_pylist() == [0, 2**63 - 1]
    kinds = {name: str(table.schema.field(name).type) for name in ("error", "diverged_at", "lr")}
    assert kinds == {"error": "string", "diverged_at": "int64", "lr": "double"}


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(StoreError, match=r"pip install pyarrow"):
        export([trial(40, 90)], "parquet", tmp_path / "results.parquet")
    assert list(tmp_path.iterdir()) == []


def test_latex_is_a_booktabs_table_of_the_cells() -> None:
    records = [
        trial(40, 90, seed=1, mask=-1.0, method="derpp"),
        trial(60, 90, seed=2, mask=-1.0, method="derpp"),
        trial(40, 90, mask="-inf"),
        diverged(make_config(seed=2, mask="-inf")),
        failed(make_config(method="my_own", buffer=0)),
    ]
    assert written(records, "latex") == (
        r"""% needs \usepackage{booktabs}; mean $\pm$ population standard deviation over the trials
\begin{tabular}{lrrrrrr}
\toprule
& & & \multicolumn{2}{c}{Class-IL} & \multicolumn{2}{c}{Task-IL} \\
Method & Buffer & Trials & $A_T$ & $F_T$ & $A_T$ & $F_T$ \\
\midrule
MSDER++($-1$) & 200 & 2 & $70.00 \pm 5.00$ & $50.00 \pm 10.00$ & $60.00 \pm 5.00$ & $60.00 \pm 10.00$ \\
MSER($-\infty$) & 200 & 1 (1 diverged) & $65.00$ & $60.00$ & $55.00$ & $70.00$ \\
MY\_OWN & -- & 0 (1 failed) & -- & -- & -- & -- \\
\bottomrule
\end{tabular}
"""  # noqa: E501
    )


def test_latex_names_the_benchmark_if_there_are_several_and_escapes_it() -> None:
    table = written(
        [trial(10, 10, benchmark=r"50%_\{x}"), trial(10, 10, benchmark="b~^&#$")], "latex"
    )
    assert r"\begin{tabular}{llrrrrrr}" in table
    assert r"50\%\_\textbackslash{}\{x\} & ER & 200" in table
    assert r"b\textasciitilde{}\textasciicircum{}\&\#\$ & ER & 200" in table


# Files


def test_an_unknown_format_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown format 'jsno'; did you mean 'json'"):
        export([], "jsno", tmp_path / "results.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "parquet"])
def test_an_export_that_breaks_off_leaves_what_was_there(tmp_path: Path, name: str) -> None:
    target = tmp_path / "results.out"
    target.write_text("precious")

    def broken() -> Iterator[TrialRecord]:
        yield trial(40, 90)
        raise StoreError("a row is damaged")

    with pytest.raises(StoreError, match="a row is damaged"):
        export(broken(), name, target)
    assert target.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [target]
    export([trial(40, 90)], name, target)
    assert target.read_text() == written([trial(40, 90)], name)


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "results.json"
    target.write_text("precious")

    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match=r"cannot write .*results\.json: No space left on device"):
        export([trial(40, 90)], "json", target)
    assert target.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [target]


def test_a_target_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "folder", tmp_path / "missing" / "results.json"):
        with pytest.raises(StoreError, match=f"cannot write {target}"):
            export([trial(40, 90)], "json", target)
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "latest.json"
    link.symlink_to("results.json")
    export([], "json", link)
    assert link.is_symlink()
    assert json.loads((tmp_path / "results.json").read_text()) == {"trials": []}
