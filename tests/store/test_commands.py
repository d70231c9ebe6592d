"""Commands on stores: names from elsewhere are shown safely, and deleting asks first."""

import os
import pty
import sys
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.store.store_samples import make_config, make_record, make_records

_NAMES = ["[/foo]", "[bold]x[/bold]", "[link=file:///x]y[/link]", ":smile:", "=cmd()", "<b>&"]


def test_names_that_look_like_markup_are_shown_as_text(remask: CommandLine, tmp_path: Path) -> None:
    remask.add(*(make_record(make_config(benchmark=name)) for name in _NAMES))
    for command in (("results", "list"), ("results", "list", "--trials")):
        shown = remask(*command).text
        assert all(name in shown for name in _NAMES)
    exports = [("results", "export", f"out.{kind}") for kind in ("csv", "tex", "json", "parquet")]
    for *words, last in (*exports, ("report", "out.html")):
        remask.succeed(*words, str(tmp_path / last))
    remask.succeed("results", "compare")


# Deleting


@pytest.fixture
def filled(remask: CommandLine) -> CommandLine:
    remask.add(*make_records(3), *make_records(2, method="derpp", mask=-1))
    return remask


def test_what_passes_the_filters_is_deleted_and_nothing_else(filled: CommandLine) -> None:
    shown = filled.succeed("results", "delete", "--method", "er", "--seed", "0,2", "--yes").text
    assert "split-digits ER buffer 200 finished: 2" in shown
    assert "2 trials deleted" in shown
    left = [(record.config.method, record.seed) for record in filled.records()]
    assert left == [("derpp", 0), ("derpp", 1), ("er", 1)]
    filled.succeed("results", "delete", "--all", "--yes")
    assert filled.records() == []


def test_without_a_terminal_nothing_is_deleted_unless_yes_is_said(
    filled: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(os.devnull).open() as nothing:
        for stdin in (None, nothing):
            monkeypatch.setattr(sys, "stdin", stdin)
            message = filled.refusal("results", "delete", "--all")
            assert "cannot ask for confirmation: the input is not a terminal" in message
    assert len(filled.records()) == 5


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
    assert len(filled.records()) == left


def test_a_filter_that_matches_nothing_or_is_invalid_deletes_nothing(filled: CommandLine) -> None:
    delete = ("results", "delete", "--yes")
    assert filled.succeed(*delete, "--buffer", "77").text == "No trial matches."
    filled.refusal(*delete, "--method", "nothing")
    assert "filter seed" in filled.refusal(*delete, "--seed", str(2**70))
    for hashes in ("", "xyz", "0", "*", "a,b"):
        assert "filter hash" in filled.refusal(*delete, "--hash", hashes)
    assert len(filled.records()) == 5
