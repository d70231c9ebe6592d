"""The results of trials."""

import importlib
import math
import shlex
from collections import UserList
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from remask.config import CONDITIONS, IDENTITY, TrialConfig
from remask.errors import MissingPackageError, RemaskError
from remask.experiments.configs import trial_configs
from remask.methods import METHODS
from remask.own_code import names_own_code
from remask.record import TrialRecord
from remask.reports.comparison import (
    ComparedCell,
    compare,
    comparison_markdown,
    comparison_summary,
    comparison_table,
    paper_cell,
)
from remask.reports.figures import plot
from remask.reports.tables import PlainTable, best_by_validation, masks_chosen, results_table
from remask.store.cells import Cell, summarise, summary_of
from remask.store.export import column_types, flat_row

NOTHING_PUBLISHED = (
    "Nothing is published about these results: figures exist for the paper's benchmarks, methods, "
    "masks and buffers with their published settings."
)


class Compared(UserList[ComparedCell]):
    """Cells with their published figures; printed as a table and a summary."""

    def table(self) -> PlainTable:
        """A row per cell: ours, with the published figure below."""
        return comparison_table(self.data)

    def summary(self) -> list[str]:
        """What the table means and shows, a sentence per line."""
        return comparison_summary(self.data) if self.data else [NOTHING_PUBLISHED]

    def markdown(self) -> str:
        """The table and the summary in Markdown."""
        table = comparison_markdown(self.data) if self.data else ""
        return table + "\n".join(self.summary())

    def as_json(self) -> list[dict[str, Any]]:
        """What commands print with --json: our results beside the published figures, by cell."""
        return [
            {
                **{name: getattr(cell.paper, name) for name in ("benchmark", "method", "buffer")},
                "mask": "-inf" if cell.paper.mask == -math.inf else cell.paper.mask,
                "label": cell.label,
                "verdict": cell.verdict,
                "figures": {
                    name: {
                        "ours": figure.ours and figure.ours._asdict(),
                        "published": figure.published._asdict(),
                        "p_different": figure.test and figure.test.p_different,
                        "verdict": figure.verdict,
                    }
                    for name, figure in cell.figures.items()
                },
            }
            for cell in self.data
        ]

    def __repr__(self) -> str:
        table = [str(self.table())] if self.data else []
        return "\n".join([*table, *self.summary()])

    def _repr_html_(self) -> str:
        if not self.data:
            return f"<p>{escape(NOTHING_PUBLISHED)}</p>"
        return self.table()._repr_html_()


class Results(UserList[TrialRecord]):
    """The records of trials; printed, or shown in a notebook, as a table of cells.

    `asked` is the order in which cells are shown; without it they are sorted.
    """

    def __init__(
        self,
        records: Iterable[TrialRecord],
        *,
        asked: Sequence[TrialConfig] = (),
        failures: Sequence[str] = (),
        ran: bool = False,
    ) -> None:
        super().__init__(records)
        self._order = {cell: n for n, cell in enumerate(dict.fromkeys(c.cell for c in asked))}
        self.failures = list(failures)
        """The trials that failed, with the reasons."""
        self.ran = ran
        """Whether anything was run; False if the store had all trials."""

    def cells(self) -> list[Cell]:
        """Summaries of the trials that differ only in their seed."""
        order = self._order
        return sorted(summarise(self.data), key=lambda cell: order.get(cell.config, len(order)))

    def table(self) -> PlainTable:
        """A row per cell: accuracy and forgetting. A rich Table; `str(...)` is its text."""
        return results_table(self.cells())

    def best_by_validation(self) -> list[str]:
        """Sentences on the best cell by held-out data; empty if nothing was held out."""
        return best_by_validation(self.cells())

    def masks_chosen(self) -> list[str]:
        """Sentences on the masks chosen after each task where the mask is "auto"."""
        return masks_chosen(self.cells())

    def frame(self) -> Any:
        """A pandas DataFrame with a row per trial: its config and all metrics."""
        try:
            pandas: Any = importlib.import_module("pandas")
        except ImportError:
            raise MissingPackageError("a DataFrame needs pandas: pip install pandas") from None
        return pandas.DataFrame(map(flat_row, self.data), columns=list(column_types()))

    def plot(self, figure: str = "accuracy-over-tasks", setting: str = "class_il") -> Any:
        """Draw a figure of the page: a matplotlib Figure, or None if there is nothing to draw.

        `figure` is `confidence`, `accuracy-over-tasks`, `accuracy-within-tasks`, `losses`,
        `mask-sweep`, `settings`, `matrices`, `confusion` or `stability-plasticity`; `setting` is
        `class_il` or `task_il`.
        """
        return plot(self.cells(), figure, setting)

    def compare(self) -> Compared:
        """The cells with published settings beside their published figures."""
        cells = [cell for cell in self.cells() if has_published_settings(cell.config)]
        compared = compare([paper_cell(cell) for cell in cells], cells)
        return Compared(cell for cell in compared if cell.figures)

    def as_json(self) -> dict[str, Any]:
        """What commands print with --json."""
        return {
            "ran": self.ran,
            "cells": [cell.as_json() for cell in self.cells()],
            "trials": [summary_of(record).as_json() for record in self.data],
            "failures": self.failures,
        }

    def __repr__(self) -> str:
        table = str(self.table()) if self.data else "No trials."
        return "\n".join([table, *self.failures])

    def _repr_html_(self) -> str:
        if not self.data:
            return f"<p>{escape(repr(self))}</p>"
        return self.table()._repr_html_()


def changed_settings(config: TrialConfig) -> dict[str, Any]:
    """The settings of a trial that differ from the published ones, as JSON values.

    Imports nothing: for the user's own method or benchmark, the settings that differ from a field's
    default.
    """
    implied = config.model_dump(mode="json", exclude={*IDENTITY}, exclude_defaults=True)
    if names_own_code(config.benchmark) or names_own_code(config.method):
        return implied
    try:
        (default,) = trial_configs(
            benchmark=config.benchmark,
            method=config.method,
            masks=[config.mask],
            buffer=config.buffer,
            seeds=[config.seed],
            overrides={name: getattr(config, name) for name in CONDITIONS},
        )
    except RemaskError:  # nothing is published, or a name is unknown
        return implied
    own, usual = (each.model_dump(mode="json", exclude={*IDENTITY}) for each in (config, default))
    return {
        name: value
        for name, value in own.items()
        if value != usual[name] or (name in CONDITIONS and name in implied)
    }


def has_published_settings(config: TrialConfig) -> bool:
    """Whether a trial has the settings that were published for its conditions."""
    return changed_settings(config).keys() <= {*CONDITIONS}


def rerun_command(config: TrialConfig, seeds: Sequence[int]) -> str:
    """The `remask run` command that runs the trials of a cell again."""
    words = ["remask", "run", "--benchmark", config.benchmark, "--method", config.method]
    known = METHODS.get(config.method)
    if config.mask is not None:
        words.append(f"--mask={config.mask}".removesuffix(".0"))
    elif known is None or known.usual_mask is not None:  # a custom method may have a usual mask
        words.append("--mask=none")
    if config.buffer:
        words += ["--buffer", str(config.buffer)]
    words += ["--trials", str(len(seeds))]
    if first := min(seeds, default=0):
        words += ["--seed", str(first)]
    for name, value in changed_settings(config).items():
        option = f"--{name.replace('_', '-')}"
        if name == "weights":
            words += [part for own, x in value.items() for part in ("--weight", f"{own}={x}")]
        elif isinstance(value, bool):
            words.append(option if value else f"--no-{name.replace('_', '-')}")
        elif isinstance(value, list):
            words += [option, ",".join(map(str, value))]
        elif value is not None:
            words += [option, str(value)]
    return shlex.join([*words, "--again"])
