"""Accuracy against the mask."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from remask.reports.figures.data import Family, in_common, mask_name, name_with_mask, own_trials
from remask.reports.figures.style import COLUMN, GREY, PAGE, look, new_figure, style, title
from remask.results import Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def mask_sweep_figure(drawn: Sequence[Family]) -> "Figure":
    """Average accuracy against the mask, a column per family: Class-IL above, Task-IL below.

    Masks are evenly spaced in their order. The dotted line is the method without a mask.
    """
    cells = [cell for family in drawn for cell in family.cells]
    with style():
        width = COLUMN if len(drawn) == 1 else PAGE
        figure = new_figure(width, 3.6)
        rows: Any = figure.subplots(2, len(drawn), squeeze=False, sharex="col")
        for setting, name, row in zip(
            ("class_il", "task_il"), ("Class-IL", "Task-IL"), rows, strict=True
        ):
            row[0].set_ylabel(f"{name} accuracy $A_T$ (%)", parse_math=True)
            for family, axes in zip(drawn, row, strict=True):
                _sweep_panel(axes, family, f"{setting}_A_T", cells)
        for family, axes in zip(drawn, rows[0], strict=True):
            method = name_with_mask(family.cells[0], -1.0).rpartition("(")[0]
            settings = f"\n{family.settings}" if family.settings else ""
            axes.set_title(f"{method}(m), buffer {family.config.buffer}{settings}")
        for family, axes in zip(drawn, rows[1], strict=True):
            masks = [
                mask_name(cell.config.mask or 0.0) + own_trials([cell], cells)
                for cell in family.masked
            ]
            axes.set_xticks(range(len(masks)), masks, rotation=45)
            axes.set_xlabel("mask m")
        title(figure, in_common(cells, "mean ± std"))
    return figure


def _sweep_panel(axes: "Axes", family: Family, score: str, drawn: Sequence[Cell]) -> None:
    spreads = [cell.spreads[score] for cell in family.masked]
    mean = np.array([spread.mean for spread in spreads])
    std = np.array([spread.std for spread in spreads])
    places = np.arange(len(mean))
    own = look(-np.inf)
    first = int(np.isinf(family.masked[0].config.mask or 0.0))
    if first:
        axes.errorbar(0, mean[0], std[0], **{**own.of_line, "linestyle": ""}, elinewidth=0.8)
        slash: dict[str, Any] = {
            "marker": [(-1, -2), (1, 2)],
            "markersize": 5,
            "linestyle": "",
            "clip_on": False,
        }
        axes.plot([0.42, 0.58], [0, 0], transform=axes.get_xaxis_transform(), color="k", **slash)
    axes.fill_between(
        places[first:],
        (mean - std)[first:],
        (mean + std)[first:],
        color=own.colour,
        alpha=0.18,
        linewidth=0,
    )
    axes.plot(places[first:], mean[first:], **{**own.of_line, "linestyle": "-"})
    axes.set_xlim(-0.5, len(mean) - 0.5)
    if family.plain is not None and not np.isnan(family.plain.spreads[score].mean):
        level, std_of_level = family.plain.spreads[score].mean, family.plain.spreads[score].std
        axes.axhline(level, color=GREY, linestyle=":", linewidth=1.2, zorder=1)
        axes.errorbar(
            len(mean) - 0.5, level, std_of_level, color=GREY, linewidth=0.8, clip_on=False
        )
        axes.annotate(
            name_with_mask(family.cells[0], None) + own_trials([family.plain], drawn),
            (1, level),
            (3, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            va="center",
            color=GREY,
            fontsize=7,
        )
