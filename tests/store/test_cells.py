"""Scores of trials, and cells of trials that differ only in their seed."""

import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remask.errors import UnknownNameError
from remask.reports.tables import results_table
from remask.store import Cell, Spread, Store, TrialRecord, scores, summarise
from remask.store.cells import SCORES, cell_labels, spread, spreads, summary_of
from tests.store.store_samples import (
    NAN,
    diverged,
    failed,
    make_config,
    make_record,
    trial_with_accuracy,
)


def trial(first: float, last: float, seed: int = 0, **changes: Any) -> TrialRecord:
    """Task 1 is learnt to 100 and ends at `first`, task 2 at `last`; 10 less in Task-IL."""
    return make_record(
        make_config(seed=seed, **changes),
        class_il=[[100.0, NAN], [first, last]],
        task_il=[[100.0, NAN], [first - 10, last - 10]],
    )


def _of(number: int, seed: int, mask: float | None = None, **parts: Any) -> TrialRecord:
    """A trial of `number` tasks of two classes each."""
    matrix = [[50.0 + number if k <= j else NAN for k in range(number)] for j in range(number)]
    config = make_config(benchmark="mine:data", seed=seed, mask=mask)
    made = make_record(config, class_il=matrix, task_il=matrix, confidence=[0.5] * (2 * number))
    return made.model_copy(update=parts)


def _shown(records: Sequence[TrialRecord]) -> dict[str, list[int]]:
    return {cell.label: [record.seed for record in cell.records] for cell in summarise(records)}


# Scores


def test_scores_are_all_metrics_in_both_settings() -> None:
    values = scores(trial(40, 90))
    assert tuple(values) == SCORES
    assert {name: value for name, value in values.items() if not math.isnan(value)} == {
        "class_il_A_T": 65.0,
        "class_il_F_T": 60.0,
        "class_il_accuracy_over_time": 82.5,
        "class_il_plasticity": 95.0,
        "class_il_backward_transfer": -60.0,
        "task_il_A_T": 55.0,
        "task_il_F_T": 70.0,
        "task_il_accuracy_over_time": 77.5,
        "task_il_plasticity": 90.0,
        "task_il_backward_transfer": -70.0,
    }
    assert all(math.isnan(value) for value in scores(failed()).values())
    once = scores(make_record(class_il=[[NAN, NAN], [90, 80]]))
    assert once["class_il_A_T"] == 85.0
    assert math.isnan(once["class_il_F_T"])


@pytest.mark.parametrize("trials", [1, 2, 3, 8, 10, 127, 129, 1000])
def test_means_and_deviations_of_many_columns_have_the_bits_of_numpy(trials: int) -> None:
    values = np.random.default_rng(trials).uniform(0, 100, (trials, 29))
    for found, column in zip(spreads(values), values.T.tolist(), strict=True):
        assert found == Spread(float(np.mean(column)), float(np.std(column)), trials)
        assert found == spread(column)


# Cells


def test_a_cell_has_the_mean_and_population_deviation_over_seeds() -> None:
    [cell] = summarise([trial(40, 90, seed=1), trial(60, 90, seed=2), trial(50, 90, seed=3)])
    # A_T is 65, 75, 70 and F_T is 60, 40, 50; in Task-IL, 55, 65, 60 and 70, 50, 60.
    for name, mean, variance in (
        ("class_il_A_T", 70.0, 50 / 3),
        ("class_il_F_T", 50.0, 200 / 3),
        ("task_il_A_T", 60.0, 50 / 3),
        ("task_il_F_T", 60.0, 200 / 3),
    ):
        assert cell.spreads[name] == pytest.approx((mean, math.sqrt(variance), 3))
    assert (cell.label, cell.ended) == ("ER", {"finished": 3})
    assert cell.values("class_il_A_T") == [65.0, 75.0, 70.0]


def test_trials_that_diverged_or_failed_are_counted_and_left_out_of_the_means() -> None:
    others = [diverged(make_config(seed=2)), diverged(make_config(seed=3))]
    others.append(failed(make_config(seed=4)))
    [cell] = summarise([trial(40, 90, seed=1), *others])
    assert (cell.trials, cell.ended["diverged"], cell.ended["failed"]) == (1, 2, 1)
    assert cell.spreads["class_il_A_T"] == Spread(65.0, 0.0, 1)
    with pytest.raises(UnknownNameError, match="unknown metric 'A_T'"):
        cell.spreads["A_T"]
    [cell] = summarise(others)
    assert (cell.label, cell.trials, cell.tasks) == ("ER", 0, None)
    assert math.isnan(cell.spreads["class_il_A_T"].mean)


def test_the_cost_of_a_cell_is_the_mean_over_its_trials_if_all_have_it() -> None:
    one = make_record(flops=1e12)
    two = make_record(make_config(seed=2), flops=3e12, seconds=20.0)
    [cell] = summarise([one, two])
    assert (cell.costs["flops"].mean, cell.costs["seconds"].mean) == (2e12, 16.25)
    [cell] = summarise([one, make_record(make_config(seed=2))])
    assert math.isnan(cell.costs["flops"].mean)
    assert cell.costs["seconds"].mean == 12.5


def test_cells_differ_in_anything_but_the_seed_and_their_labels_say_in_what() -> None:
    records = [
        trial(10, 10, seed=2, lr=0.5),
        trial(10, 10, method="sgd", buffer=0),
        trial(10, 10, seed=1, mask="-inf"),
        trial(10, 10, seed=1, lr=0.03),
        trial(10, 10, seed=1, lr=0.5),
        trial(10, 10, buffer=500),
    ]
    cells = [(cell.label, cell.config.buffer, cell.trials) for cell in summarise(records)]
    assert cells == [
        ("ER, lr=0.03", 200, 1),
        ("ER, lr=0.5", 200, 2),
        ("ER", 500, 1),
        ("MSER(-inf), lr=0.1", 200, 1),
        ("SGD", 0, 1),
    ]
    mixed = [make_record(make_config(class_order=order)) for order in ([1, 0], 3, None)]
    assert [cell.config.class_order for cell in summarise(mixed)] == [None, 3, (1, 0)]
    configs = [make_config(weights={"gamma": 0.5}), make_config(weights={}), make_config(lr=0.2)]
    assert cell_labels(configs) == ["ER, lr=0.1, gamma=0.5", "ER, lr=0.1", "ER, lr=0.2"]
    fading = [make_config(), make_config(mask=0, fade=4.0)]
    assert cell_labels(fading) == ["ER", "MSER(0)"]
    both = [*fading, make_config(share=0.1), make_config(mask=0, fade=4.0, share=0.1)]
    settings = ["share=1.0", "share=1.0", "share=0.1", "share=0.1"]
    systems = ["ER", "MSER(0)", "ER", "MSER(0)"]
    assert cell_labels(both) == [f"{s}, {own}" for s, own in zip(systems, settings, strict=True)]


def test_a_cell_has_the_kinds_of_hardware_of_its_trials() -> None:
    def cell(*machines: dict[str, str]) -> Cell:
        (only,) = summarise(
            make_record(make_config(seed=seed), machine=machine)
            for seed, machine in enumerate(machines)
        )
        return only

    epyc, xeon = {"processor": "EPYC", "host": "a"}, {"processor": "Xeon", "host": "b"}
    graphics = {"processor": "EPYC", "device": "A100"}
    assert cell(epyc, {**epyc, "host": "c"}, {}).hardware == ("EPYC, torch 2.6.0",)
    assert cell(epyc, xeon).hardware == ("EPYC, torch 2.6.0", "Xeon, torch 2.6.0")
    assert cell(epyc, graphics).hardware == ("A100, torch 2.6.0", "EPYC, torch 2.6.0")
    assert "2, on 2 kinds of hardware" in str(results_table([cell(epyc, xeon)]))
    assert "hardware" not in str(results_table([cell(epyc, epyc)]))


# Few values each, so that some trials share a cell, and some cells a method and a buffer.
_SIMILAR = st.builds(
    lambda make, **settings: make(make_config(**settings)),
    st.sampled_from([make_record, diverged, failed]),
    benchmark=st.sampled_from(["a", "b"]),
    mask=st.sampled_from([None, "-inf", -1.0]),
    lr=st.sampled_from([0.1, 0.5]),
    seed=st.integers(0, 3),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(_SIMILAR, max_size=8), st.randoms())
def test_each_trial_is_in_one_cell(several: list[TrialRecord], chance: random.Random) -> None:
    cells = summarise(several)
    assert sum(cell.ended.total() for cell in cells) == len(several)
    again = summarise(chance.sample(several, len(several)))
    shown, shown_again = (
        [(c.config.benchmark, c.config.buffer, c.label, c.trials) for c in each]
        for each in (cells, again)
    )
    assert shown == shown_again
    assert len({each[:-1] for each in shown}) == len(cells)


# Custom benchmarks that changed


def test_trials_that_learnt_other_tasks_or_classes_are_not_averaged_together() -> None:
    records = [_of(2, 0), _of(3, 1), _of(2, 2), failed(make_config(benchmark="mine:data", seed=3))]
    two, three = summarise(records)
    assert [two.label, three.label] == ["ER, 2 tasks", "ER, 3 tasks"]
    assert [two.trials, three.trials, three.ended["failed"]] == [2, 1, 1]
    assert [cell.spreads["class_il_A_T"].mean for cell in (two, three)] == [52, 53]
    assert three.tasks == ((0, 1), (2, 3), (4, 5))
    later = datetime(2027, 1, 1, tzinfo=UTC)
    other = _of(2, 1, tasks=((3, 2), (1, 0)), created=later)
    renamed = _of(2, 2, class_names=("a", "b", "c", "d"), created=later)
    assert _shown([_of(2, 0), other]) == {"ER, 2 tasks (1)": [0], "ER, 2 tasks (2)": [1]}
    assert _shown([renamed, _of(2, 0)]) == {"ER, 2 tasks (1)": [0], "ER, 2 tasks (2)": [2]}


# Lists


def test_a_list_has_the_cells_and_the_numbers_of_the_records(tmp_path: Path) -> None:
    records = [
        trial_with_accuracy(
            make_config(mask=mask, seed=seed, validation=held_out),
            40.0 + 7 * seed,
            forgetting=5.0 * seed,
            validation=50.0 if held_out else None,
        )
        for mask in (None, -1.0)
        for seed in range(3)
        for held_out in (0.0, 0.1)
    ]
    records += [diverged(make_config(seed=50)), failed(make_config(seed=51))]
    records += [make_record(make_config(seed=52))]  # another number of tasks
    with Store(tmp_path / "results.db") as store:
        store.add_all(records)
        listed = summarise(store.summaries())
        cells = summarise(store.records())
    for ours, theirs in zip(listed, cells, strict=True):
        assert (ours.label, ours.config) == (theirs.label, theirs.config)
        assert ours.summaries == theirs.summaries == tuple(map(summary_of, theirs.records))
        for name in SCORES:
            plain = [scores(record)[name] for record in theirs.finished]
            np.testing.assert_array_equal(ours.spreads[name], spread(plain))
    assert str(results_table(listed)) == str(results_table(cells))
