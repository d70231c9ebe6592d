"""The contents of the page: cells, comparisons, figures and statements."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from remask.config import TrialConfig
from remask.names import system_name
from remask.papers.experiments import (
    PaperCell,
    experiment_cells,
    experiments_of,
    published_benchmarks,
)
from remask.papers.statements import statements
from remask.record import TrialRecord
from remask.reports.comparison import (
    CONTRAST_TEST,
    VERDICT_TEST,
    ComparedCell,
    Contrast,
    compare,
    contrasts,
    expected_by_chance,
    paper_cell,
    verdicts,
)
from remask.reports.figures import page_figures
from remask.reports.figures.systems import FAVOURITES, Systems, mask_name
from remask.reports.measures import (
    MEASURES,
    VALIDATION_MEASURES,
    cell_value,
    known_measures,
    trial_values,
)
from remask.reports.statements import (
    STATEMENT_TEST,
    Evidence,
    decide,
    decide_by_the_paper,
)
from remask.reports.statistics import TTest
from remask.setting_types import write_mask
from remask.store.cells import Cell, Spread, TrialSummary

Command = Callable[[TrialConfig, Sequence[int]], str]
"""Returns the command that runs the trials of a config with these seeds."""


def page_data(
    cells: Sequence[Cell], published: Sequence[Cell], command: Command, *, paper: bool = False
) -> dict[str, Any]:
    """Everything on the page, for `to_json`.

    `published` are the cells with the published settings. With `paper`, the page also lists the
    cells and statements of the paper that were not run.
    """
    cells = sorted(cells, key=_place)
    compared = published_beside(published, paper=paper)
    beside = {id(cell.ours): cell for cell in compared if cell.ours}
    systems = Systems(cells, compared)
    known = known_measures(cells)
    shown = [
        *((_place(c), _cell(c, beside.get(id(c)), systems, known, command)) for c in cells),
        *((_place(c), _not_run(c)) for c in compared if c.ours is None),
    ]
    ours = {paper_cell(cell): cell for cell in published}
    benchmarks = dict.fromkeys(cell.paper.benchmark for cell in compared)
    decided = [row for benchmark in benchmarks for row in _statements(benchmark, ours)]
    tested = {name: f"test {title}" for name, title in MEASURES.items()}
    has_validation = any(cell.config.validation for cell in cells)
    return {
        "measures": {**tested, **VALIDATION_MEASURES} if has_validation else MEASURES,
        "metrics": known,
        "cells": [cell for _, cell in sorted(shown, key=lambda placed: placed[0])],
        "contrasts": [_contrast(found, systems) for found in contrasts(cells)],
        "contrast_test": CONTRAST_TEST,
        "figures": page_figures(cells, systems),
        "looks": systems.looks,
        "favourites": FAVOURITES,
        "counts": verdicts(compared),
        "near": sum(figure.is_near for cell in compared for figure in cell.figures.values()),
        "by_chance": expected_by_chance(compared),
        "verdict_test": VERDICT_TEST,
        "test": STATEMENT_TEST,
        "statements": [row for row in decided if paper or row["finding"] != "not run"],
    }


def published_beside(ours: Sequence[Cell], *, paper: bool = False) -> list[ComparedCell]:
    """Compare our cells, all with the published settings, with the paper's.

    Cells that were not run are included if they belong to an experiment of which most cells were
    run; with `paper`, all of them.
    """
    begun = {cell.config.benchmark for cell in ours}
    benchmarks = [name for name in published_benchmarks() if name in begun]
    compared = compare([c for name in benchmarks for c in experiment_cells("all", name)], ours)
    parts = [
        (cell, {(cell.paper.benchmark, e) for e in experiments_of(cell.paper)}) for cell in compared
    ]
    wanted = Counter(part for _, own in parts for part in own)
    run = Counter(part for cell, own in parts if cell.ours for part in own)
    listed = {part for part in wanted if paper or 2 * run[part] > wanted[part]}
    return [cell for cell, own in parts if cell.ours or own & listed]


def _place(cell: Cell | ComparedCell) -> tuple[object, ...]:
    """Sort by benchmark, buffer and system, each system before its masked forms."""
    settings = cell.label.partition(", ")[2]
    one = cell.paper if isinstance(cell, ComparedCell) else cell.config
    if isinstance(one.mask, float):
        mask = (1, one.mask)
    else:
        mask = (0, 0.0) if one.mask is None else (2, 0.0)
    return one.benchmark, one.buffer, one.method, settings, mask


def _cell(
    cell: Cell,
    compared: ComparedCell | None,
    systems: Systems,
    measures: Iterable[str],
    command: Command,
) -> dict[str, Any]:
    paper = paper_cell(cell)
    values = {name: cell_value(cell, name) for name in measures}
    return {
        "id": systems.source(cell).cell,
        **_identity(paper, cell.label),
        "experiments": experiments_of(paper) if compared else [],
        "trials": cell.trials,
        "diverged": cell.diverged,
        "failed": cell.failed,
        "hardware": cell.hardware,
        "verdict": compared.verdict if compared else None,
        "scores": {n: None if math.isnan(v.mean) else _spread(v) for n, v in values.items()},
        "claims": _claims(compared) if compared else {},
        "tasks": cell.tasks,
        "class_names": cell.class_names,
        "config": cell.config.model_dump(mode="json", exclude={"seed"}),
        "command": command(cell.config, [record.seed for record in cell.records]),
        "records": [
            _record(record, summary)
            for record, summary in zip(cell.records, cell.summaries, strict=True)
        ],
    }


def _not_run(compared: ComparedCell) -> dict[str, Any]:
    paper = compared.paper
    return {
        **_identity(paper, compared.label),
        "id": f"not-run-{paper.benchmark}-{compared.label}-{paper.buffer}",
        "experiments": experiments_of(paper),
        "trials": 0,
        "verdict": "not run",
        "claims": _claims(compared),
        "command": f"remask reproduce {experiments_of(paper)[0]} --benchmark {paper.benchmark}",
    }


def _identity(paper: PaperCell, label: str) -> dict[str, Any]:
    if paper.mask is None:
        name = "no mask"
    else:
        name = "mask chosen" if paper.mask == "auto" else f"mask m = {mask_name(paper.mask)}"
    return {
        "benchmark": paper.benchmark,
        "label": label,
        "method": paper.method,
        "mask": write_mask(paper.mask),
        "mask_name": name,
        "buffer": paper.buffer,
    }


def _claims(compared: ComparedCell) -> dict[str, Any]:
    return {
        measure: {
            "mean": figure.claim.mean,
            "std": figure.claim.std,
            "trials": figure.claim.trials,
            "source": figure.claim.source,
            "deviations": _number(figure.deviations),
            "p": figure.test.p_different if figure.test else None,
            "verdict": figure.verdict,
        }
        for measure, figure in compared.figures.items()
    }


def _record(record: TrialRecord, summary: TrialSummary) -> dict[str, Any]:
    values = trial_values(record, summary.scores)
    return {
        "hash": summary.config_hash,
        "seed": record.seed,
        "status": record.status,
        "diverged_at": record.diverged_at,
        "error": record.error,
        "seconds": record.seconds,
        "scores": {name: round(value, 6) for name, value in values.items()},
    }


def _contrast(found: Contrast, systems: Systems) -> dict[str, Any]:
    return {
        "benchmark": found.masked.config.benchmark,
        "buffer": found.masked.config.buffer,
        "plain": found.plain.label,
        "masked": found.masked.label,
        "plain_id": systems.source(found.plain).cell,
        "masked_id": systems.source(found.masked).cell,
        "differences": {
            measure: {
                "more": each.mean,
                **_test(each.test),
                "p": each.test.p_different if each.test else None,
                "verdict": each.verdict,
            }
            for measure, each in found.differences.items()
        },
    }


def _statements(benchmark: str, ours: Mapping[PaperCell, Cell]) -> list[dict[str, Any]]:
    stated = statements(benchmark)
    decisions = zip(decide(stated, ours), decide_by_the_paper(stated), strict=True)
    return [
        {
            "benchmark": benchmark,
            "text": decision.statement.text,
            "section": decision.statement.section,
            "quantifier": decision.statement.quantifier,
            "finding": decision.finding,
            "by_the_paper": by_the_paper.finding,
            "evidence": [_evidence(evidence) for evidence in decision.evidence],
        }
        for decision, by_the_paper in decisions
    ]


def _evidence(evidence: Evidence) -> dict[str, Any]:
    expected, measured = evidence.expectation, evidence.measured
    higher, lower = (
        None if found is None else {**_spread(found), "trials": found.trials}
        for found in (measured.higher, measured.lower)
    )
    return {
        "measure": expected.measure,
        "buffer": expected.higher.buffer,
        "higher": system_name(expected.higher.method, expected.higher.mask),
        "lower": system_name(expected.lower.method, expected.lower.mask),
        "ours_higher": higher,
        "ours_lower": lower,
        **_test(measured.test),
        "p": _number(evidence.p),
        "finding": evidence.finding,
    }


def _test(test: TTest | None) -> dict[str, Any]:
    return {"test": test.kind if test else None, "freedom": test.freedom if test else None}


def _spread(spread: Spread) -> dict[str, Any]:
    """A mean with its standard deviation, which a single trial does not have."""
    return {"mean": spread.mean, "std": spread.std if spread.trials > 1 else None}


def _number(value: float) -> float | str | None:
    """A number for JSON: None for NaN, text for infinity."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)
