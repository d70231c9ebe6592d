"""A method without a mask beside the same with masks: confidence, accuracy, matrices."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from remask.classes import Tasks
from remask.reports.figures.data import (
    Array,
    Family,
    confidences,
    in_common,
    matrices,
    mean_and_std,
    mean_of_seen,
    own_trials,
    system_title,
)
from remask.reports.figures.style import (
    GREY,
    PAGE,
    PALE,
    legend_above,
    look,
    new_figure,
    percent_axes,
    style,
    title,
)
from remask.results import Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MANY_CLASSES = 40
"""From here on there is no room for a tick and a marker a class."""
_MOST_NAMED = 8
"""Tasks up to which there is room for `task 1` below the classes."""
_MOST_NUMBERED = 10
"""Tasks up to which a heat map has room for numbers."""
_TASK_PANELS = 5
_SHORT, _LONGEST = 2, 12
"""Letters of a class's name up to which it stands upright, and up to which it is written out."""
_UNKNOWN = "The records do not say\nwhich classes the tasks have;\ntrials that are run again will."


def confidence_figure(drawn: Sequence[Family]) -> "Figure":
    """How sure of each class, and how right on each task, the nets are after the last task."""
    with style():
        slanted = 0.35 * any(_names_are_long(family) for family in drawn)
        figure = new_figure(PAGE, 0.45 + (1.75 + slanted) * len(drawn))
        rows: Any = figure.subplots(
            len(drawn), 2, squeeze=False, gridspec_kw={"width_ratios": (2, 1)}
        )
        for family, (left, right) in zip(drawn, rows, strict=True):
            _confidence_panel(left, family)
            left.set_title(" ")
            _legend(left, family, _cells(drawn))
            right.set_title(family.settings, loc="right", color=GREY)
            for number, cell in enumerate(family.contrasted):
                final = matrices(cell)[:, -1]
                shift = _shift(number, len(family.contrasted))
                tasks = np.arange(1, final.shape[1] + 1)
                _points(right, tasks + shift, final, cell)
            _task_ticks(right, len(tasks))
            right.set_ylabel("accuracy (%)")
            right.set_xlabel("task")
        for column in rows.T:
            percent_axes(column)
        title(figure, in_common(_cells(drawn), "after the last task, mean ± std"))
    return figure


def _confidence_panel(axes: "Axes", family: Family) -> None:
    tasks, class_names = _classes(family)
    if tasks is None or class_names is None:
        axes.set_axis_off()
        middle: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "center"}
        axes.text(0.5, 0.5, _UNKNOWN, color=GREY, **middle)
        return
    order = [label for task in tasks for label in task]
    many = _is_crowded(tasks)
    ends = np.cumsum([len(task) for task in tasks]) - 0.5
    starts = np.array([-0.5, *ends[:-1]])
    for start, end in zip(starts[1::2], ends[1::2], strict=True):
        axes.axvspan(start, end, color=PALE, linewidth=0, zorder=0)
    for number, cell in enumerate(family.contrasted):
        sure = confidences(cell)[:, order]
        places = np.arange(len(order), dtype=np.float64)
        if many:
            _band(axes, places, sure, cell, marker="")
        else:
            _points(axes, places + _shift(number, len(family.contrasted)), sure, cell)
    axes.set_xlim(-0.5, len(order) - 0.5)
    axes.set_ylabel("confidence in\nthe true class (%)")
    middles = (starts + ends) / 2
    if many:
        axes.set_xticks(middles, [str(task) for task in range(1, len(tasks) + 1)])
        axes.tick_params(axis="x", length=0)
        axes.set_xlabel("classes, by task")
        return
    names = [_shortened(class_names[label]) for label in order]
    axes.xaxis.remove_overlapping_locs = (
        False  # of a task with one class or three, the middle is one
    )
    axes.set_xticks(range(len(order)), names)
    axes.set_xticks(middles, [f"task {task}" for task in range(1, len(tasks) + 1)], minor=True)
    pad = 12.5
    if _names_are_long(family):
        slant: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        for text in axes.get_xticklabels():
            text.set(**slant)
        pad += 2.6 * max(map(len, names))
    axes.tick_params(axis="x", which="minor", length=0, pad=pad)
    axes.set_xlabel("class")


def _classes(family: Family) -> tuple[Tasks | None, tuple[str, ...] | None]:
    """The tasks and class names of all its cells; None if not all of them say so."""
    unknown = any(cell.tasks is None for cell in family.contrasted)
    return (None, None) if unknown else family.contrasted[0].learnt[2:]


def _names_are_long(family: Family) -> bool:
    tasks, class_names = _classes(family)
    if tasks is None or class_names is None or _is_crowded(tasks):
        return False
    return any(len(name) > _SHORT for name in class_names)


def _is_crowded(tasks: Tasks) -> bool:
    """Whether there is room for the names of tasks alone."""
    return sum(map(len, tasks)) > _MANY_CLASSES or len(tasks) > _MOST_NAMED


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def accuracy_figure(drawn: Sequence[Family]) -> "Figure":
    """Class-IL accuracy while tasks are learnt: the mean of all seen, then task by task.

    Of more than five tasks five are drawn, evenly spaced from the first to the last.
    """
    with style():
        tasks = max(matrices(family.contrasted[0]).shape[1] for family in drawn)
        panels = min(tasks, _TASK_PANELS)
        figure = new_figure(PAGE, 0.45 + 1.65 * len(drawn))
        rows: Any = figure.subplots(len(drawn), 1 + panels, squeeze=False, sharey=True)
        for family, row in zip(drawn, rows, strict=True):
            _legend(row[0], family, _cells(drawn), lines_below=1)
            own_tasks = matrices(family.contrasted[0]).shape[1]
            shown = np.linspace(0, own_tasks - 1, min(own_tasks, panels)).round().astype(int)
            for axes in row[1 + len(shown) :]:
                axes.set_axis_off()
            after = np.arange(1, own_tasks + 1)
            for cell in family.contrasted:
                accuracy = matrices(cell)
                _band(row[0], after, mean_of_seen(accuracy), cell)
                for axes, task in zip(row[1:], shown, strict=False):
                    _band(axes, after[task:], accuracy[:, task:, task], cell)
            names = ["all tasks so far", *(f"task {task + 1}" for task in shown)]
            for axes, name in zip(row, names, strict=False):
                axes.set_title(f" \n{name}", fontsize=7)
                _task_ticks(axes, own_tasks)
            row[len(shown)].set_title(f"{family.settings}\n ", loc="right", color=GREY)
            row[0].set_ylabel("accuracy (%)")
        percent_axes(rows.flat)
        figure.supxlabel("tasks learnt", fontsize=8)
        title(figure, in_common(_cells(drawn), "Class-IL, mean ± std"))
    return figure


def matrices_figure(drawn: Sequence[Family]) -> "Figure":
    """Accuracy matrices as heat maps, a column per system; blank is what was not measured."""
    means = [[mean_and_std(matrices(cell))[0] for cell in family.contrasted] for family in drawn]
    lowest = min(float(np.nanmin(mean)) for row in means for mean in row)
    bottom = min(10 * math.floor(lowest / 10), 90)
    with style():
        columns = max(len(row) for row in means)
        width = PAGE if columns > 2 else 5.0
        figure = new_figure(width, 0.4 + ((width - 1) / columns + 0.25) * len(drawn))
        rows: Any = figure.subplots(len(drawn), columns, squeeze=False)
        for family, row, own_means in zip(drawn, rows, means, strict=True):
            for axes in row[len(own_means) :]:
                axes.set_axis_off()
            for axes, cell, mean in zip(row, family.contrasted, own_means, strict=False):
                image = _heat_map(axes, mean, bottom)
                axes.set_title(system_title(cell) + own_trials([cell], _cells(drawn)))
                axes.set_xlabel("accuracy on task")
            if family.settings:
                row[0].set_title(f"{family.settings}\n ", loc="left", color=GREY)
            row[0].set_ylabel("after learning task")
        bar: Any = figure.colorbar(image, ax=rows, aspect=40, pad=0.015)
        bar.set_label("Class-IL accuracy (%)")
        bar.set_ticks(range(bottom, 101, 10 if bottom < 80 else 5))
        bar.outline.set_visible(False)
        title(figure, in_common(_cells(drawn), "mean"))
    return figure


def _heat_map(axes: "Axes", mean: Array, lowest: float) -> Any:
    image = axes.imshow(mean, cmap="cividis", vmin=lowest, vmax=100)
    tasks = len(mean)
    step = 1 if tasks <= _MOST_NUMBERED else 5
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(range(step - 1, tasks, step), [str(n) for n in range(step, tasks + 1, step)])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if tasks <= _MOST_NUMBERED:
        digits = 1 if tasks <= 5 else 0
        for (after, task), value in np.ndenumerate(mean):
            if not np.isnan(value):
                # The lightness of cividis grows evenly, so its middle is where white gives way.
                colour = "black" if value - lowest > (100 - lowest) / 2 else "white"
                text = f"{value:.{digits}f}"
                axes.text(task, after, text, ha="center", va="center", color=colour, fontsize=7)
    return image


def _cells(drawn: Sequence[Family]) -> list[Cell]:
    return [cell for family in drawn for cell in family.contrasted]


def _points(axes: "Axes", places: Array, values: Array, cell: Cell) -> None:
    mean, std = mean_and_std(values)
    axes.errorbar(
        places,
        mean,
        std,
        **look(cell.config.mask).of_line,
        linewidth=0.8,
        elinewidth=0.8,
        label=system_title(cell),
    )


def _band(axes: "Axes", places: Any, values: Array, cell: Cell, **changes: Any) -> None:
    mean, std = mean_and_std(values)
    own = look(cell.config.mask)
    if len(mean) > 1:
        axes.fill_between(places, mean - std, mean + std, color=own.colour, alpha=0.15, linewidth=0)
    else:  # a band needs two ends
        axes.errorbar(places, mean, std, color=own.colour, elinewidth=0.8)
    label = system_title(cell)
    every = 1 if len(mean) <= 12 else 4
    axes.plot(places, mean, **{**own.of_line, **changes}, markevery=every, label=label)


def _shift(number: int, count: int) -> float:
    """Beside each other rather than on top of each other."""
    return 0.16 * (number - (count - 1) / 2)


def _task_ticks(axes: "Axes", tasks: int) -> None:
    step = 1 if tasks <= 6 else 2 if tasks <= 12 else 5
    axes.set_xticks(range(step, tasks + 1, step))
    axes.set_xlim(0.5, tasks + 0.5)


def _legend(axes: "Axes", family: Family, drawn: Sequence[Cell], lines_below: int = 0) -> None:
    """Above the panel, as the title of its row; its room is that of an axes title's first line."""
    handles = [axes.plot([], [], **look(cell.config.mask).of_line)[0] for cell in family.contrasted]
    names = [system_title(cell) + own_trials([cell], drawn) for cell in family.contrasted]
    legend_above(axes, handles, names, lift=4 + 11 * lines_below)
