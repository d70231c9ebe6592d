"""Running trials from Python: `remask.run` and what it returns."""

import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import remask
from remask.config import TrialConfig
from remask.engine.steps import Feed
from remask.errors import MissingPackageError, SettingsError
from remask.store import StoreError, scores, summarise
from tests.store.store_samples import (
    contents,
    failed,
    make_config,
    make_record,
    trial_with_accuracy,
)

SMALL: Any = {"limit": 10, "epochs": 1, "trials": 2, "workers": 1}
"""Trials that take a moment."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


def test_a_run_is_every_combination_with_published_settings_and_is_stored(store: Path) -> None:
    results = remask.run(
        "split-digits", ["er", "derpp"], mask=[None, -1.0], buffer=[20, 50], store=store, **SMALL
    )
    asked = [
        (method, mask, buffer, seed)
        for method in ("er", "derpp")
        for buffer in (20, 50)
        for mask in (None, -1.0)
        for seed in (0, 1)
    ]
    assert [(r.config.method, r.config.mask, r.config.buffer, r.seed) for r in results] == asked
    assert {r.config.replay_batch for r in results} == {10}  # as published of the digits
    assert results.failures == []
    with remask.Store(store) as opened:
        assert {record.config_hash for record in opened.records()} == {
            record.config_hash for record in results
        }


def test_class_orders_drawn_per_seed_are_averaged_in_one_cell(store: Path) -> None:
    asked: Any = {"mask": [None, -1.0], "buffer": 20, "class_order": "seed"} | SMALL
    results = remask.run("split-digits", "er", store=store, **asked)
    for record in results:
        split = remask.load_benchmark("split-digits", class_order=record.seed, limit=10)
        assert record.tasks == split.tasks
    plain, masked = summarise(results)
    assert (plain.label, masked.label) == ("ER", "MSER(-1)")
    assert (plain.trials, masked.trials) == (2, 2)
    assert plain.learnt == masked.learnt
    assert plain.tasks is None
    found = [scores(record)["class_il_A_T"] for record in plain.records]
    assert plain.spreads["class_il_A_T"].mean == pytest.approx(sum(found) / 2)
    remask.report(store.with_suffix(".html"), store=store)


def test_stored_trials_are_run_again_only_on_request(store: Path) -> None:
    first = remask.run(store=store, **SMALL)
    second = remask.run(store=store, **SMALL)
    third = remask.run(store=store, again=True, **SMALL)
    assert (first.ran, second.ran, third.ran) == (True, False, True)
    assert list(second) == list(first)
    assert [r.created for r in third] != [r.created for r in first]
    assert [r.class_il for r in third] == [r.class_il for r in first]


def test_exactly_the_configs_given_are_run(store: Path) -> None:
    config = remask.settings("split-digits", "derpp", 20, -1.0, seed=7, epochs=1, limit=10)
    with remask.Store(store) as opened:  # an open store will do as well as a path
        (record,) = remask.run(configs=[config], store=opened, workers=1)
        assert record.config == config
        assert opened.count() == 1
    with pytest.raises(SettingsError, match="leave out method, lr"):
        remask.run(method="er", lr=0.1, configs=[config], store=store)


def test_settings_are_the_published_ones_and_can_be_changed() -> None:
    config = remask.settings("split-mnist", "derpp", buffer=200, mask=-1.0)
    assert (config.lr, config.replay_batch, config.alpha) == (0.03, 128, 0.2)
    assert remask.settings("split-mnist", "mser", 200).mask == -math.inf
    assert remask.settings("split-mnist", "er", 200, lr=0.5).lr == 0.5
    with pytest.raises(SettingsError, match="one value per weight"):
        remask.settings("split-mnist", "er,derpp")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"mehtod": "er"}, "did you mean 'method'"),
        ({"wrokers": 2}, "did you mean 'workers'"),
        ({"learning": 3}, "there is no setting 'learning'"),
        ({"mask": [None, "x"]}, "a mask is"),
        ({"buffer": []}, "values"),
        ({"net": "__main__:mine"}, "move it to a module"),
        (
            {"data": "/nowhere", "benchmark": ["split-digits", "split-mnist"]},
            "one of remask's datasets",
        ),
    ],
)
def test_invalid_arguments_are_refused_before_anything_changes(
    store: Path, wrong: dict[str, Any], said: str
) -> None:
    with remask.Store(store) as opened:
        opened.add(make_record())
    before = contents(store.parent)
    asked: dict[str, Any] = {"workers": 1, "store": store} | wrong
    with pytest.raises(Exception, match=said) as refused:
        remask.run(**asked)
    assert isinstance(refused.value, remask.errors.RemaskError)
    assert contents(store.parent) == before


def test_results_are_a_table_as_text_and_in_a_notebook(store: Path) -> None:
    results = remask.run(mask=["none", -1.0], store=store, **SMALL)
    lines = repr(results).splitlines()
    assert lines[0] == "split-digits, buffer 20, trials: 2"
    assert lines[2].split()[:3] == ["method", "Class-IL", "A_T"]
    assert [line.split()[0] for line in lines[4:6]] == ["ER", "MSER(-1)"]
    assert str(results.table()) == str(results)
    mean = f"{results.cells()[1].spreads['class_il_A_T'].mean:.2f}"
    assert mean in lines[5]
    page = results._repr_html_()
    assert page.startswith("<table><caption>split-digits, buffer 20, trials: 2</caption>")
    assert page.count("<tr>") == 3
    assert f"<td>{mean} ±" in page


def test_cells_are_in_the_order_of_asked() -> None:
    records = [
        make_record(make_config(mask=mask, seed=seed)) for mask in (None, -1.0) for seed in (0, 1)
    ]
    asked = [record.config for record in reversed(records)]
    assert [c.config.mask for c in remask.Results(records, asked=asked).cells()] == [-1.0, None]
    assert [c.config.mask for c in remask.Results(records).cells()] == [None, -1.0]


def test_nothing_in_a_record_becomes_markup_in_a_notebook() -> None:
    fields = make_config().model_dump() | {"benchmark": "<script>", "method": "<b>&"}
    hostile = make_record(TrialConfig.model_validate(fields))
    page = remask.Results([hostile, make_record()])._repr_html_()
    assert "<script" not in page
    assert "<b>" not in page.lower()
    assert "&lt;script&gt;" in page


def test_a_frame_has_a_row_per_trial_with_its_config_and_metrics() -> None:
    pytest.importorskip("pandas")
    records = [make_record(make_config(mask=-1.0)), failed(make_config(seed=1))]
    frame = remask.Results(records).frame()
    assert list(frame["seed"]) == [record.seed for record in records]
    assert frame["mask"][0] == -1.0
    assert frame["class_il_A_T"][0] == pytest.approx(70.375)
    assert math.isnan(frame["class_il_A_T"][1])
    assert list(frame["status"]) == ["finished", "failed"]
    assert len(remask.Results([]).frame().columns) == len(frame.columns)


def test_without_pandas_a_frame_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match="pip install pandas"):
        remask.Results([make_record()]).frame()


def test_results_with_published_settings_are_compared_with_published_figures() -> None:
    published = [remask.settings("split-mnist", "er", 200, seed=seed) for seed in range(3)]
    other = remask.settings("split-mnist", "er", 200, lr=0.5)
    records = [trial_with_accuracy(c, 80.0, forgetting=20.0) for c in (*published, other)]
    compared = remask.Results(records).compare()
    assert [cell.label for cell in compared] == ["ER"]
    assert compared[0].figures["class_il_A_T"].claim.mean == 78.27
    assert "78.27 ±1.37" in str(compared)
    assert "| ER | 200 |" in compared.markdown()
    assert "78.27" in compared._repr_html_()
    nothing = remask.Results(records[3:]).compare()
    assert len(nothing) == 0
    assert repr(nothing).startswith("Nothing is published about these results: ")
    assert nothing.summary() == [repr(nothing)]
    assert nothing.markdown() == repr(nothing)
    assert "Nothing is published" in nothing._repr_html_()
    assert repr(remask.Results([])) == "No trials."
    assert remask.Results([])._repr_html_() == "<p>No trials.</p>"


def test_a_sweep_takes_a_file_or_a_dict(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        "epochs = 1\nlimit = 10\ntrials = 2\n[[zip]]\nbuffer = [20, 50]\nlr = [0.1, 0.2]\n"
    )
    grid: Any = {"epochs": 1, "limit": 10, "trials": 2}
    grid["zip"] = [{"buffer": (20, 50), "lr": [0.1, 0.2]}]
    before = repr(grid)
    results = remask.sweep(grid, store=store, workers=1)
    assert repr(grid) == before
    assert [(r.config.buffer, r.config.lr, r.seed) for r in results] == [
        (20, 0.1, 0), (20, 0.1, 1), (50, 0.2, 0), (50, 0.2, 1),
    ]  # fmt: skip
    same = remask.sweep(file, store=store, workers=1)
    assert not same.ran
    assert list(same) == list(results)


def test_a_report_is_a_page_and_figures(store: Path, tmp_path: Path) -> None:
    with remask.Store(store) as opened:
        for record in (
            make_record(),
            make_record(make_config(seed=9)),
            make_record(make_config(method="derpp")),
        ):
            opened.add(record)
    page = tmp_path / "page.html"
    written = remask.report(page, store=store, method="er", figures=tmp_path / "figures")
    assert (written.page, written.trials, written.damaged) == (page, 2, [])
    assert page.read_text().startswith("<!doctype html>")
    assert written.figures
    assert all(path.exists() for path in written.figures)
    with pytest.raises(StoreError, match="no trial to report that passes the filters"):
        remask.report(page, store=store, seed=99)
    with pytest.raises(StoreError, match="no such file"):
        remask.report(page, store=tmp_path / "nowhere.db")


@pytest.mark.parametrize("progress", [None, True])
def test_lines_are_printed_without_a_terminal_only_on_request(
    store: Path, capfd: pytest.CaptureFixture[str], progress: bool | None
) -> None:
    remask.run(store=store, progress=progress, **SMALL)
    out, err = capfd.readouterr()
    assert out == ""
    assert ("ER, buffer 20: 2 trials" in err) == bool(progress)
    assert progress or err == ""


def test_failures_are_reported_beside_the_other_results(store: Path, tmp_path: Path) -> None:
    (tmp_path / "breaks_for_one.py").write_text(
        "from remask.methods.er import ER\n"
        "class Breaks(ER):\n"
        "    def begin_task(self, task):\n"
        "        raise ValueError('a mistake of mine')\n"
    )
    sys.path.append(str(tmp_path))
    try:
        results = remask.run(method=["er", "breaks_for_one:Breaks"], store=store, **SMALL)
    finally:
        sys.path.remove(str(tmp_path))
    (failure,) = results.failures
    assert "a mistake of mine" in failure
    assert "breaks_for_one.py:4" in failure
    assert failure in repr(results)
    assert [r.status for r in results] == ["finished"] * 2 + ["failed"] * 2


def test_a_run_in_another_thread_works_and_leaves_torch_s_threads_alone(store: Path) -> None:
    found = []
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        thread = threading.Thread(target=lambda: found.append(remask.run(store=store, **SMALL)))
        thread.start()
        thread.join()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    (results,) = found
    assert len(results) == 2


SCRIPT = """\
import remask
print("once")
results = remask.run(method="beside:Beside", trials=2, stack=1, limit=5, epochs=1, workers=2, {how})
print(len(results), results.failures)
"""


@pytest.mark.processes
def test_a_script_needs_no_main_guard_and_workers_import_modules_beside_it(
    store: Path, tmp_path: Path
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "beside.py").write_text("from remask.methods.er import ER\nclass Beside(ER): pass\n")
    (project / "script.py").write_text(SCRIPT.format(how=f"store={str(store)!r}"))
    done = subprocess.run(
        [sys.executable, str(project / "script.py")],
        cwd=elsewhere,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["once", "2 []"]


def test_a_stopped_run_is_resumed_from_python(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped by a signal in its second epoch, then resumed to its end."""
    left_alone = remask.run(store=store.with_name("other.db"), **SMALL)
    epochs = iter(range(1_000_000))
    plan = Feed.plan

    def stop_at_the_second_epoch(self: Feed, *args: Any, **options: Any) -> Any:
        if next(epochs) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return plan(self, *args, **options)

    monkeypatch.setattr(Feed, "plan", stop_at_the_second_epoch)
    with pytest.raises(KeyboardInterrupt, match="everything is saved"):
        remask.run(store=store, **SMALL)
    (results,) = remask.resume(store=store, workers=1)
    assert [r.class_il for r in results] == [r.class_il for r in left_alone]
    with pytest.raises(SettingsError, match="no unfinished run"):
        remask.resume(store=store)
