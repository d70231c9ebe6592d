"""Records and the data of pages, for tests of reports."""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from remask.reports.page import page_data, to_json
from remask.store import TrialRecord, summarise
from tests.store.store_samples import diverged, failed, make_config, trial_with_accuracy

HOSTILE = '<img src=x onerror="document.title=666"></script><b>&amp;'


def report_data(
    records: Sequence[TrialRecord], *, published: bool = False, **parts: Any
) -> dict[str, Any]:
    """The data of a page of records whose settings are all the published ones, or none."""
    cells = summarise(records)
    data = page_data(cells, cells if published else [], lambda config, seeds: "remask run")
    return {
        **json.loads(to_json(data)),
        "title": "Toy results",
        "generated": "2026-01-31T12:00:00+00:00",
        "store": "toy.db",
        "version": "1.0.0",
        "running": [],
        **parts,
    }


def embedded(page: str) -> Any:
    """The data of a page."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(data)


def trials(accuracies: Sequence[float], forgetting: float = 0.0, **settings: Any) -> list[Any]:
    """A trial of five tasks per accuracy, with seeds from 0."""
    if settings.get("method") == "derpp":
        settings = {"alpha": 0.2, "beta": 0.5, **settings}
    return [
        trial_with_accuracy(make_config(seed=seed, **settings), accuracy, forgetting=forgetting)
        for seed, accuracy in enumerate(accuracies)
    ]


def rich_data(**parts: Any) -> dict[str, Any]:
    """Every kind of cell there is, with published figures, a statement and a run in progress.

    MSER(-inf) is the only cell of the paper's experiment on confidence that was not run.
    """

    def around(mean: float, **settings: Any) -> list[TrialRecord]:
        values = [mean - 1, mean, mean + 1]
        return trials(values, 10.0, benchmark="split-mnist", **settings)

    hostile = make_config(method="mine:Method", buffer=7)
    hostile = hostile.model_copy(update={"benchmark": HOSTILE})
    records = [
        *around(80.0),
        *around(9.5, buffer=500),
        *around(85.0, method="derpp"),
        *around(84.0, method="derpp", mask=-math.inf),
        *around(88.0, method="derpp", mask=-1.0),
        *around(86.0, method="derpp", mask=-1000.0),
        *around(20.0, method="sgd", buffer=0, replay_batch=0),
        failed(make_config(benchmark="split-mnist", method="hal"), "no <b>memory</b> left"),
        diverged(make_config(benchmark="split-mnist", method="hal", seed=2)),
        trial_with_accuracy(hostile, 50.0).model_copy(update={"title": HOSTILE}),
    ]
    running = [{"name": HOSTILE, "done": 3, "trials": 10}]
    return report_data(records, published=True, running=running, **parts)


def own_trials() -> list[TrialRecord]:
    """A system with and without a mask, another one, and a larger buffer."""
    return [
        *trials([70.0, 72.0, 75.0, 71.0]),
        *trials([74.0, 75.5, 79.5, 75.0], mask=-math.inf),
        *trials([75.0, 74.5, 79.0, 76.5], method="derpp"),
        *trials([90.0, 91.0], buffer=500),
    ]


def own_data(**parts: Any) -> dict[str, Any]:
    """Their page; nothing is published about them."""
    return report_data(own_trials(), **parts)
