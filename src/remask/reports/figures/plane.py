"""Stability against plasticity: all cells of a benchmark in one plane."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from remask.reports.figures.data import (
    MINUS,
    Array,
    families,
    in_common,
    matrices,
    own_trials,
    system_title,
)
from remask.reports.figures.style import GREY, PAGE, Box, look, new_figure, place, style, title
from remask.results import Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STABILITY, _PLASTICITY = "class_il_F_T", "class_il_plasticity"
_MARKERS = "osD^vP*X<>phd8"
_TICKS = (0, 20, 40, 60, 70, 80, 85, 90, 95, 98, 99, 100)
_MORE_TICKS = (10, 30, 50, 55, 65, 75, *range(91, 98))
_FEW_TICKS = 4
_NAME_WIDTH = 0.07
"""Of the name of a curve, as a part of the axis."""
_SMALLEST, _GROWTH = 3.0, 1.7
"""Sizes of markers, in points: of the smallest buffer, and more for each larger one."""


def stability_plasticity_figure(cells: Sequence[Cell]) -> "Figure | None":
    """Stability 100 - F_T against plasticity in Class-IL, a point per cell; None if there is none.

    A marker's shape is the method, its colour the mask (black: none, where there are masked cells
    of the same settings; grey: none either), its size the buffer. Lines join the buffers of a
    system. Both axes are logarithmic in the distance from 101: most systems differ near 100. Thin
    curves join points of equal A_T if forgetting is all that happens to a task once it is learnt. A
    label that has no room is left out.
    """
    drawn = [cell for cell in cells if cell.trials and not np.isnan(_point(cell)).any()]
    if not drawn:
        return None
    systems: dict[str, list[Cell]] = {}
    for cell in sorted(drawn, key=lambda cell: cell.config.buffer):
        systems.setdefault(cell.label, []).append(cell)
    with style():
        figure = new_figure(PAGE, 4.4)
        axes = figure.subplots()
        ends = np.array([[_point(cell) - _std(cell), _point(cell) + _std(cell)] for cell in drawn])
        _scale(axes, ends.reshape(-1, 2))
        _equal_accuracy(axes, {matrices(cell).shape[-1] for cell in drawn})
        colours = _colours(drawn)
        methods = list(dict.fromkeys(cell.config.method for cell in drawn))
        buffers = sorted({cell.config.buffer for cell in drawn})
        for system in systems.values():
            marker = _MARKERS[methods.index(system[0].config.method) % len(_MARKERS)]
            _draw(axes, system, colours[id(system[0])], marker, buffers)
        axes.set_xlabel(f"stability, 100 {MINUS} $F_T$ (%)", parse_math=True)
        axes.set_ylabel("plasticity (%)")
        _size_legend(axes, buffers)
        title(figure, in_common(drawn, "Class-IL, mean ± std"))
        _label(figure, axes, systems, colours, buffers)
    return figure


def _point(cell: Cell) -> Array:
    return np.array([100 - cell.spreads[_STABILITY].mean, cell.spreads[_PLASTICITY].mean])


def _std(cell: Cell) -> Array:
    return np.array([cell.spreads[_STABILITY].std, cell.spreads[_PLASTICITY].std])


def _scale(axes: "Axes", points: Array) -> None:
    def stretch(values: Array) -> Array:
        return -np.log(np.maximum(101 - np.asarray(values), 1e-3))

    def shrink(values: Array) -> Array:
        return 101 - np.exp(-np.asarray(values))

    low = stretch(points.min(axis=0))
    high = stretch(np.minimum(points.max(axis=0), 100))
    margin = np.maximum(0.05 * (high - low), 0.05)
    bottom, top = shrink(low - margin), np.minimum(shrink(high + margin), 100)
    axes.set_xscale("function", functions=(stretch, shrink))
    axes.set_yscale("function", functions=(stretch, shrink))
    axes.set_xlim(bottom[0], top[0])
    axes.set_ylim(bottom[1], top[1])
    for axis, first, last in zip((axes.xaxis, axes.yaxis), bottom, top, strict=True):
        ticks = [tick for tick in _TICKS if first <= tick <= last]
        more = [tick for tick in _MORE_TICKS if first <= tick <= last]
        few = len(ticks) < _FEW_TICKS
        axis.set_ticks(sorted(ticks + more) if few else ticks)
        axis.set_ticks([] if few else more, minor=True)


def _equal_accuracy(axes: "Axes", numbers_of_tasks: set[int]) -> None:
    """Curves of A_T = plasticity - F_T (T - 1) / T, named where they leave through the top."""
    if len(numbers_of_tasks) > 1:
        return
    (tasks,) = numbers_of_tasks
    (left, right), top = axes.get_xlim(), axes.get_ylim()[1]
    stability = np.linspace(left, right, 500)
    last_place = math.inf
    for level in (95, *range(90, 0, -10)):
        leaves = 100 - (top - level) * tasks / (tasks - 1)
        if not left < leaves < right:
            continue
        place_on_top = axes.transAxes.inverted().transform(axes.transData.transform((leaves, top)))
        if last_place - place_on_top[0] > _NAME_WIDTH:
            last_place = place_on_top[0]
            curve = level + (100 - stability) * (tasks - 1) / tasks
            axes.plot(stability, curve, color="#dcdcdc", linewidth=0.6, zorder=1)
            axes.annotate(
                f"$A_T$ = {level}",
                (leaves, top),
                (0, 2),
                textcoords="offset points",
                ha="center",
                color="#8c8c8c",
                fontsize=6.5,
                parse_math=True,
            )


def _colours(cells: Sequence[Cell]) -> dict[int, str]:
    paired = {id(family.plain) for family in families(cells) if family.masked}
    return {
        id(cell): GREY
        if cell.config.mask is None and id(cell) not in paired
        else look(cell.config.mask).colour
        for cell in cells
    }


def _draw(
    axes: "Axes", system: Sequence[Cell], colour: str, marker: str, buffers: Sequence[int]
) -> None:
    points = np.array([_point(cell) for cell in system])
    axes.plot(*points.T, color=colour, linewidth=0.7, alpha=0.6, zorder=2)
    for cell, point in zip(system, points, strict=True):
        std = _std(cell)
        upper = np.minimum(std, 100 - point)
        axes.errorbar(
            point[0],
            point[1],
            xerr=[[std[0]], [upper[0]]],
            yerr=[[std[1]], [upper[1]]],
            color=colour,
            marker=marker,
            markersize=_size(cell, buffers),
            markerfacecolor="white" if cell.config.mask is None else colour,
            elinewidth=0.5,
            zorder=3,
        )


def _size(cell: Cell, buffers: Sequence[int]) -> float:
    return _SMALLEST + _GROWTH * buffers.index(cell.config.buffer)


def _size_legend(axes: "Axes", buffers: Sequence[int]) -> None:
    handles = [
        axes.plot([], [], "o", color=GREY, markerfacecolor="white", markersize=size)[0]
        for size in (_SMALLEST + _GROWTH * rank for rank in range(len(buffers)))
    ]
    names = [f"buffer {buffer}" if buffer else "no buffer" for buffer in buffers]
    axes.legend(
        handles,
        names,
        loc="lower right",
        bbox_to_anchor=(1, 1.04),
        ncols=min(len(names), 5),
        labelcolor=GREY,
        handlelength=1.2,
        fontsize=7,
    )


def _label(
    figure: "Figure",
    axes: "Axes",
    systems: dict[str, list[Cell]],
    colours: dict[int, str],
    buffers: Sequence[int],
) -> None:
    """Name each system beside one of its points, where nothing else is."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what is measured now shall stay so
    boxes = _occupied(figure, axes, systems, buffers)
    pixel = figure.dpi / 72
    for name, system in systems.items():
        text = name.replace(name.partition(", ")[0], system_title(system[0]), 1)
        text += own_trials(system, [cell for cells in systems.values() for cell in cells])
        colour = colours[id(system[0])]
        written = axes.text(0, 0, text, fontsize=7, color=colour, transform=None, zorder=5)
        extent = written.get_window_extent()
        spots = [
            (x + dx * gap, y + dy * gap, dx, dy)
            for gap in (5 * pixel, 8 * pixel, 12 * pixel)
            for x, y in axes.transData.transform([_point(cell) for cell in reversed(system)])
            for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
        ]
        found = place(boxes, extent.width, extent.height, spots)
        written.remove()
        if found is None:
            continue
        boxes.append(found)
        left, bottom = axes.transAxes.inverted().transform(found[:2])
        axes.text(
            left,
            bottom,
            text,
            fontsize=7,
            color=colour,
            transform=axes.transAxes,
            va="bottom",
            zorder=5,
        )


def _occupied(
    figure: "Figure", axes: "Axes", systems: dict[str, list[Cell]], buffers: Sequence[int]
) -> list[Box]:
    """What labels shall not cover: markers, error bars, lines, the legend, and the outside."""
    pixel = figure.dpi / 72
    boxes: list[Box] = []
    for system in systems.values():
        places = axes.transData.transform([_point(cell) for cell in system])
        for cell, (x, y) in zip(system, places, strict=True):
            half = (_size(cell, buffers) / 2 + 1) * pixel
            boxes.append((x - half, y - half, x + half, y + half))
            ends = [_point(cell) - _std(cell), np.minimum(_point(cell) + _std(cell), 100)]
            (left, bottom), (right, top) = axes.transData.transform(ends)
            boxes += [(left, y - pixel, right, y + pixel), (x - pixel, bottom, x + pixel, top)]
        for start, end in pairwise(places):
            steps = max(2, math.ceil(float(np.abs(end - start).max()) / (3 * pixel)))
            for x, y in np.linspace(start, end, steps):
                boxes.append((x - pixel, y - pixel, x + pixel, y + pixel))
    legend: Any = axes.get_legend()
    frame, inside = legend.get_window_extent(), axes.get_window_extent()
    far = 1e6
    return [
        *boxes,
        (frame.x0, frame.y0, frame.x1, frame.y1),
        (-far, -far, inside.x0, far),
        (inside.x1, -far, far, far),
        (-far, -far, far, inside.y0),
        (-far, inside.y1, far, far),
    ]
