"""The history of a learner, visit by visit, as tables, a figure and a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import or_
from pathlib import Path

from remask.errors import SettingsError, printable
from remask.files import AnyPath
from remask.learner.predictions import Abstention
from remask.learner.results import Visit, percent
from remask.learner.summary import ClassSummary
from remask.outputs import write_output
from remask.reports.figures.description import Axis, Figure, Look, Mark, Panel, Source
from remask.reports.figures.drawing import draw, rendered
from remask.reports.page import fill_template
from remask.reports.tables import PlainTable

_SCRIPTS = ("dom.js", "chart.js", "marks.js", "reader.js", "history.js")
_MOST_LINES = 20
_LINES_OF_MANY = 10
_ALL = "all classes"
_SHOWN = ("name", "finished", "summary", "accuracy", "mean")


@dataclass(frozen=True, kw_only=True)
class LearnerNow:
    """The memory of a learner, and measurements on its held-out samples."""

    memory: Sequence[ClassSummary]
    calibration: str  # the temperature and the calibration error, in words
    abstain: Sequence[Abstention] = ()
    confusion: Mapping[str, Mapping[str, int]] | None = None
    """Held-out samples by true class, then by predicted class."""
    missing: str | None = None  # why nothing is measured, if nothing is


def visits_table(visits: Sequence[Visit]) -> PlainTable:
    """A row per visit: date, new classes, and the accuracy afterwards."""
    left = ["visit", "finished (UTC)", "new classes"]
    known = accumulate((set(visit.new_classes) for visit in visits), or_)
    rows = [
        [
            visit.name,
            visit.finished[:16].replace("T", " "),
            ", ".join(visit.new_classes) or "-",
            f"{sum(visit.samples.values()):,}",
            str(len(classes)),
            percent(visit.mean),
        ]
        for visit, classes in zip(visits, known, strict=True)
    ]
    return PlainTable([*left, "samples", "classes", "accuracy"], rows, left=left, wrap=True)


def classes_table(visits: Sequence[Visit]) -> PlainTable:
    """A row per class: the accuracy on held-out samples after each visit."""
    rows = [
        [name, *(percent(visit.accuracy.get(name)) for visit in visits)]
        for name in _classes(visits)
    ]
    rows.append([_ALL, *(percent(visit.mean) for visit in visits)])
    columns = ["class", *(visit.name for visit in visits)]
    return PlainTable(columns, rows, left=("class",), wrap=True)


def history_figure(title: str, visits: Sequence[Visit]) -> Figure:
    """Accuracy per class over visits; of many classes, those with the lowest accuracy now."""
    shown = classes = _classes(visits)
    left_out = ""
    if len(classes) > _MOST_LINES:
        now = visits[-1].accuracy
        lowest = sorted((name for name in classes if name in now), key=lambda name: now[name])
        shown = sorted(lowest[:_LINES_OF_MANY], key=classes.index)
        left_out = f"Of {len(classes)} classes, the {len(shown)} lowest now are drawn."
    marks = []
    for number, name in enumerate(shown):
        accuracy = [visit.accuracy.get(name) for visit in visits]
        samples = [visit.held_out.get(name, 0) for visit in visits]
        marks.append(_line(name, Look.number(number), accuracy, samples))
    every = [sum(visit.held_out.values()) for visit in visits]
    marks.append(_line(_ALL, Look(None, marker="ring"), [visit.mean for visit in visits], every))
    places = tuple(printable(visit.name) for visit in visits)
    panel = Panel(
        "",
        Axis("visit", places, tuple(f"after {place}" for place in places)),
        Axis("accuracy (%)"),
        tuple(marks),
        std_as="bars",  # there are none, but equal lines are then shifted apart
    )
    return Figure(
        key="history",
        summary=f"{printable(title)}, on held-out samples",
        panels=(panel,),
        remark=left_out,
        inches=3.2,
    )


def _line(name: str, look: Look, accuracy: Sequence[float | None], samples: Sequence[int]) -> Mark:
    shown = printable(name)
    sources = tuple(Source("", shown, count, "held-out sample") for count in samples)
    return Mark("line", shown, look, sources, x=tuple(range(len(samples))), y=tuple(accuracy))


def history_html(title: str, visits: Sequence[Visit], now: LearnerNow | None = None) -> str:
    """The history as one HTML file."""
    data = {
        "title": title,
        "classes": _classes(visits),
        "visits": [
            {**{name: getattr(visit, name) for name in _SHOWN}, "choice": str(visit.choice)}
            for visit in visits
        ],
        "figure": history_figure(title, visits) if visits else None,
        "now": now,
    }
    return fill_template("history.html", data, scripts=_SCRIPTS)


def is_page(target: AnyPath) -> bool:
    """Whether a file name is that of a page."""
    return Path(target).suffix.lower() in (".html", ".htm")


def write_history(
    title: str, visits: Sequence[Visit], target: AnyPath, now: LearnerNow | None = None
) -> None:
    """Write a page, NAME.html, with `now`; or only the figure, NAME.png or NAME.svg.

    Raises SettingsError, and without matplotlib for a figure MissingPackageError.
    """
    target = Path(target)
    kind = target.suffix.lower().removeprefix(".")
    if is_page(target):
        data = history_html(title, visits, now).encode()
    elif kind not in ("png", "svg"):
        raise SettingsError(f"{target}: name a page (.html) or a figure (.png or .svg)")
    elif not visits:
        raise SettingsError(f"{title} has not learnt anything yet: there is nothing to draw")
    else:
        data = rendered(draw(history_figure(title, visits)), kind)
    write_output(target, data)


def _classes(visits: Sequence[Visit]) -> list[str]:
    """In the order in which they were learnt."""
    return list(dict.fromkeys(name for visit in visits for name in visit.accuracy))
