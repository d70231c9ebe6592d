"""The paper's statements, decided by trials."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from remask.experiments.configs import trial_configs
from remask.papers.experiments import (
    Expectation,
    PaperCell,
    Quantifier,
    Statement,
    experiment_cells,
    published_benchmarks,
    statements,
)
from remask.reports.comparison import Decision, decide, decide_by_the_paper
from remask.reports.measures import paired, welch
from remask.store import Cell, summarise
from remask.store.cells import spread
from tests.store.store_samples import trial_with_accuracy

_CELLS = [PaperCell("split-mnist", "derpp", mask, 200) for mask in (None, -1.0, -2.0, -5.0)]


def _cells(
    accuracies: Mapping[PaperCell, list[float]], first_seeds: Sequence[int] = (0, 0, 0, 0)
) -> dict[PaperCell, Cell]:
    found = {}
    for (cell, values), first in zip(accuracies.items(), first_seeds, strict=False):
        configs = trial_configs(
            benchmark=cell.benchmark,
            method=cell.method,
            masks=[cell.mask],
            buffer=cell.buffer,
            seeds=range(first, first + len(values)),
        )
        records = [trial_with_accuracy(c, v) for c, v in zip(configs, values, strict=True)]
        (found[cell],) = summarise(records)
    return found


def _decide(
    quantifier: Quantifier,
    higher: list[float],
    *lower: list[float],
    first_seeds: Sequence[int] = (0, 0, 0, 0),
) -> Decision:
    """Of the statement that the first sample is higher than `quantifier` of the others."""
    cells = _cells(dict(zip(_CELLS, [higher, *lower], strict=False)), first_seeds)
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


def test_cells_that_share_seeds_are_compared_seed_by_seed() -> None:
    # The seeds are 10 apart and the systems 1: only in pairs can the difference be seen.
    seeds = [60.0, 70.0, 80.0, 90.0]
    raised = [value + more for value, more in zip(seeds, (1.0, 0.9, 1.1, 1.2), strict=True)]
    decision = _decide("every", raised, seeds)
    test = decision.evidence[0].test
    assert test is not None
    assert (test.kind, test.freedom, decision.finding) == ("paired", 3, "holds")
    assert test.t == pytest.approx(paired([1.0, 0.9, 1.1, 1.2]).t)
    unpaired = _decide("every", raised, seeds, first_seeds=(0, 2))  # two seeds in common
    test = unpaired.evidence[0].test
    assert test is not None
    assert (test.kind, unpaired.finding) == ("Welch", "undecided")
    assert test == welch(spread(raised), spread(seeds))


def test_only_the_seeds_that_both_cells_have_are_in_a_paired_test() -> None:
    decision = _decide("every", [80.0, 81.0, 83.0, 10.0], [79.0, 79.0, 79.5])
    (evidence,) = decision.evidence
    assert evidence.test == paired([1.0, 2.0, 3.5])
    assert evidence.higher is not None
    assert evidence.higher.trials == 4


def test_the_p_values_of_a_statement_are_corrected_together() -> None:
    lower = ([78.0, 79.0, 80.2], [79.5, 80.0, 80.9], [70.0, 71.0, 72.0])
    alone = [_decide("every", _HIGH, sample).evidence[0].p for sample in lower]
    together = [evidence.p for evidence in _decide("every", _HIGH, *lower).evidence]
    assert sorted(alone) == [alone[2], alone[0], alone[1]]
    # Holm: the smallest times 3, the next times 2, the largest as it is; never falling.
    expected = [max(2 * alone[0], 3 * alone[2]), max(alone[1], 2 * alone[0]), 3 * alone[2]]
    assert together == pytest.approx(expected)


def test_what_was_not_run_or_has_fewer_than_three_trials_decides_nothing() -> None:
    (decision,) = decide(
        [Statement("", "", "every", (Expectation("class_il_A_T", _CELLS[0], _CELLS[1]),))],
        _cells({_CELLS[0]: _HIGH}),
    )
    assert decision.finding == "not run"
    assert math.isnan(decision.evidence[0].p)
    for few in ([70.0], [70.0, 70.5]):
        assert _decide("every", _HIGH, few).finding == "too few trials"
        assert _decide("every", _HIGH, _LOW, few).finding == "too few trials"


def test_confidence_is_the_mean_over_the_classes_of_the_first_and_the_last_task() -> None:
    tasks = ((3, 0, 5), (1,), (2, 4), (6, 7), (8, 9))
    sure: dict[object, list[float]] = {
        None: [0.2] * 8 + [0.9, 0.7],
        -1.0: [0.9, 0.5, 0.4, 0.8, 0.5, 1.0, 0.5, 0.5, 0.2, 0.1],
    }
    plain, masked = _CELLS[:2]
    cells = {
        paper: replace(
            cell,
            records=tuple(
                record.model_copy(update={"tasks": tasks, "confidence": sure[paper.mask]})
                for record in cell.records
            ),
        )
        for paper, cell in _cells({plain: _LOW, masked: _LOW}).items()
    }
    expectations = (
        Expectation("confidence_first_task", masked, plain),
        Expectation("confidence_last_task", plain, masked),
    )
    (decision,) = decide([Statement("", "", "every", expectations)], cells)
    assert decision.finding == "holds"
    found = [evidence.higher for evidence in decision.evidence]
    assert [each.mean for each in found if each] == pytest.approx([90.0, 80.0])


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
    # The text claims this for buffers 10 and 50; at 10 the table shows the opposite.
    wrong = "MSDER++(-1) beats DER++ and MSDER++(-inf) at buffers 10 and 50 (Class-IL)."
    assert found[wrong] == "contradicted"
