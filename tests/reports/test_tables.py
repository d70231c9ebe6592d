"""Tables as text, Markdown and HTML."""

from io import StringIO

import pytest

from remask.console import PlainConsole
from remask.reports import tables
from remask.reports.tables import PlainTable

_ROWS = [["<i>ER</i>", "200", "85.29 ±2.05"], ["MSDER++(-inf), lr=0.1", "5120", "5.29 ±2.05"]]


def _table(rows: int) -> PlainTable:
    table = PlainTable(["method", "buffer", "A_T"], _ROWS * rows, left=("method",))
    table.title = "split-mnist"
    return table


def test_a_long_table_has_the_text_that_rich_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = str(_table(30))
    monkeypatch.setattr(tables, "_LONGEST_RICH_TABLE", 5)
    assert str(_table(30)) == rendered


def test_a_narrow_terminal_cuts_no_number() -> None:
    PlainConsole(width=20, file=(printed := StringIO())).print(_table(1))
    assert "MSDER++(-inf), lr=0.1     5120    5.29 ±2.05" in printed.getvalue()


def test_a_table_in_a_document_or_notebook() -> None:
    assert _table(1).markdown().splitlines()[:2] == [
        "| method | buffer | A_T |",
        "| --- | ---: | ---: |",
    ]
    assert "<td>&lt;i&gt;ER&lt;/i&gt;</td><td>200</td>" in _table(1)._repr_html_()
