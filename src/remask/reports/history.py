"""The history of a learner, visit by visit, as tables, a figure and a page."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from remask.durable import AnyPath, write_output
from remask.errors import SettingsError
from remask.printable import printable
from remask.reports.figures.description import Axis, Figure, Look, Mark, Panel, Source
from remask.reports.figures.drawing import draw
from remask.reports.figures.style import rendered
from remask.reports.page import assembled
from remask.reports.tables import PlainTable

_SCRIPTS = ("dom.js", "chart.js", "marks.js", "reader.js", "history.js")
_STYLES = ("page.css", "results.css", "figures.css")
_MOST_LINES = 20
_LINES_OF_MANY = 10
_ALL = "all classes"


@dataclass(frozen=True, kw_only=True)
class LearntVisit:
    """What is known of one visit. Accuracies are percentages, on samples that are held out."""

    name: str
    finished: str
    """In UTC, as ISO 8601."""
    summary: str
    """What happened, for people."""
    choice: str
    """The settings that were chosen, and why."""
    new_classes: tuple[str, ...]
    samples: Mapping[str, int]
    """How many of each class were learnt from."""
    accuracy: Mapping[str, float]
    """Of each class that was known afterwards."""
    held_out: Mapping[str, int]
    """How many samples each class was measured on."""

    @property
    def mean(self) -> float | None:
        """The accuracy over all classes, each weighing the same."""
        values = self.accuracy.values()
        return sum(values) / len(values) if values else None


@dataclass(frozen=True, kw_only=True)
class KeptClass:
    """The samples of one class."""

    name: str
    seen: int
    """Samples that visits have learnt from."""
    kept: int
    """Samples in the memory."""
    bytes: int
    """Size of those."""


@dataclass(frozen=True, kw_only=True)
class LearnerNow:
    """The memory of a learner, and what is measured on its held-out samples now."""

    memory: Sequence[KeptClass]
    calibration: str
    """The temperature and the calibration error, for people."""
    abstain: Sequence[tuple[float, float | None, float]] = ()
    """Wanted accuracy, the confidence that it needs (None: not reached), and the coverage."""
    confusion: Mapping[str, Mapping[str, int]] | None = None
    """Held-out samples by true class, then by predicted class."""
    missing: str | None = None
    """Why nothing is measured, if nothing is."""


def visits_table(visits: Sequence[LearntVisit]) -> PlainTable:
    """A row per visit: when it was, what was new, and how right the learner was after it."""
    table = PlainTable()
    for heading in ("visit", "finished (UTC)", "new classes"):
        table.add_column(heading)
    for heading in ("samples", "classes", "accuracy"):
        table.add_column(heading, justify="right")
    for visit in visits:
        table.add_row(
            _text(visit.name),
            visit.finished[:16].replace("T", " "),
            _text(", ".join(visit.new_classes) or "-"),
            f"{sum(visit.samples.values()):,}",
            str(len(visit.accuracy)),
            _percent(visit.mean),
        )
    return table


def classes_table(visits: Sequence[LearntVisit]) -> PlainTable:
    """A row per class: right answers on held-out samples after each visit, in percent."""
    table = PlainTable()
    table.add_column("class")
    for visit in visits:
        table.add_column(_text(visit.name), justify="right")
    for name in _classes(visits):
        table.add_row(_text(name), *(_percent(visit.accuracy.get(name)) for visit in visits))
    table.add_row(_ALL, *(_percent(visit.mean) for visit in visits))
    return table


def history_figure(title: str, visits: Sequence[LearntVisit]) -> Figure:
    """Accuracy per class over visits. Of very many classes, those that are lowest now."""
    classes = _classes(visits)
    shown = classes
    if len(classes) > _MOST_LINES and visits:
        now = visits[-1].accuracy
        known = sorted((name for name in classes if name in now), key=lambda name: now[name])
        shown = sorted(known[:_LINES_OF_MANY], key=classes.index)
    marks = [_line(name, Look.number(n), visits) for n, name in enumerate(shown)]
    marks.append(_line(_ALL, Look(None, marker="ring"), visits))
    places = tuple(printable(visit.name) for visit in visits)
    left_out = f" Of {len(classes)} classes, the {len(shown)} that are lowest now are drawn."
    return Figure(
        key="history",
        title="Accuracy per class over visits",
        summary=f"{printable(title)}, on held-out samples",
        caption="Each line begins with the visit that brought its class; where it falls, later "
        "visits have cost the class something." + (left_out if len(shown) < len(classes) else ""),
        empty="Nothing has been learnt yet.",
        panels=(
            Panel(
                "",
                Axis("visit", places, tuple(f"after {place}" for place in places)),
                Axis("right answers (%)"),
                tuple(marks),
                std_as="bars",  # there is none, but lines that are equal then stand side by side
            ),
        ),
        inches=3.2,
    )


def history_html(title: str, visits: Sequence[LearntVisit], now: LearnerNow | None = None) -> str:
    """The page: one HTML file that needs nothing else."""
    shown = [{**asdict(visit), "mean": visit.mean} for visit in visits]
    data: dict[str, Any] = {
        "title": title,
        "classes": _classes(visits),
        "visits": shown,
        "figure": asdict(history_figure(title, visits)) if visits else None,
        "now": None if now is None else asdict(now),
    }
    return assembled("history.html", data, styles=_STYLES, scripts=_SCRIPTS)


def is_page(target: AnyPath) -> bool:
    """Whether a file is to be a page, by its name."""
    return Path(target).suffix.lower() in (".html", ".htm")


def write_history(
    title: str, visits: Sequence[LearntVisit], target: AnyPath, now: LearnerNow | None = None
) -> None:
    """Write a page, NAME.html, or the figure alone, NAME.png or NAME.svg.

    `now` is shown on the page.

    Raises SettingsError, and without matplotlib for a figure MissingPackageError.
    """
    target = Path(target)
    kind = target.suffix.lower().removeprefix(".")
    if is_page(target):
        data = history_html(title, visits, now).encode()
    elif kind in ("png", "svg"):
        if not visits:
            raise SettingsError(f"{title} has not learnt anything yet: there is nothing to draw")
        data = rendered(draw(history_figure(title, visits)), kind)
    else:
        raise SettingsError(f"{target}: name a page, .html, or a figure, .png or .svg")
    write_output(target, data)


def _line(name: str, look: Look, visits: Sequence[LearntVisit]) -> Mark:
    every = name == _ALL
    return Mark(
        "line",
        printable(name),
        look,
        tuple(
            Source(
                "",
                printable(name),
                sum(visit.held_out.values()) if every else visit.held_out.get(name, 0),
                "held-out sample",
            )
            for visit in visits
        ),
        x=tuple(range(len(visits))),
        y=tuple(visit.mean if every else visit.accuracy.get(name) for visit in visits),
    )


def _classes(visits: Sequence[LearntVisit]) -> list[str]:
    """In the order in which they were learnt."""
    return list(dict.fromkeys(name for visit in visits for name in visit.accuracy))


def _text(text: str) -> Text:
    return Text(printable(text))


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
