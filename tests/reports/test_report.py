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


def test_a_page_has_the_cells_that_pass_the_filters(remask: CommandLine, tmp_path: Path) -> None:
    remask.add(*make_records(2), *make_records(3, method="derpp", mask=-1.0))
    remask.add(diverged(make_config(method="derpp", mask=-1.0, seed=7)))
    remask.add(failed(make_config(method="hal", seed=7)))
    page = tmp_path / "page.html"
    assert "7 trials in" in remask.succeed("report", str(page)).text
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

    remask.succeed("report", str(page), "--mask", "none", "--method", "er")
    assert [cell["label"] for cell in data_of(page)["cells"]] == ["ER"]


def test_with_paper_the_page_lists_what_was_not_run(remask: CommandLine, tmp_path: Path) -> None:
    configs = trial_configs(benchmark="split-mnist", method="er", buffer=200, seeds=range(3))
    remask.add(*(trial_with_accuracy(config, 80.0) for config in configs))
    page = tmp_path / "page.html"
    remask.succeed("report", str(page))
    data = data_of(page)
    assert [cell["verdict"] for cell in data["cells"]] == ["worse"]  # and nothing that was not run
    assert data["statements"] == []

    remask.succeed("report", str(page), "--paper")
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
    remask.refusal("report", page)
    assert "ends in .html" in remask.refusal("report", "page.pdf")
    assert not remask.store.exists()
    remask.add(*[make_record()] * len(filters))
    before = contents(tmp_path)
    message = remask.refusal("report", page, "--figures", str(tmp_path), *filters)
    assert "has no trial to report" in message
    assert "remask reproduce" in message
    assert contents(tmp_path) == before


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
