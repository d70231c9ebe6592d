"""The history of a learner as tables, a figure and a page."""

import re
from pathlib import Path

import pytest

from remask.errors import SettingsError
from remask.learner.predictions import Abstention
from remask.learner.results import Choice, Visit
from remask.learner.summary import ClassSummary
from remask.reports.history import (
    LearnerNow,
    classes_table,
    history_figure,
    history_html,
    visits_table,
    write_history,
)
from tests.reports.samples import embedded


def _visit(name: str, accuracy: dict[str, float], new: tuple[str, ...] = ()) -> Visit:
    return Visit(
        name=name,
        number=1,
        finished="2026-05-04T03:02:01+00:00",
        seconds=1.0,
        steps=4,
        epochs=1,
        samples=dict.fromkeys(new, 40),
        new_classes=new,
        before={},
        accuracy=accuracy,
        held_out=dict.fromkeys(accuracy, 4),
        choice=Choice(mask="-1", lr=0.1, why="the default"),
        fingerprint=None,
    )


VISITS = [
    _visit("week-1", {"ant": 100.0}, ("ant",)),
    _visit("week-2", {"ant": 75.0, "bee": 50.0, "cat": 100.0}, ("bee", "cat", "dog")),
]


def _rows(table: object) -> list[list[str]]:
    return [line.split() for line in str(table).splitlines() if line.strip()]


def test_a_row_per_visit_has_its_date_and_new_classes() -> None:
    rows = _rows(visits_table(VISITS))
    assert rows[-2] == ["week-1", "2026-05-04", "03:02", "ant", "40", "1", "100.0"]
    assert rows[-1] == ["week-2", "2026-05-04", "03:02", "bee,", "cat,", "dog", "120", "4", "75.0"]


def test_a_row_per_class_has_its_accuracy_since_it_was_learnt() -> None:
    rows = _rows(classes_table(VISITS))
    assert ["ant", "100.0", "75.0"] in rows
    assert ["bee", "50.0"] in rows
    assert rows[-1] == ["all", "classes", "100.0", "75.0"]


def test_a_line_begins_with_the_visit_that_brought_its_class() -> None:
    (panel,) = history_figure("pets", VISITS).panels
    lines = {mark.name: mark.y for mark in panel.marks}
    assert lines == {
        "ant": (100.0, 75.0),
        "bee": (None, 50.0),
        "cat": (None, 100.0),
        "all classes": (100.0, 75.0),
    }
    assert panel.x.places == ("week-1", "week-2")
    assert {source.unit for mark in panel.marks for source in mark.sources} == {"held-out sample"}


def test_of_many_classes_those_that_are_lowest_now_are_drawn() -> None:
    accuracy = {f"class {n}": float(100 - n) for n in range(30)}
    figure = history_figure("many", [_visit("all", accuracy)])
    drawn = [mark.name for mark in figure.panels[0].marks]
    assert drawn == [*(f"class {n}" for n in range(20, 30)), "all classes"]
    assert "Of 30 classes, the 10 lowest now are drawn." in figure.remark


def test_a_learner_that_has_learnt_nothing_has_a_page_and_no_figure(tmp_path: Path) -> None:
    write_history("new", [], tmp_path / "new.html")
    assert '"figure":null' in (tmp_path / "new.html").read_text("utf-8")
    with pytest.raises(SettingsError, match="nothing to draw"):
        write_history("new", [], tmp_path / "new.png")


def test_the_page_holds_everything_and_a_name_cannot_end_its_script() -> None:
    hostile = "</script><b>{{style}}"
    page = history_html(hostile, [_visit(hostile, {hostile: 12.5}, (hostile,))])
    assert "</script><b>" not in page
    assert embedded(page)["title"] == hostile
    assert embedded(page)["visits"][0]["accuracy"] == {hostile: 12.5}
    assert "<title>&lt;/script&gt;&lt;b&gt;{{style}}</title>" in page  # a name stays a name
    assert not re.search(r"https?://", page)


def test_the_page_has_memory_calibration_and_confusions() -> None:
    now = LearnerNow(
        memory=[ClassSummary("ant", 40, 9, 1800, 75.0)],
        calibration="a temperature of 1.20",
        abstain=[Abstention(0.9, 0.63, 0.81, 1.0, 4), Abstention(0.99, None, 0.0, 0.9, 4)],
        confusion={"ant": {"ant": 3, "bee": 1}},
    )
    read = embedded(history_html("pets", VISITS, now))["now"]
    assert [(each["name"], each["kept"]) for each in read["memory"]] == [("ant", 9)]
    assert [each["confidence"] for each in read["abstain"]] == [0.63, None]
    assert read["confusion"] == {"ant": {"ant": 3, "bee": 1}}
    assert embedded(history_html("pets", VISITS))["now"] is None
