"""The shapes of what commands print as JSON; docs/command-line.md describes them."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remask.config import TrialConfig
    from remask.experiments import Compared, Plan, Reproduction, Results
    from remask.reports import ComparedCell, Comparison
    from remask.results import Cell, Spread, TrialSummary


def results_shape(results: "Results", **more: object) -> dict[str, Any]:
    """What trials have shown: by cell, and each of them."""
    from remask.results import summary_of

    return {
        "ran": results.ran,
        **stored_shape(results.cells(), map(summary_of, results)),
        "failures": results.failures,
        **more,
    }


def stored_shape(cells: "Iterable[Cell]", trials: "Iterable[TrialSummary]") -> dict[str, Any]:
    """Cells and trials as the store has them."""
    return {
        "cells": [_cell_shape(cell) for cell in cells],
        "trials": [_trial_shape(trial) for trial in trials],
    }


def compared_shape(compared: "Compared") -> list[dict[str, Any]]:
    """Ours beside the published figures, a cell each."""
    return [_compared_cell(cell) for cell in compared]


def reproduction_shape(found: "Reproduction") -> dict[str, Any]:
    """A part of the paper: the trials, the comparison, and what became of its statements."""
    statements = [
        {
            "statement": ours.statement.text,
            "section": ours.statement.section,
            "ours": ours.finding,
            "paper": paper.finding,
        }
        for ours, paper in zip(found.decided, found.by_the_paper, strict=True)
    ]
    return results_shape(
        found.results, compared=compared_shape(found.compared), statements=statements
    )


def plan_shape(plan: "Plan") -> dict[str, Any]:
    """What a run would do."""
    return {
        "trials": plan.trials,
        "to_run": plan.to_run,
        "seconds": plan.seconds,
        "flops": plan.flops,
        "stacks": len(plan.stacks),
        "at_once": plan.at_once,
        "data_to_fetch": plan.lacking,
        "cells": [
            {
                "label": cell.label,
                "config": config_shape(cell.config),
                "trials": cell.trials,
                "stored": cell.stored,
                "to_run": cell.to_run,
                "flops": cell.flops,
                "seconds": cell.seconds,
            }
            for cell in plan.cells
        ],
    }


def config_shape(config: "TrialConfig") -> dict[str, Any]:
    """The settings that the trials of a cell have in common."""
    return config.model_dump(mode="json", exclude={"seed"})


def _cell_shape(cell: "Cell") -> dict[str, Any]:
    return {
        "label": cell.label,
        "config": config_shape(cell.config),
        "finished": cell.trials,
        "diverged": cell.diverged,
        "failed": cell.failed,
        "scores": {
            name: {"mean": spread.mean, "std": spread.std}
            for name, spread in cell.spreads.items()
            if not math.isnan(spread.mean)
        },
    }


def _trial_shape(trial: "TrialSummary") -> dict[str, Any]:
    return {
        "hash": trial.config_hash,
        "benchmark": trial.benchmark,
        "system": trial.system,
        "buffer": trial.buffer,
        "seed": trial.seed,
        "status": trial.status,
        "error": trial.error,
        "seconds": trial.seconds,
        "scores": {name: value for name, value in trial.scores.items() if not math.isnan(value)},
    }


def _compared_cell(cell: "ComparedCell") -> dict[str, Any]:
    return {
        "benchmark": cell.paper.benchmark,
        "method": cell.paper.method,
        "mask": "-inf" if cell.paper.mask == float("-inf") else cell.paper.mask,
        "buffer": cell.paper.buffer,
        "label": cell.label,
        "verdict": cell.verdict,
        "figures": {name: _figure(figure) for name, figure in cell.figures.items()},
    }


def _figure(figure: "Comparison") -> dict[str, Any]:
    test = figure.test
    return {
        "ours": None if figure.ours is None else _spread(figure.ours),
        "published": _spread(figure.published),
        "p_different": None if test is None else test.p_different,
        "verdict": figure.verdict,
    }


def _spread(spread: "Spread") -> dict[str, Any]:
    return {"mean": spread.mean, "std": spread.std, "trials": spread.trials}
