"""Results from elsewhere: what is in them cannot break a store, a terminal or a spreadsheet."""

import csv
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from remask.reports.figures import write_figures
from remask.results import Store, TrialRecord, export, summarise
from tests.command_line import CommandLine
from tests.results.store_samples import contents, make_config, make_record, make_records

_ESCAPE = "\x1b[2J\x1b]0;owned\x07"
_NAMES = ["[/foo]", "[bold]x[/bold]", "[link=file:///x]y[/link]", ":smile:", "=cmd()", "<b>&"]


def exported(path: Path, records: list[TrialRecord]) -> dict[str, Any]:
    export(records, "json", path)
    content: dict[str, Any] = json.loads(path.read_text())
    return content


# On the way in


def _set(*place: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(trial: dict[str, Any]) -> None:
        part: Any = trial
        for step in place[:-1]:
            part = part[step]
        part[place[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_set("class_il", 1, 0, to=1e308), "from 0 to 100"),
        (_set("class_il", 1, 0, to=-50), "from 0 to 100"),
        (_set("task_il", 1, 0, to=1e6), "from 0 to 100"),
        (_set("confidence", 0, to=1.5), "from 0 to 1"),
        (_set("confidence", 0, to=-0.1), "from 0 to 1"),
        (_set("seconds", to=1e300), "seconds"),
        (_set("created", to="9999-12-31T23:59:59-05:00"), "the years 1 to 9999"),
        (_set("started", to="0001-01-01T00:00:00+05:00"), "the years 1 to 9999"),
        (_set("config", "batch", to=2**70), "config.batch"),
        (_set("config", "limit", to=2**63), "config.limit"),
        (_set("config", "class_order", to=[2**63]), "config.class_order"),
        (_set("config", "lr_drops", to=[2**63]), "config.lr_drops"),
        (_set("config", "benchmark", to=f"a{_ESCAPE}"), "no control characters"),
        (_set("config", "method", to="a\nb"), "no control characters"),
        (_set("config", "net", to="x" * 501), "at most 500"),
        (_set("config", "weights", to={"a\x9b": 1.0}), "no control characters"),
        (_set("config", "weights", to=[["a", 1.0], ["a", 2.0]]), "one value"),
        (_set("machine", to={"cores": 2**64}), "machine"),
    ],
)
def test_values_that_cannot_be_are_refused_and_nothing_is_imported(
    remask: CommandLine, tmp_path: Path, change: Callable[[dict[str, Any]], None], expected: str
) -> None:
    content = exported(tmp_path / "trials.json", make_records(6))
    change(content["trials"][5])
    (tmp_path / "trials.json").write_text(json.dumps(content))
    with Store(remask.store) as store:
        store.add(make_record(make_config(seed=99)))
    before = contents(tmp_path)
    answer = remask("results", "import", str(tmp_path / "trials.json"))
    assert answer.code == 1
    assert "trial 5 of" in answer.text
    assert expected in answer.text
    assert contents(tmp_path) == before


def test_a_step_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValidationError, match="less than"):
        make_record(status="diverged", diverged_at=2**70)


def test_a_matrix_of_absurdly_many_tasks_is_refused() -> None:
    with pytest.raises(ValidationError, match="at most 10,000 tasks"):
        make_record(class_il=[(None,)] * 10_001, task_il=[[]])


def test_a_probability_that_rounding_took_above_one_is_kept() -> None:
    assert make_record(confidence=[1.0000005] * 4).confidence == (1.0000005,) * 4


def test_an_import_that_fails_half_way_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        store.add(make_record(make_config(seed=99)))

        def records() -> Any:
            yield from make_records(5)
            raise OSError("the file is gone")

        with pytest.raises(OSError, match="gone"):
            store.add_all(records())
        assert [record.seed for record in store.records()] == [99]


def test_messages_of_failed_trials_are_kept_without_what_steers_a_terminal() -> None:
    record = TrialRecord.failure(make_config(), f"first\nsecond{_ESCAPE}\udcff" + "x" * 200_000)
    assert record.error is not None
    assert record.error.startswith("first\nsecond?[2J?]0;owned??xxx")
    assert len(record.error) == 100_000
    assert make_record(commit="a\x1bb").commit == "a?b"
    assert make_record(versions={"torch": "\x07"}).versions == {"torch": "?"}


# On the way out


def _everything_works(remask: CommandLine, folder: Path) -> list[str]:
    """All that is said of a store by the commands that read it."""
    said = []
    for command in (
        ("results", "list"),
        ("results", "list", "--trials"),
        ("results", "compare"),
        ("results", "export", str(folder / "out.csv")),
        ("results", "export", str(folder / "out.tex")),
        ("results", "export", str(folder / "out.json")),
        ("results", "export", str(folder / "out.parquet")),
        ("report", str(folder / "out.html")),
    ):
        answer = remask(*command)
        assert answer.code == 0, answer
        said.append(answer.out + answer.err)
    return said


def test_names_that_look_like_markup_are_shown_as_they_are(
    remask: CommandLine, tmp_path: Path
) -> None:
    with Store(remask.store) as store:
        store.add_all(make_record(make_config(benchmark=name)) for name in _NAMES)
    table, lines, *_ = _everything_works(remask, tmp_path)
    for name in _NAMES:
        assert name in table
        assert name in lines


def test_a_name_that_all_cells_share_is_shown_as_it_is(remask: CommandLine) -> None:
    with Store(remask.store) as store:
        store.add(make_record(make_config(benchmark="[/foo]", method=":smile:[/x]")))
    assert "[/foo], buffer 200" in remask("results", "list").out


def test_text_that_a_spreadsheet_would_compute_is_marked_as_text_and_numbers_are_not(
    tmp_path: Path,
) -> None:
    names = ["=1+1", "+1", "-1", "@SUM(A1)", "plain"]
    records = [make_record(make_config(benchmark=name, mask=-1.5)) for name in names]
    export([*records, make_record(make_config(mask="-inf"))], "csv", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["benchmark"] for row in rows[:5]] == ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "plain"]
    assert [row["mask"] for row in rows] == ["-1.5"] * 5 + ["-inf"]


@pytest.mark.thorough
def test_trials_of_one_cell_may_differ_in_their_numbers_of_tasks_and_classes(
    remask: CommandLine, tmp_path: Path
) -> None:
    one, two = [[90.0]], [[90.0, None], [80.0, 70.0]]
    records = [
        make_record(
            make_config(seed=seed, mask=mask, class_order=order),
            class_il=matrix,
            task_il=matrix,
            confidence=[0.5] * classes,
        )
        for mask in (None, -1.0, "-inf")
        for order in (None, 3, (7, 8), (1, 0))
        for seed, (matrix, classes) in enumerate([(one, 3), (two, 2), (two, 4), (two, 0)])
    ]
    with Store(remask.store) as store:
        store.add_all(records)
    _everything_works(remask, tmp_path)
    mixed = summarise(record for record in records if record.config.class_order is None)
    assert len(mixed) == 3 * 4, "what has learnt other tasks or classes is a cell of its own"
    assert write_figures(mixed, tmp_path / "mixed")


@pytest.mark.thorough
def test_figures_take_names_of_any_length_and_with_signs_of_mathematics(tmp_path: Path) -> None:
    records = [
        make_record(make_config(benchmark=name, method="m$_{", mask=mask))
        for name in ("$x_{", "a" * 500)
        for mask in (None, -1.0)
    ]
    written = write_figures(summarise(records), tmp_path / "figures")
    assert written
    assert all(path.parent == tmp_path / "figures" for path in written)


def test_a_class_order_by_seed_and_one_by_list_can_be_listed_together() -> None:
    records = [make_record(make_config(class_order=order)) for order in ([1, 0], 3, None)]
    assert [cell.config.class_order for cell in summarise(records)] == [None, 3, (1, 0)]


# Deleting


@pytest.fixture
def filled(remask: CommandLine) -> CommandLine:
    with Store(remask.store) as store:
        store.add_all([*make_records(3), *make_records(2, method="derpp", mask=-1)])
    return remask


def test_what_passes_the_filters_is_deleted_and_nothing_else(filled: CommandLine) -> None:
    answer = filled("results", "delete", "--method", "er", "--seed", "0,2", "--yes")
    assert answer.code == 0
    assert "split-digits er mask none buffer 200 finished seeds 0, 2" in answer.text
    assert "2 trials deleted" in answer.text
    with Store(filled.store) as store:
        assert [(r.config.method, r.seed) for r in store.records()] == [
            ("derpp", 0),
            ("derpp", 1),
            ("er", 1),
        ]
    assert filled("results", "delete", "--all", "--yes").code == 0
    with Store(filled.store) as store:
        assert store.count() == 0


@pytest.mark.parametrize("arguments", [["--yes"], ["--all", "--method", "er", "--yes"]])
def test_deleting_needs_to_be_told_what_once(filled: CommandLine, arguments: list[str]) -> None:
    answer = filled("results", "delete", *arguments)
    assert answer.code == 1
    assert "name the results to delete" in answer.text
    with Store(filled.store) as store:
        assert store.count() == 5


def test_without_a_terminal_nothing_is_deleted_unless_yes_is_said(
    filled: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(os.devnull).open() as nothing:
        for stdin in (None, nothing):
            monkeypatch.setattr(sys, "stdin", stdin)
            answer = filled("results", "delete", "--all")
            assert answer.code == 1
            assert "there is no terminal to ask at" in answer.text
    with Store(filled.store) as store:
        assert store.count() == 5


@pytest.mark.processes
@pytest.mark.parametrize(("reply", "left"), [("y\n", 0), ("n\n", 5), ("\n", 5)])
def test_at_a_terminal_deleting_asks_first(filled: CommandLine, reply: str, left: int) -> None:
    parent, child = pty.openpty()
    os.write(parent, reply.encode())
    done = subprocess.run(
        [sys.executable, "-m", "remask", "results", "delete", "--all"],
        stdin=child,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(parent)
    os.close(child)
    assert "Delete 5 trials from" in done.stderr
    assert done.returncode == (0 if left == 0 else 1), done
    with Store(filled.store) as store:
        assert store.count() == left


def test_a_filter_that_matches_nothing_deletes_nothing(filled: CommandLine) -> None:
    answer = filled("results", "delete", "--buffer", "77", "--yes")
    assert (answer.code, answer.text) == (0, "No trial matches.")
    assert filled("results", "delete", "--method", "nothing", "--yes").code == 1  # nor is it known


@pytest.mark.parametrize("hashes", ["", "xyz", "0", "*", "a,b"])
def test_a_hash_that_cannot_be_one_is_refused(filled: CommandLine, hashes: str) -> None:
    answer = filled("results", "delete", "--hash", hashes, "--yes")
    assert answer.code == 1
    assert "filter hash" in answer.text


def test_a_filter_beyond_64_bits_is_refused(filled: CommandLine) -> None:
    answer = filled("results", "list", "--seed", str(2**70))
    assert answer.code == 1
    assert "filter seed" in answer.text
