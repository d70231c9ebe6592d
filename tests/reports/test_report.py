"""`remask report`: the page, the figures and --watch."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from remask.experiments.configs import trial_configs
from remask.papers.experiments import experiment_cells
from remask.store import Store, StoreError
from tests.command_line import CommandLine, start
from tests.reports.samples import embedded
from tests.store.store_samples import (
    contents,
    diverged,
    failed,
    make_config,
    make_record,
    make_records,
    trial_with_accuracy,
)


def data_of(page: Path) -> Any:
    return embedded(page.read_text("utf-8"))


def _labels(page: Path) -> set[str]:
    return {cell["label"] for cell in data_of(page)["cells"]}


def test_a_page_has_every_cell_of_the_store_or_those_that_pass_the_filters(
    remask: CommandLine, tmp_path: Path
) -> None:
    with Store(remask.store) as store:
        store.add_all([*make_records(2), *make_records(3, method="derpp", mask=-1.0)])
        store.add(diverged(make_config(method="derpp", mask=-1.0, seed=7)))
        store.add(failed(make_config(method="hal", seed=7)))
    page = tmp_path / "page.html"
    answer = remask("report", str(page))
    assert answer.code == 0
    assert "7 trials in" in answer.text
    data = data_of(page)
    cells = {cell["label"]: cell for cell in data["cells"]}
    counts = {label: cell["trials"] for label, cell in cells.items()}
    assert counts == {"ER": 2, "MSDER++(-1)": 3, "HAL": 0}
    assert cells["MSDER++(-1)"]["diverged"] == 1
    assert cells["HAL"]["records"][0]["error"] == "no memory left"
    assert cells["ER"]["scores"]["class_il_A_T"] == {"mean": 70.375, "std": 0.0, "trials": 2}
    (heat,) = [
        mark
        for figure in data["figures"]
        if (figure["key"], figure["setting"]) == ("matrices", "class_il")
        for panel in figure["panels"]
        for mark in panel["marks"]
        if mark["sources"][0]["cell"] == cells["ER"]["id"]
    ]
    assert (heat["x"], heat["y"]) == ([0, 0, 1], [0, 1, 1])
    assert heat["values"] == [99.0, 50.5, 90.25]
    assert data["statements"] == []  # nothing is published about the digits

    assert remask("report", str(page), "--mask", "none", "--method", "er").code == 0
    assert _labels(page) == {"ER"}


def test_with_paper_the_page_lists_what_was_not_run(remask: CommandLine, tmp_path: Path) -> None:
    configs = trial_configs(benchmark="split-mnist", method="er", buffer=200, seeds=range(3))
    with Store(remask.store) as store:
        store.add_all([trial_with_accuracy(config, 80.0) for config in configs])
    page = tmp_path / "page.html"
    assert remask("report", str(page)).code == 0
    data = data_of(page)
    assert [cell["verdict"] for cell in data["cells"]] == ["worse"]  # and nothing that was not run
    assert data["statements"] == []

    assert remask("report", str(page), "--paper").code == 0
    data = data_of(page)
    assert len(data["cells"]) == len(experiment_cells("all", "split-mnist"))
    (run,) = [cell for cell in data["cells"] if cell["verdict"] != "not run"]
    assert run["claims"]["class_il_A_T"]["mean"] == 78.27
    assert run["claims"]["class_il_A_T"]["verdict"] == "better"
    assert 0 < run["claims"]["class_il_A_T"]["p"] < 0.05
    assert data["near"] == 1  # 80 is 1.3 std above 78.27; the other three are far off
    assert {row["finding"] for row in data["statements"]} == {"not run"}
    assert sum(data["counts"].values()) == sum(len(cell["claims"]) for cell in data["cells"])


@pytest.mark.parametrize("filters", [[], ["--method", "hal"]])
def test_a_report_without_trials_is_refused_and_writes_nothing(
    remask: CommandLine, tmp_path: Path, filters: list[str]
) -> None:
    page = str(tmp_path / "page.html")
    assert remask("report", page).code == 1
    assert not remask.store.exists()
    with Store(remask.store) as store:
        if filters:
            store.add(make_record())
    before = contents(tmp_path)
    answer = remask("report", page, "--figures", str(tmp_path), *filters)
    assert answer.code == 1
    assert "has no trial to report" in answer.text
    assert "remask reproduce" in answer.text
    assert contents(tmp_path) == before


def test_figures_are_written_into_a_folder(
    remask: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("remask.reports.figures.rendered", lambda drawing, kind: b"")
    with Store(remask.store) as store:
        store.add_all([*make_records(2), *make_records(2, mask=-1.0)])
    folder = tmp_path / "figures"
    answer = remask("report", str(tmp_path / "page.html"), "--figures", str(folder))
    assert answer.code == 0
    written = {path.name for path in folder.iterdir()}
    assert {"split-digits-matrices-b200.svg", "split-digits-matrices-b200.png"} <= written
    assert f"{len(written)} figures in" in answer.text


@pytest.mark.slow
def test_the_demo_writes_its_page_beside_its_store(remask: CommandLine) -> None:
    answer = remask("demo", "--trials", "1", "--workers", "1")
    assert answer.code == 0
    page = remask.store.with_suffix(".html")
    assert str(page) in answer.text.replace(" ", "")
    assert _labels(page) == {"ER", "MSER(-inf)", "DER++", "MSDER++(-inf)", "MSDER++(-1)"}


def _wait_for(page: Path, trials: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if page.exists() and sum(cell["trials"] for cell in data_of(page)["cells"]) == trials:
            return
        time.sleep(0.1)
    raise AssertionError(f"the page never had {trials} trials")


@pytest.mark.slow
@pytest.mark.processes
def test_a_watched_page_follows_the_store_until_interrupted(tmp_path: Path) -> None:
    store, page = tmp_path / "results.db", tmp_path / "page.html"
    process = start("report", str(page), "--watch", store=store)
    assert process.stderr is not None
    try:
        assert process.stderr.readline() == f"waiting for {store}\n"
        with Store(store) as opened:
            _wait_for(page, 0)
            for number, record in enumerate(make_records(2), start=1):
                opened.add(record)
                _wait_for(page, number)
            assert 'data-refresh-seconds="5"' in page.read_text()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "2 trials in" in err
    _wait_for(page, 2)
    assert 'data-refresh-seconds=""' in page.read_text()


def test_a_store_notices_changes_by_others(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as mine, Store(tmp_path / "a.db") as other:
        before = mine.changes()
        assert mine.changes() == before
        other.add(make_record())
        assert mine.changes() != before
    with pytest.raises(StoreError):
        mine.changes()
