"""Files for other programs, and trials from an exported file."""

import json
import os
import shutil
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remask.store import StoreError, TrialRecord, export, read_export
from remask.store.export import FORMATS, trial_json
from tests.command_line import CommandLine, run_process
from tests.store.store_samples import (
    contents,
    diverged,
    exported,
    failed,
    held_out_record,
    make_config,
    make_record,
    make_records,
    table,
)
from tests.store.test_cells import trial

_HELD_OUT = held_out_record()
_ESCAPE = "\x1b[2J\x1b]0;owned\x07"
_LATEX_NAMES = [trial(10, 10, benchmark=name) for name in (r"50%_\{x}", "b~^&#$")]


# Formats


def test_csv_has_a_row_per_trial_with_config_and_metrics() -> None:
    records = [trial(40, 90, mask="-inf"), trial(60, 90, seed=1), failed(error='a "b",\nc')]
    rows = table([*records, _HELD_OUT])
    assert [row["name"] for row in rows] == ["MSER(-inf)", "ER", "ER", "ER"]
    assert [row["mask"] for row in rows] == ["-inf", "none", "none", "none"]
    assert [row["class_il_A_T"] for row in rows] == ["65.0", "75.0", "", "70.375"]
    assert [row["task_il_F_T"] for row in rows] == ["70.0", "50.0", "", "1.5"]
    assert [row["validation"] for row in rows] == ["0.0", "0.0", "0.0", "0.1"]
    assert [row["validation_class_il_A_T"] for row in rows] == ["", "", "", "60.0"]
    assert rows[2]["error"] == 'a "b",\nc'
    assert (rows[1]["seed"], rows[1]["lr"]) == ("1", "0.1")
    assert rows[1]["started"] == "2026-01-31T12:00:00.000000+00:00"
    assert rows[1]["config_hash"] == records[1].config_hash


def test_csv_marks_text_that_a_spreadsheet_would_compute() -> None:
    names = ["=1+1", "+1", "-1+1", "@SUM(A1)", "plain"]
    rows = table([make_record(make_config(benchmark=name, mask=-1.5)) for name in names])
    assert [row["benchmark"] for row in rows] == ["'=1+1", "'+1", "'-1+1", "'@SUM(A1)", "plain"]
    assert {row["mask"] for row in rows} == {"-1.5"}


def test_json_has_whole_records_and_no_nan() -> None:
    records = [trial(40, 90, mask="-inf"), diverged(make_config(seed=3)), failed()]

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    read = json.loads(exported(records, "json"), parse_constant=refuse)["trials"]
    assert read == [trial_json(record) for record in records]
    assert read[0]["metrics"]["class_il_A_T"] == 65.0
    assert read[0]["config"]["mask"] == "-inf"
    assert read[2]["metrics"]["class_il_A_T"] is None


def test_parquet_has_the_columns_of_csv_with_their_types(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    target = tmp_path / "results.parquet"
    export([trial(40, 90, seed=1, mask="-inf"), trial(60, 90, seed=2**63 - 1)], "parquet", target)
    read = parquet.read_table(target)
    assert read.column_names == exported([], "csv").strip().split(",")
    assert read["mask"].to_pylist() == ["-inf", "none"]
    assert read["class_il_A_T"].to_pylist() == [65.0, 75.0]
    assert read["seed"].to_pylist() == [1, 2**63 - 1]
    kinds = {name: str(read.schema.field(name).type) for name in ("error", "diverged_at", "lr")}
    assert kinds == {"error": "string", "diverged_at": "int64", "lr": "double"}


def test_without_pyarrow_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert exported(records, "latex") == (
        r"""% needs \usepackage{booktabs}; mean $\pm$ population standard deviation over the trials
\begin{tabular}{lrrrrrr}
\toprule
& & & \multicolumn{2}{c}{Class-IL} & \multicolumn{2}{c}{Task-IL} \\
Method & Buffer & Trials & $A_T$ & $F_T$ & $A_T$ & $F_T$ \\
\midrule
MSDER++($-1$) & 200 & 2 & $\mathbf{70.00 \pm 5.00}$ & $\mathbf{50.00 \pm 10.00}$ & $\mathbf{60.00 \pm 5.00}$ & $\mathbf{60.00 \pm 10.00}$ \\
MSER($-\infty$) & 200 & 1 (1 diverged) & $65.00$ & $60.00$ & $55.00$ & $70.00$ \\
MY\_OWN & -- & 0 (1 failed) & -- & -- & -- & -- \\
\bottomrule
\end{tabular}
"""  # noqa: E501
    )


def test_latex_escapes_names_and_has_validation_where_data_was_held_out() -> None:
    several = exported(_LATEX_NAMES, "latex")
    assert r"\begin{tabular}{llrrrrrr}" in several
    assert r"50\%\_\textbackslash{}\{x\} & ER & 200" in several
    assert r"b\textasciitilde{}\textasciicircum{}\&\#\$ & ER & 200" in several
    row = r"ER & 200 & 1 & $70.38$ & $48.50$ & $97.50$ & $1.50$"
    both = exported([_HELD_OUT], "latex")
    assert r"\begin{tabular}{lrrrrrrrr}" in both
    assert r"{Class-IL, test}" in both
    assert r"& Class-IL, validation & Task-IL, validation \\" in both
    assert rf"{row} & $60.00$ & $80.00$ \\" in both


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_latex_compiles(tmp_path: Path) -> None:
    tables = [exported(_LATEX_NAMES, "latex"), exported([_HELD_OUT], "latex")]
    head = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n"
    (tmp_path / "table.tex").write_text(head + "\n\n".join(tables) + "\\end{document}\n")
    quiet = ("-halt-on-error", "-interaction=nonstopmode")
    run_process("pdflatex", *quiet, "table.tex", folder=tmp_path)
    assert (tmp_path / "table.pdf").exists()


# Files


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "parquet"])
def test_an_export_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target = tmp_path / "results.out"
    target.write_text("precious")

    def broken() -> Iterator[TrialRecord]:
        yield trial(40, 90)
        raise StoreError("a row is damaged")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match="a row is damaged"):
        export(broken(), name, target)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match=r"cannot write .*: No space left on device"):
            export([trial(40, 90)], name, target)
    assert target.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [target]
    export([trial(40, 90)], name, target)
    assert target.read_text() == exported([trial(40, 90)], name)


@pytest.mark.parametrize("name", ["csv", "json"])
def test_an_export_holds_no_trials_in_memory(tmp_path: Path, name: str) -> None:
    def peak(trials: int) -> int:
        tracemalloc.start()
        records = (make_record(make_config(seed=seed)) for seed in range(trials))
        assert export(records, name, tmp_path / "out") == trials
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(5)
    assert peak(100) < peak(10) + 100_000  # a record takes 6,000


# Imports


def test_an_import_adds_what_the_store_lacks(remask: CommandLine, tmp_path: Path) -> None:
    records = [*make_records(2, mask=float("-inf")), diverged(), failed(make_config(seed=8))]
    path = tmp_path / "trials.json"
    export(records, "json", path)
    assert read_export(path) == records
    mine = make_record(records[0].config, seconds=1.0)
    remask.add(mine)
    assert "4 trials read, 3 of them new" in remask.succeed("results", "import", str(path)).text
    stored = remask.records()
    assert len(stored) == 4
    assert mine in stored
    assert "0 of them new" in remask("results", "import", str(path)).text


def _set(*place: str | int, to: Any) -> Callable[[Any], Any]:
    """Change the second trial of an export."""

    def change(content: Any) -> Any:
        part = content["trials"][1]
        for step in place[:-1]:
            part = part[step]
        part[place[-1]] = to
        return content

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _: [], "has no trials"),
        (lambda _: {"trials": ["x"]}, "trial 0 of"),
        (_set("config_hash", to="0" * 64), "its hash is not that of its config"),
        (_set("unknown", to=1), "unknown"),
        (_set("seconds", to=-1), "seconds"),
        (_set("class_il", to=[[1.0]]), "square matrices"),
        (_set("validation_task_il", to=[[1.0]]), "validation_task_il"),
        (_set("class_il", 1, 0, to=1e308), "from 0 to 100"),
        (_set("confidence", 0, to=1.5), "from 0 to 1"),
        (_set("created", to="9999-12-31T23:59:59-05:00"), "the years 1 to 9999"),
        (_set("config", "batch", to=2**70), "config.batch"),
        (_set("config", "benchmark", to=f"a{_ESCAPE}"), "no control characters"),
        (_set("config", "net", to="x" * 501), "at most 500"),
        (_set("config", "weights", to=[["a", 1.0], ["a", 2.0]]), "config.weights"),
        (_set("machine", to={"cores": 2**64}), "machine"),
    ],
)
def test_a_damaged_export_is_refused_and_nothing_of_it_is_stored(
    remask: CommandLine, tmp_path: Path, change: Callable[[Any], Any], expected: str
) -> None:
    path = tmp_path / "trials.json"
    export(make_records(2), "json", path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    remask.add(make_record(make_config(seed=99)))
    before = contents(tmp_path)
    assert expected in remask.refusal("results", "import", str(path))
    assert contents(tmp_path) == before


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"{", b"[" * 100_000])
def test_what_is_not_json_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "trials.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StoreError, match="cannot be read" if content is None else "is not JSON"):
        read_export(path)
