"""Commands on stores: names from elsewhere are shown safely, and deleting asks first."""

import os
import pty
import sys
from pathlib import Path

import pytest

from remask.store import Store
from tests.command_line import CommandLine
from tests.store.store_samples import make_config, make_record, make_records

_NAMES = ["[/foo]", "[bold]x[/bold]", "[link=file:///x]y[/link]", ":smile:", "=cmd()", "<b>&"]


def test_names_that_look_like_markup_are_shown_as_they_are(
    remask: CommandLine, tmp_path: Path
) -> None:
    with Store(remask.store) as store:
        store.add_all(make_record(make_config(benchmark=name)) for name in _NAMES)
    for command in (("results", "list"), ("results", "list", "--trials")):
        shown = remask(*command).text
        assert all(name in shown for name in _NAMES)
    exports = [("results", "export", f"out.{kind}") for kind in ("csv", "tex", "json", "parquet")]
    for *words, last in (*exports, ("report", "out.html")):
        answer = remask(*words, str(tmp_path / last))
        assert answer.code == 0, answer
    assert remask("results", "compare").code == 0


# Deleting


@pytest.fixture
def filled(remask: CommandLine) -> CommandLine:
    with Store(remask.store) as store:
        store.add_all([*make_records(3), *make_records(2, method="derpp", mask=-1)])
    return remask


def test_what_passes_the_filters_is_deleted_and_nothing_else(filled: CommandLine) -> None:
    answer = filled("results", "delete", "--method", "er", "--seed", "0,2", "--yes")
    assert answer.code == 0
    assert "split-digits ER buffer 200 finished: 2" in answer.text
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


def test_without_a_terminal_nothing_is_deleted_unless_yes_is_said(
    filled: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(os.devnull).open() as nothing:
        for stdin in (None, nothing):
            monkeypatch.setattr(sys, "stdin", stdin)
            answer = filled("results", "delete", "--all")
            assert answer.code == 1
            assert "cannot ask for confirmation: the input is not a terminal" in answer.text
    with Store(filled.store) as store:
        assert store.count() == 5


@pytest.mark.parametrize(("reply", "left"), [("y\n", 0), ("n\n", 5), ("\n", 5)])
def test_at_a_terminal_deleting_asks_first(
    filled: CommandLine, monkeypatch: pytest.MonkeyPatch, reply: str, left: int
) -> None:
    parent, child = pty.openpty()
    os.write(parent, reply.encode())
    with os.fdopen(child) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        answer = filled("results", "delete", "--all")
    os.close(parent)
    assert "Delete 5 trials from" in answer.text
    assert answer.code == (0 if left == 0 else 1), answer
    with Store(filled.store) as store:
        assert store.count() == left


def test_a_filter_that_matches_nothing_deletes_nothing(filled: CommandLine) -> None:
    answer = filled("results", "delete", "--buffer", "77", "--yes")
    assert (answer.code, answer.text) == (0, "No trial matches.")
    assert filled("results", "delete", "--method", "nothing", "--yes").code == 1  # nor is it known


@pytest.mark.parametrize("hashes", ["", "xyz", "0", "*", "a,b"])
def test_an_impossible_filter_is_refused(filled: CommandLine, hashes: str) -> None:
    for name, value in (("hash", hashes), ("seed", str(2**70))):
        answer = filled("results", "delete", f"--{name}", value, "--yes")
        assert answer.code == 1
        assert f"filter {name}" in answer.text
