"""What is computed for many trials at once is what the plain way computes."""

import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from remask.reports.tables import PlainTable, results_table
from remask.results import (
    SCORES,
    Spread,
    Store,
    cell_labels,
    export,
    scores,
    spread,
    spreads,
    summarise,
    summarise_listed,
    summary_of,
)
from tests.results.store_samples import (
    diverged,
    failed,
    make_config,
    make_record,
    trial_with_accuracy,
)


@pytest.mark.parametrize("trials", [1, 2, 3, 8, 10, 127, 129, 1000])
def test_means_and_deviations_of_many_columns_have_the_bits_of_numpy(trials: int) -> None:
    values = np.random.default_rng(trials).uniform(0, 100, (trials, 29))
    for found, column in zip(spreads(values), values.T.tolist(), strict=True):
        assert found == Spread(float(np.mean(column)), float(np.std(column)), trials)
        assert found == spread(column)


def test_a_list_has_the_cells_and_the_numbers_of_the_records(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    records = [
        trial_with_accuracy(
            make_config(mask=mask, lr=lr, seed=seed, validation=held_out),
            float(draw.uniform(20, 90)),
            forgetting=float(draw.uniform(0, 10)),
            validation=50.0 if held_out else None,
        )
        for mask in (None, -1.0)
        for lr in (0.1, 0.2)
        for seed in range(3)
        for held_out in (0.0, 0.1)
    ]
    records += [diverged(make_config(seed=50)), failed(make_config(seed=51))]
    records += [make_record(make_config(seed=52))]  # another number of tasks
    with Store(tmp_path / "results.db") as store:
        store.add_all(records)
        listed = summarise_listed(store.summaries())
        cells = summarise(store.records())
    assert [cell.label for cell in listed] == [cell.label for cell in cells]
    assert [cell.config for cell in listed] == [cell.config for cell in cells]
    for ours, theirs in zip(listed, cells, strict=True):
        assert ours.summaries == theirs.summaries == tuple(map(summary_of, theirs.records))
        for name in SCORES:
            plain = [scores(record)[name] for record in theirs.finished]
            expected = (float(np.mean(plain)), float(np.std(plain)), len(plain))
            found = ours.spreads[name]
            np.testing.assert_array_equal((found.mean, found.std, found.trials), expected)
    assert str(results_table(listed)) == str(results_table(cells))


def test_labels_of_many_cells_take_time_in_proportion() -> None:
    configs = [make_config(lr=1e-6 * (1 + rate)) for rate in range(5_000)]
    start = time.process_time()
    labels = cell_labels(configs)
    assert time.process_time() - start < 5
    assert len(set(labels)) == len(configs)


def test_a_label_names_a_weight_that_only_some_cells_have() -> None:
    configs = [make_config(weights={"gamma": 0.5}), make_config(weights={}), make_config(lr=0.2)]
    assert cell_labels(configs) == ["ER, lr=0.1, gamma=0.5", "ER, lr=0.1", "ER, lr=0.2"]


def test_a_long_table_looks_like_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def table() -> PlainTable:
        cells = summarise(make_record(make_config(lr=0.1 * (1 + n))) for n in range(7))
        return results_table(cells)

    short = str(table())
    monkeypatch.setattr("remask.reports.tables._LONGEST_RICH_TABLE", 3)
    assert str(table()) == short


@pytest.mark.parametrize("format", ["csv", "json"])
def test_an_export_holds_no_trials_in_memory(
    tmp_path: Path,
    format: str,  # noqa: A002
) -> None:
    def peak(trials: int) -> int:
        tracemalloc.start()
        records = (make_record(make_config(seed=seed)) for seed in range(trials))
        assert export(records, format, tmp_path / f"out.{format}") == trials
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10)
    assert peak(300) < peak(30) + 200_000
