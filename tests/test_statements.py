"""The paper's statements, decided by trials."""

import importlib
import math
from collections.abc import Mapping

import numpy as np
import pytest

from remask.papers import (
    Expectation,
    PaperCell,
    Statement,
    experiment_cells,
    published_benchmarks,
    statements,
)
from remask.papers.statements import Quantifier
from remask.report import Decision, MissingPackageError, decide, decide_by_the_paper
from remask.settings import trial_configs
from remask.store import Cell, summarise
from tests.store_samples import trial_with_accuracy

stats = pytest.importorskip("scipy.stats")

_CELLS = [PaperCell("split-mnist", "derpp", mask, 200) for mask in (None, -1.0, -2.0, -5.0)]


def _cells(accuracies: Mapping[PaperCell, list[float]]) -> dict[PaperCell, Cell]:
    found = {}
    for cell, values in accuracies.items():
        configs = trial_configs(
            benchmark=cell.benchmark,
            method=cell.method,
            masks=[cell.mask],
            buffer=cell.buffer,
            seeds=range(len(values)),
        )
        records = [trial_with_accuracy(c, v) for c, v in zip(configs, values, strict=True)]
        (found[cell],) = summarise(records)
    return found


def _decide(quantifier: Quantifier, higher: list[float], *lower: list[float]) -> Decision:
    """Of the statement that the first sample is higher than `quantifier` of the others."""
    cells = _cells(dict(zip(_CELLS, [higher, *lower], strict=False)))
    expectations = [Expectation("class_il_A_T", _CELLS[0], cell) for cell in list(cells)[1:]]
    (decision,) = decide([Statement("", "", quantifier, tuple(expectations))], cells)
    return decision


_LOW, _HIGH, _WIDE = [70.0, 70.5, 71.0], [80.0, 80.5, 81.0], [60.0, 75.0, 92.0]


@pytest.mark.parametrize(
    ("quantifier", "lower", "finding"),
    [
        ("every", [_LOW, _LOW], "holds"),
        ("every", [_LOW, _WIDE], "undecided"),
        ("every", [_LOW, [90.0, 90.5, 91.0]], "contradicted"),
        ("most", [_LOW, _LOW, _WIDE], "holds"),
        ("most", [_LOW, _WIDE, _WIDE], "undecided"),
        ("most", [_LOW, [90.0, 90.5, 91.0]], "contradicted"),
        ("some", [_LOW, [90.0, 90.5, 91.0]], "holds"),
        ("some", [_WIDE, [90.0, 90.5, 91.0]], "undecided"),
        ("some", [[90.0, 90.5, 91.0], [90.0, 90.5, 91.0]], "contradicted"),
    ],
)
def test_a_statement_holds_of_every_most_or_some_of_its_comparisons(
    quantifier: Quantifier, lower: list[list[float]], finding: str
) -> None:
    assert _decide(quantifier, _HIGH, *lower).finding == finding


def test_the_test_is_welch_s_on_the_trials_themselves() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        higher, lower = random.normal(80, 1, 10), random.normal(79, 4, 7)
        (evidence,) = _decide("every", higher.tolist(), lower.tolist()).evidence
        expected = stats.ttest_ind(higher, lower, equal_var=False, alternative="greater").pvalue
        assert evidence.p == pytest.approx(expected, rel=1e-9)


def test_the_p_values_of_a_statement_are_corrected_together() -> None:
    lower = ([78.0, 79.0, 80.2], [79.5, 80.0, 80.9], [70.0, 71.0, 72.0])
    alone = [_decide("every", _HIGH, sample).evidence[0].p for sample in lower]
    together = [evidence.p for evidence in _decide("every", _HIGH, *lower).evidence]
    assert sorted(alone) == [alone[2], alone[0], alone[1]]
    # Holm: the smallest times 3, the next times 2, the largest as it is; never falling.
    expected = [max(2 * alone[0], 3 * alone[2]), max(alone[1], 2 * alone[0]), 3 * alone[2]]
    assert together == pytest.approx(expected)


def test_samples_without_any_spread_are_told_apart_by_their_means() -> None:
    assert _decide("every", [80.0, 80.0], [79.0, 79.0]).finding == "holds"
    assert _decide("every", [79.0, 79.0], [80.0, 80.0]).finding == "contradicted"
    assert _decide("every", [80.0, 80.0], [80.0, 80.0]).finding == "undecided"


def test_what_was_not_run_or_has_one_trial_decides_nothing() -> None:
    (decision,) = decide(
        [Statement("", "", "every", (Expectation("class_il_A_T", _CELLS[0], _CELLS[1]),))],
        _cells({_CELLS[0]: _HIGH}),
    )
    assert decision.finding == "not run"
    assert math.isnan(decision.evidence[0].p)
    assert _decide("every", _HIGH, [70.0]).finding == "not run"


def test_confidence_is_that_of_the_first_and_the_last_task_s_classes() -> None:
    plain, masked = _CELLS[:2]
    cells = {}
    for cell, first, last in ((plain, 0.2, 0.9), (masked, 0.8, 0.6)):
        configs = trial_configs(
            benchmark="split-mnist", method="derpp", masks=[cell.mask], buffer=200, seeds=range(3)
        )
        of_classes = [first, first, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, last, last]
        (cells[cell],) = summarise(
            trial_with_accuracy(config, 80.0, confidence=of_classes) for config in configs
        )
    statement = Statement(
        "",
        "",
        "every",
        (
            Expectation("confidence_first_task", masked, plain),
            Expectation("confidence_last_task", plain, masked),
        ),
    )
    (decision,) = decide([statement], cells)
    assert decision.finding == "holds"
    higher = decision.evidence[0].higher
    assert higher is not None
    assert higher.spread.mean == pytest.approx(80.0)


def test_every_comparison_is_between_cells_of_the_paper_s_experiments() -> None:
    for benchmark in published_benchmarks():
        cells = set(experiment_cells("all", benchmark))
        for statement in statements(benchmark):
            assert statement.expectations
            for expected in statement.expectations:
                assert {expected.higher, expected.lower} <= cells
                assert expected.higher != expected.lower
    assert statements("split-digits") == []


def test_the_paper_s_own_figures_are_put_to_the_same_test() -> None:
    asked = statements("split-mnist")
    found = dict(
        zip([s.text for s in asked], (d.finding for d in decide_by_the_paper(asked)), strict=True)
    )
    assert found["Masking lowers forgetting in every cell."] == "holds"
    assert found["MSDER++(-1) beats DER++ at buffer 200 (Class-IL)."] == "holds"
    # Its text says so of buffers 10 and 50; at 10 its table says the opposite.
    wrong = "MSDER++(-1) beats DER++ and MSDER++(-inf) at buffers 10 and 50 (Class-IL)."
    assert found[wrong] == "contradicted"


def test_without_scipy_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingPackageError, match=r"pip install 'remask\[report\]'"):
        _decide("every", _HIGH, _LOW)
