"""`remask reproduce`: what it would run, and what it says of what the store has."""

import json
import math
import re
import shlex

import pytest

import remask as public
from remask.experiments.reproduction import configs_of, wanted_cells
from remask.experiments.results import has_published_settings, rerun_command
from remask.papers.experiments import (
    EXPERIMENTS,
    PaperCell,
    experiment_cells,
    experiments_of,
    published_benchmarks,
    published_figures,
)
from remask.store import Store
from tests.command_line import CommandLine
from tests.store.store_samples import contents, failed, trial_with_accuracy


@pytest.fixture
def no_data(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without data, whose speed was measured before."""
    monkeypatch.setenv("REMASK_DATA", str(tmp_path_factory.mktemp("data")))
    monkeypatch.setattr("remask.experiments.plans.rates_of", lambda *_: None)
    monkeypatch.setattr("remask.experiments.plans.seconds_of", lambda *_: 60.0)


def _fill(remask: CommandLine, cells: list[PaperCell], accuracy: float, trials: int = 10) -> None:
    with Store(remask.store) as store:
        for cell in cells:
            for config in configs_of(cell, trials):
                better = 0.1 * config.seed + (5 if cell.mask is not None else 0)
                store.add(trial_with_accuracy(config, accuracy + better, forgetting=20 - better))


@pytest.mark.parametrize(
    ("experiment", "cells"),
    [
        ("main", [15, 15, 15, 15, 0]),
        ("low-buffer", [9, 9, 0, 0, 0]),
        ("ablation", [30, 30, 0, 0, 0]),  # 27, and DER++ without a mask at each buffer
        ("confidence", [4, 2, 0, 0, 0]),
        ("appendix", [42, 42, 33, 15, 0]),
        ("gap", [10, 0, 0, 0, 0]),
        ("online", [0, 51, 0, 0, 0]),
        ("online-small", [0, 44, 0, 0, 0]),
        ("fashion", [0, 0, 0, 0, 19]),
    ],
)
def test_an_experiment_has_the_cells_of_its_table_or_figure(
    experiment: str, cells: list[int]
) -> None:
    assert [len(experiment_cells(experiment, b)) for b in published_benchmarks()] == cells


def test_all_is_every_experiment_and_names_no_cell_twice() -> None:
    for benchmark in published_benchmarks():
        every = experiment_cells("all", benchmark)
        assert len(set(every)) == len(every)
        for name in ("main", "low-buffer", "ablation", "confidence", "appendix"):
            assert set(experiment_cells(name, benchmark)) <= set(every)
        assert all(experiments_of(cell) for cell in every)
    assert experiments_of(PaperCell("split-mnist", "derpp", -1.0, 200)) == [
        "main",
        "ablation",
        "appendix",
    ]


def test_an_experiment_runs_on_the_first_benchmark_that_has_it() -> None:
    assert {cell.benchmark for cell in wanted_cells("main", None, {})} == {"split-mnist"}
    assert {cell.benchmark for cell in wanted_cells("online", None, {})} == {"split-cifar10"}


def test_the_online_protocol_has_the_settings_that_its_authors_chose() -> None:
    (ace,) = wanted_cells("online", None, {"method": ["er_ace"], "buffer": ["1000"]})[:1]
    (config, *_) = configs_of(ace, None)
    assert (config.net, config.lr, config.epochs) == ("resnet18-cosine:20", 0.01, 1)
    assert (config.batch, config.replay_batch, config.protocol) == (10, 10, "online")
    (plain,) = wanted_cells("online", None, {"method": ["er_ace"], "buffer": ["1000"]})[1:]
    assert (configs_of(plain, 1)[0].lr, configs_of(plain, 1)[0].augment) == (0.1, False)
    small = configs_of(wanted_cells("online-small", None, {"method": ["derpp"]})[0], None)
    assert {(c.share, c.replay_batch, c.alpha, c.beta) for c in small} == {(0.05, 20, 0.75, 1.0)}
    assert len(small) == 10
    command = shlex.split(rerun_command(plain_config := configs_of(plain, 1)[0], [0]))
    assert command[-4:] == ["--protocol", "online", "--no-augment", "--again"]
    assert has_published_settings(plain_config)


def test_split_fashion_mnist_has_the_settings_of_those_who_published_its_figures() -> None:
    (er,) = wanted_cells("fashion", None, {"method": ["mser-ema"], "buffer": ["500"]})
    (config, *_) = configs_of(er, 1)
    assert (config.net, config.lr, config.replay_batch, config.epochs) == ("mlp:256", 0.1, 128, 1)
    (joint,) = wanted_cells("fashion", None, {"method": ["joint"]})
    assert math.isnan(published_figures(joint)["class_il_A_T"].std)


def test_a_cell_has_as_many_trials_as_the_paper_and_the_published_settings() -> None:
    (mnist,) = wanted_cells(
        "low-buffer", "split-mnist", {"method": ["derpp"], "mask": ["-1"], "buffer": ["50"]}
    )
    configs = configs_of(mnist, None)
    assert [config.seed for config in configs] == list(range(10))
    assert {(c.mask, c.buffer, c.lr, c.replay_batch) for c in configs} == {(-1.0, 50, 0.03, 128)}
    tiny = experiment_cells("main", "split-tiny-imagenet")[0]
    assert len(configs_of(tiny, None)) == 5
    unpublished = PaperCell("split-mnist", "derpp", -1e6, 200)
    assert len(configs_of(unpublished, None)) == 10
    assert len(configs_of(unpublished, 3)) == 3


@pytest.mark.parametrize(
    ("name", "systems"),
    [
        ("DER++", {("derpp", None), ("derpp", -math.inf), ("derpp", -1.0)}),
        ("msderpp", {("derpp", -math.inf), ("derpp", -1.0)}),
        ("MSDER++(-1)", {("derpp", -1.0)}),
        ("mser", {("er", -math.inf)}),
    ],
)
def test_a_cell_is_chosen_by_any_name_of_its_method(
    name: str, systems: set[tuple[str, float | None]]
) -> None:
    cells = wanted_cells("main", "split-mnist", {"method": [name]})
    assert {(cell.method, cell.mask) for cell in cells} == systems


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["mian"], "did you mean 'main'"),
        (["main,ablatoin"], "did you mean 'ablation'"),
        (["main", "--benchmark", "split-mnits"], "did you mean 'split-mnist'"),
        (["main", "--benchmark", "split-digits"], "unknown benchmark of the paper"),
        (["low-buffer", "--benchmark", "split-cifar100"], "no 'low-buffer' experiment"),
        (["main", "--method", "derp"], "did you mean 'derpp'"),
        (["main", "--method", "gem"], "Known: derpp, er"),
        (["main", "--method", "MSDER++(-2)"], "did you mean 'MSDER++'"),
        (["main", "--buffer", "201"], "unknown buffer of these cells '201'"),
        (["main", "--mask", "-3"], "unknown mask of these cells '-3'"),
        (["main", "--mask", "x"], "a mask is"),
        (["main", "--trials", "0"], "--trials"),
        (["main", "--device", "abacus", "--trials", "1"], "abacus"),
    ],
)
def test_cells_that_the_paper_lacks_are_refused_and_nothing_changes(
    remask: CommandLine, arguments: list[str], expected: str
) -> None:
    _fill(remask, experiment_cells("confidence", "split-mnist"), 80.0, trials=2)
    before = contents(remask.store.parent)
    answer = remask("reproduce", *arguments)
    assert answer.code in (1, 2)
    assert expected in answer.text
    assert "Traceback" not in answer.text
    assert contents(remask.store.parent) == before


def test_what_the_store_has_is_not_run_and_is_put_beside_the_paper(remask: CommandLine) -> None:
    _fill(remask, experiment_cells("main", "split-mnist"), 80.0)
    answer = remask("reproduce", "main")
    assert answer.code == 0
    assert "All 150 trials are in" in answer.text
    lines = answer.out.splitlines()
    (number,) = [n for n, line in enumerate(lines) if line.split()[:2] == ["ER", "200"]]
    assert lines[number].split()[2:5] == ["10", "80.45", "±0.29"]
    # 80.45 beside 78.27 +- 1.37: 1.6 of its std above it, and significantly different.
    assert lines[number + 1].split()[:3] == ["78.27", "±1.37", "+1.6!"]
    assert "Masking lowers forgetting in every cell." in answer.out
    assert "paired" in next(line for line in lines if "Masking lowers forgetting" in line)
    assert "Welch's t-test" in answer.text
    (summary,) = [line for line in lines if "differ significantly" in line]
    assert summary.startswith(f"Of {15 * 4} figures, ")


@pytest.mark.usefixtures("no_data")
def test_without_a_name_the_experiments_are_listed_and_nothing_runs(remask: CommandLine) -> None:
    _fill(remask, experiment_cells("confidence", "split-mnist"), 80.0)
    before = contents(remask.store.parent)
    answer = remask("reproduce")
    assert answer.code == 0
    rows = {line.split()[0]: line.split()[1:] for line in answer.out.splitlines() if line.strip()}
    assert rows.keys() >= EXPERIMENTS.keys()
    assert rows["confidence"][:3] == ["split-mnist", "40", "0"]
    assert rows["low-buffer"][:3] == ["split-mnist", "90", "90"]
    assert rows["online"][:3] == ["split-cifar10", "510", "510"]
    assert contents(remask.store.parent) == before
    elsewhere = remask("reproduce", "--benchmark", "split-cifar100", "--json")
    assert json.loads(elsewhere.out).keys() == {"main", "appendix", "all"}


@pytest.mark.usefixtures("no_data")
def test_a_dry_run_prints_what_is_left_and_changes_nothing(remask: CommandLine) -> None:
    cells = experiment_cells("confidence", "split-mnist")
    _fill(remask, cells, 80.0)
    with Store(remask.store) as store:
        (config, *_) = [c for cell in cells for c in configs_of(cell, 1) if c.method == "derpp"]
        store.add(failed(config), replace=True)
    before = contents(remask.store.parent)
    answer = remask("reproduce", "confidence,low-buffer", "--dry-run", "--method", "derpp")
    assert answer.code == 0
    assert "11 cells, 110 trials, 91 to run: about" in answer.text  # one had failed
    assert "The data of split-mnist will be downloaded first." in answer.text
    stored = remask("reproduce", "confidence", "--method", "er", "--dry-run")
    assert "2 cells, 20 trials, 0 to run." in stored.text
    assert contents(remask.store.parent) == before


def test_a_reproduction_has_cells_and_decisions_and_is_printable(remask: CommandLine) -> None:
    cells = experiment_cells("confidence", "split-mnist")
    _fill(remask, cells, 80.0)
    found = public.reproduce("confidence", store=remask.store)
    assert not found.results.ran
    assert [cell.paper for cell in found.compared] == cells
    assert len(found.decided) == len(found.by_the_paper) > 0
    for text in (str(found), found.markdown(), found._repr_html_()):
        assert "85.64 ±1.02" in text
        assert found.decided[0].statement.text.split()[0] in text
    chosen = public.reproduce("confidence", method="er", mask=[None], store=remask.store).compared
    assert [cell.label for cell in chosen] == ["ER"]


def test_markdown_is_for_documents(remask: CommandLine) -> None:
    _fill(remask, experiment_cells("confidence", "split-mnist"), 80.0)
    answer = remask("reproduce", "confidence", "--markdown")
    rows = [line for line in answer.out.splitlines() if line.startswith("|")]
    assert len(rows) == (2 + 4) + (2 + 4)  # four cells, four statements, and their headings
    assert (
        len({row.count("|") for row in rows[:6]}) == len({row.count("|") for row in rows[6:]}) == 1
    )


def test_the_gap_is_shown_beside_the_paper_s_figures(remask: CommandLine) -> None:
    cells = experiment_cells("gap", "split-mnist")
    assert {config.evaluate_every for cell in cells for config in configs_of(cell, 1)} == {10}
    _fill(remask, [cell for cell in cells if cell.buffer == 200], 80.0)
    answer = remask("reproduce", "gap", "--buffer", "200")
    assert answer.code == 0
    assert "All 50 trials are in" in answer.text
    for method in ("ER", "MSER(-inf)", "DER++", "MSDER++(-1)", "MSER-EMA(0)"):
        # min-ACC is 90 - 10, WC-ACC 90 / 5 + 80 * 4 / 5, the drop 10, in all of them.
        line = rf"{re.escape(method)} +200 +10 .*80\.00 ±0\.00 +82\.00 ±0\.00 +10\.00 ±0\.00"
        assert re.search(line, answer.out), method
    assert "78.27 ±1.37" in answer.text  # what is published of ER
    document = remask("reproduce", "gap", "--buffer", "200", "--markdown")
    assert "| ER | 200 | 10 | 80.45 ±0.29 | 80.00 ±0.00 | 82.00 ±0.00 | 10.00 ±0.00 |" in (
        document.out
    )
