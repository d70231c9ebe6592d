"""What commands print as JSON; docs/command-line.md describes it."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remask.config import TrialConfig
    from remask.experiments.plans import Plan
    from remask.experiments.reproduction import Reproduction
    from remask.experiments.results import Compared, Results
    from remask.store.cells import Cell, TrialSummary

_TRIAL = ("benchmark", "system", "buffer", "seed", "status", "error", "seconds")


def results_json(results: "Results", **more: object) -> dict[str, Any]:
    """Return the cells and trials of a run."""
    from remask.store.cells import summary_of

    stored = stored_json(results.cells(), map(summary_of, results))
    return {"ran": results.ran, **stored, "failures": results.failures, **more}


def stored_json(cells: "Iterable[Cell]", trials: "Iterable[TrialSummary]") -> dict[str, Any]:
    """Return cells and trials of a store."""
    return {
        "cells": [
            {
                "label": cell.label,
                "config": _config(cell.config),
                **{status: cell.ended[status] for status in ("finished", "diverged", "failed")},
                "scores": {
                    name: {"mean": spread.mean, "std": spread.std}
                    for name, spread in cell.spreads.items()
                    if not math.isnan(spread.mean)
                },
            }
            for cell in cells
        ],
        "trials": [
            {
                "hash": trial.config_hash,
                **{name: getattr(trial, name) for name in _TRIAL},
                "scores": {n: value for n, value in trial.scores.items() if not math.isnan(value)},
            }
            for trial in trials
        ],
    }


def compared_json(compared: "Compared") -> list[dict[str, Any]]:
    """Return our results beside the published figures, by cell."""
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
        for cell in compared
    ]


def reproduction_json(found: "Reproduction") -> dict[str, Any]:
    """Return the trials, the comparison and the decided statements of an experiment."""
    statements = [
        {
            "statement": ours.statement.text,
            "section": ours.statement.section,
            "ours": ours.finding,
            "paper": paper.finding,
        }
        for ours, paper in zip(found.decided, found.by_the_paper, strict=True)
    ]
    compared = compared_json(found.compared)
    return results_json(found.results, compared=compared, statements=statements)


def plan_json(plan: "Plan") -> dict[str, Any]:
    """Return what a run would do."""
    counted = ("trials", "stored", "to_run", "flops", "seconds")
    return {
        **{name: getattr(plan, name) for name in ("trials", "to_run", "seconds", "flops")},
        "stacks": len(plan.stacks),
        "at_once": plan.at_once,
        "data_to_fetch": plan.lacking,
        "cells": [
            {"label": cell.label, "config": _config(cell.config)}
            | {name: getattr(cell, name) for name in counted}
            for cell in plan.cells
        ],
    }


def _config(config: "TrialConfig") -> dict[str, Any]:
    return config.model_dump(mode="json", exclude={"seed"})
