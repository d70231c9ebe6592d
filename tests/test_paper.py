"""The Split-MNIST cells of the paper's main table, for real: `make test-paper`."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from remask.launch import Options, StopRequest, continue_run, plan_run
from remask.papers import Claim, claims
from remask.settings import trial_configs
from remask.store import Cell, Spread, Store, summarise

_INF = float("inf")
_SYSTEMS = [("er", None), ("er", -_INF), ("derpp", None), ("derpp", -_INF), ("derpp", -1.0)]


def _claims(cell: Cell, setting: str, metric: str) -> list[Claim]:
    wanted = (
        cell.config.benchmark, cell.config.method, cell.config.mask, cell.config.buffer,
        setting, metric,
    )  # fmt: skip
    return [
        claim
        for claim in claims()
        if (claim.benchmark, claim.method, claim.mask, claim.buffer, claim.setting, claim.metric)
        == wanted
    ]


def _agrees(ours: Spread, trials: int, theirs: Sequence[Claim]) -> bool:
    """Within two of a claim's standard deviations, or not to be told apart (Welch's z below 2)."""
    for claim in theirs:
        assert claim.std is not None
        difference = abs(ours.mean - claim.mean)
        error = math.hypot(ours.std / math.sqrt(trials), claim.std / math.sqrt(claim.trials))
        if difference <= 2 * claim.std or difference <= 2 * error:
            return True
    return False


@pytest.mark.paper
@pytest.mark.parametrize("buffer", [200, 500, 5120])
@pytest.mark.parametrize(("method", "mask"), _SYSTEMS)
def test_split_mnist_agrees_with_the_paper(
    tmp_path: Path, method: str, mask: float | None, buffer: int
) -> None:
    configs = trial_configs(
        benchmark="split-mnist", method=method, masks=[mask], buffer=buffer, seeds=range(10)
    )
    with Store(tmp_path / "results.db") as store:
        run = plan_run(store, configs, workers=2, largest_stack=10, again=False)
        assert run is not None
        for _ in continue_run(store, run, workers=2, options=Options(), stop=StopRequest()):
            pass
        (cell,) = summarise(store.records())
    for setting, score in (("class-il", cell.class_il), ("task-il", cell.task_il)):
        found = _claims(cell, setting, "A_T")
        assert found
        assert _agrees(score.accuracy, cell.trials, found), (cell.label, setting, score, found)
