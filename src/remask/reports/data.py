"""What the page shows, as JSON: cells, what is published of them, and the paper's statements."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from remask.config import TrialConfig
from remask.names import system_name
from remask.papers import (
    PaperCell,
    experiment_cells,
    experiments_of,
    published_benchmarks,
    statements,
)
from remask.reports.comparison import (
    MEASURES,
    VERDICT_TEST,
    ComparedCell,
    compare,
    paper_cell,
    told_apart_by_chance,
    verdicts,
)
from remask.reports.contrasts import CONTRAST_TEST, Contrast, contrasts
from remask.reports.figures import page_figures
from remask.reports.figures.data import FAVOURITES, Systems, mask_name
from remask.reports.findings import TEST, Decision, Evidence, decide, decide_by_the_paper
from remask.reports.measures import cell_value, known_measures, trial_values
from remask.results import Cell, Spread, TrialRecord, summarise
from remask.setting_types import MaskValue, write_mask

_VALIDATED = {
    **{measure: f"test {title}" for measure, title in MEASURES.items()},
    "validation_class_il_A_T": "validation Class-IL A_T",
    "validation_task_il_A_T": "validation Task-IL A_T",
}


@dataclass(frozen=True)
class ConfigFacts:
    """What the page says about a config that its record does not, so the caller must."""

    is_published: Callable[[TrialConfig], bool]
    """Whether its settings are the published ones."""
    command: Callable[[TrialConfig, Sequence[int]], str]
    """How to run the trials of these seeds again."""


def page_data(
    records: Sequence[TrialRecord], facts: ConfigFacts, *, paper: bool = False
) -> dict[str, Any]:
    """Everything on the page, as JSON values; with `paper`, also what of the paper was not run."""
    cells = sorted(summarise(records), key=_place)
    compared = published_beside(cells, facts, paper=paper)
    beside = {id(cell.ours): cell for cell in compared if cell.ours}
    ours = {paper_cell(cell): cell for cell in cells if facts.is_published(cell.config)}
    begun = dict.fromkeys(cell.paper.benchmark for cell in compared)
    systems = Systems(cells, compared)
    known = known_measures(cells)
    shown = [
        *(
            (_place(cell), _cell(cell, beside.get(id(cell)), facts, systems, known))
            for cell in cells
        ),
        *((_place(cell), _not_run(cell)) for cell in compared if cell.ours is None),
    ]
    decided = [row for benchmark in begun for row in _statements(benchmark, ours)]
    return {
        "measures": _VALIDATED if any(cell.has_validation for cell in cells) else MEASURES,
        "metrics": {name: asdict(measure) for name, measure in known.items()},
        "cells": [cell for _, cell in sorted(shown, key=lambda placed: placed[0])],
        "contrasts": [_contrast(found, systems) for found in contrasts(cells)],
        "contrast_test": CONTRAST_TEST,
        "figures": page_figures(cells, systems),
        "looks": {label: asdict(look) for label, look in systems.looks.items()},
        "favourites": FAVOURITES,
        "counts": verdicts(compared),
        "near": sum(figure.is_near for cell in compared for figure in cell.figures.values()),
        "by_chance": told_apart_by_chance(compared),
        "verdict_test": VERDICT_TEST,
        "test": TEST,
        "statements": [row for row in decided if paper or row["finding"] != "not run"],
    }


def published_beside(
    cells: Sequence[Cell], facts: ConfigFacts, *, paper: bool = False
) -> list[ComparedCell]:
    """The published cells that were run with the published settings.

    And those that were not, of experiments of which most were run; with `paper`, of all.
    """
    ours = [cell for cell in cells if facts.is_published(cell.config)]
    begun = {cell.config.benchmark for cell in ours}
    benchmarks = [name for name in published_benchmarks() if name in begun]
    compared = compare([c for name in benchmarks for c in experiment_cells("all", name)], ours)
    parts = [
        (cell, {(cell.paper.benchmark, e) for e in experiments_of(cell.paper)}) for cell in compared
    ]
    wanted = Counter(part for _, own in parts for part in own)
    run = Counter(part for cell, own in parts if cell.ours for part in own)
    asked = {part for part in wanted if paper or 2 * run[part] > wanted[part]}
    return [cell for cell, own in parts if cell.ours or own & asked]


def _place(cell: Cell | ComparedCell) -> tuple[object, ...]:
    """By benchmark and buffer; there, a system comes before its masked forms."""
    settings = cell.label.partition(", ")[2]
    one = cell.paper if isinstance(cell, ComparedCell) else cell.config
    return one.benchmark, one.buffer, one.method, settings, _order_of_mask(one.mask)


def _order_of_mask(mask: MaskValue) -> tuple[int, float]:
    if isinstance(mask, float):
        return 1, mask
    return (0, 0.0) if mask is None else (2, 0.0)


def _cell(
    cell: Cell,
    compared: ComparedCell | None,
    facts: ConfigFacts,
    systems: Systems,
    measures: Iterable[str],
) -> dict[str, Any]:
    config = cell.config
    paper = paper_cell(cell)
    return {
        "id": systems.source(cell).cell,
        **_identity(paper, cell.label),
        "experiments": experiments_of(paper) if compared else [],
        "trials": cell.trials,
        "diverged": cell.diverged,
        "failed": cell.failed,
        "hardware": cell.hardware,
        "verdict": compared.verdict if compared else None,
        "scores": {name: _known(cell_value(cell, name)) for name in measures},
        "claims": _claims(compared) if compared else {},
        "tasks": cell.tasks,
        "class_names": cell.class_names,
        "config": config.model_dump(mode="json", exclude={"seed"}),
        "command": facts.command(config, [record.seed for record in cell.records]),
        "records": [
            _record(record, summary.scores)
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
    return {
        "benchmark": paper.benchmark,
        "label": label,
        "method": paper.method,
        "mask": write_mask(paper.mask),
        "mask_name": _mask_name(paper),
        "buffer": paper.buffer,
    }


def _mask_name(paper: PaperCell) -> str:
    if paper.mask is None:
        return "no mask"
    return "mask chosen" if paper.mask == "auto" else f"mask m = {mask_name(paper.mask)}"


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


def _record(record: TrialRecord, scores: Mapping[str, float]) -> dict[str, Any]:
    return {
        "hash": record.config_hash,
        "seed": record.seed,
        "status": record.status,
        "diverged_at": record.diverged_at,
        "error": record.error,
        "seconds": record.seconds,
        "scores": {name: round(value, 6) for name, value in trial_values(record, scores).items()},
    }


def _contrast(found: Contrast, systems: Systems) -> dict[str, Any]:
    config = found.masked.config
    return {
        "benchmark": config.benchmark,
        "buffer": config.buffer,
        "plain": found.plain.label,
        "masked": found.masked.label,
        "plain_id": systems.source(found.plain).cell,
        "masked_id": systems.source(found.masked).cell,
        "differences": {
            measure: {
                "more": each.more,
                "test": each.test.kind if each.test else None,
                "freedom": each.test.freedom if each.test else None,
                "p": each.test.p_different if each.test else None,
                "verdict": each.verdict,
            }
            for measure, each in found.differences.items()
        },
    }


def _statements(benchmark: str, ours: Mapping[PaperCell, Cell]) -> list[dict[str, Any]]:
    stated = statements(benchmark)
    return [
        _statement(benchmark, decision, by_the_paper)
        for decision, by_the_paper in zip(
            decide(stated, ours), decide_by_the_paper(stated), strict=True
        )
    ]


def _statement(benchmark: str, ours: Decision, theirs: Decision) -> dict[str, Any]:
    return {
        "benchmark": benchmark,
        "text": ours.statement.text,
        "section": ours.statement.section,
        "quantifier": ours.statement.quantifier,
        "finding": ours.finding,
        "by_the_paper": theirs.finding,
        "evidence": [_evidence(evidence) for evidence in ours.evidence],
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    expected, measured = evidence.expectation, evidence.measured
    return {
        "measure": expected.measure,
        "buffer": expected.higher.buffer,
        "higher": system_name(expected.higher.method, expected.higher.mask),
        "lower": system_name(expected.lower.method, expected.lower.mask),
        "ours_higher": _sample(measured.higher),
        "ours_lower": _sample(measured.lower),
        "test": measured.test.kind if measured.test else None,
        "freedom": measured.test.freedom if measured.test else None,
        "p": _number(evidence.p),
        "finding": evidence.finding,
    }


def _sample(spread: Spread | None) -> dict[str, Any] | None:
    return None if spread is None else {**_spread(spread), "trials": spread.trials}


def _known(spread: Spread) -> dict[str, Any] | None:
    return None if math.isnan(spread.mean) else _spread(spread)


def _spread(spread: Spread) -> dict[str, Any]:
    """A mean and its spread, which one trial has not."""
    return {"mean": spread.mean, "std": spread.std if spread.trials > 1 else None}


def _number(value: float) -> float | str | None:
    """A number as JSON can carry it; an infinite one as text."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)
