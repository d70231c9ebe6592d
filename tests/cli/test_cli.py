import json
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from remask import TrialStack
from remask.store import Store, TrialRecord
from tests.command_line import QUICK, CommandLine
from tests.store.store_samples import make_config, make_record


def _records(remask: CommandLine) -> list[TrialRecord]:
    with Store(remask.store, create=False) as store:
        return list(store.records())


@pytest.fixture
def stored(remask: CommandLine) -> CommandLine:
    """The command line with three stored trials."""
    with Store(remask.store) as store:
        for seed, (method, mask) in enumerate([("derpp", None), ("derpp", -1.0), ("er", None)]):
            store.add(make_record(make_config(seed=seed, method=method, mask=mask)))
    return remask


def test_a_run_prints_a_table_and_stores_every_trial(remask: CommandLine) -> None:
    answer = remask("run", *QUICK, "--method", "er", "--mask", "none,-inf", "--workers", "1")
    assert answer.code == 0, answer.err
    assert "MSER(-inf)" in answer.out
    assert "Class-IL A_T" in answer.out
    assert sorted((r.config.mask is None, r.seed) for r in _records(remask)) == [
        (False, 0), (False, 1), (True, 0), (True, 1),
    ]  # fmt: skip
    assert list(remask.store.with_name("results.db.runs").glob("*/")) == []
    answer = remask("resume")
    assert answer.code == 1
    assert "no unfinished run" in answer.text


def test_a_diverging_trial_is_reported_and_left_out_of_the_mean(remask: CommandLine) -> None:
    answer = remask("run", *QUICK, "--lr", "1e30", "--workers", "1")
    assert answer.code == 0
    assert "2 diverged" in answer.out
    assert "ER with seed 1 diverged at step" in answer.err
    assert all(r.status == "diverged" and r.diverged_at is not None for r in _records(remask))


def test_a_stopped_run_with_auto_resumes_to_the_same_result(
    remask: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = ("run", *QUICK, "--method", "er", "--mask", "auto", "--buffer", "1000", "--workers", "1")
    assert remask(*auto).code == 0
    whole = _records(remask)
    run = TrialStack.run

    def stopped(stack: TrialStack) -> object:
        yield from islice(run(stack), 80)
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(TrialStack, "run", stopped)
        assert remask(*auto, "--again").code != 0
    assert remask("resume", "--workers", "1").code == 0
    for again, before in zip(_records(remask), whole, strict=True):
        assert again.created > before.created
        assert again.choices == before.choices
        assert str(again.class_il) == str(before.class_il)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--method", "drepp"], "did you mean 'derpp'"),
        (["--benchmark", "split-mnits"], "did you mean 'split-mnist'"),
        (["--mask", "1"], "[-inf, 0]"),
        (["--mask", "none,,-1"], "comma-separated"),
        (["--method", "joint", "--mask", "-inf"], "does not support a mask"),
        (["--method", "mser", "--mask", "none"], "use the method er"),
        (["--method", "sgd", "--buffer", "10"], "has no memory"),
        (["--method", "er", "--alpha", "1"], "alpha"),
        (["--buffer", "0"], "`buffer >= 1`"),
        (["--buffer", "many"], "buffer = 'many': must be a whole number"),
        (["--method", "gem", "--buffer", "4"], "`buffer >= 5` for 5 tasks and 10 classes"),
        (["--trials", "0"], "trials = 0: must be at least 1"),
        (["--trials", "x"], "'x' must be a whole number"),
        (["--lr", "0.1,0.2"], "use `remask sweep`"),
        (["--benchmark", "no_such_module:nope"], "no module 'no_such_module'"),
        (["--lr", "0"], "greater than 0"),
        (["--device", "abacus"], "abacus"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
        (["--workers", "0"], "workers = 0"),
        (["--epohcs", "3"], "--epohcs"),
        (["--tasks", "30"], "not 30"),
        (["--class-order", "1,2"], "class_order"),
        (["--validation", "1"], "validation = 1.0"),
        (["--validation", "10%"], "--validation"),
        (["--validation", "0.1", "--limit", "1"], "has one training sample"),
        (["--net", "resnet18:wide"], "width"),
        (["--data", "nowhere"], "ships with remask"),
        (["--method", "er", "--mask", "auto", "--fade", "4"], "a mask other than 'auto'"),
        (["--method", "derpp", "--mask", "auto", "--mask-stored"], "needs a finite mask"),
        (["--method", "er", "--mask", "auto", "--task-free"], "task_free"),
        (["--method", "er", "--mask", "automatic"], "'none', 'auto' or a number"),
    ],
)
def test_an_invalid_option_is_refused_with_a_message(
    remask: CommandLine, arguments: list[str], expected: str
) -> None:
    answer = remask("run", *arguments)
    assert answer.code in (1, 2)
    assert expected in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("method = 'er'\nmetod = 'er'", "did you mean 'method'"),
        ("method =", "not valid TOML"),
        ("lr = 'fast'", "lr = 'fast'"),
        ("lr = [0.1, 0.2]", "lr = [0.1, 0.2]: must be a number; for several values, use `sweep`"),
        ("mask = [true]", "mask"),
        ("buffer = []", "comma-separated"),
    ],
)
def test_an_invalid_config_file_is_refused(
    remask: CommandLine, tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "run.toml").write_text(text)
    answer = remask("run", "--config", str(tmp_path / "run.toml"))
    assert answer.code == 1
    assert expected in answer.text


def test_options_override_the_config_file(remask: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        "benchmark = ['split-digits', 'split-digits']\nmask = ['none', -1]\nepochs = 1\n"
        "trials = 5\nlr = 0.2\nlimit = 20\n"
    )
    config = ("run", "--config", str(tmp_path / "run.toml"), "--trials", "1")
    answer = remask(*config, "--workers", "1")
    assert answer.code == 0, answer.err
    assert [(r.config.mask, r.config.lr) for r in _records(remask)] == [(None, 0.2), (-1, 0.2)]
    answer = remask(*config, "--benchmark", "split-digits,split-mnits")
    assert answer.code == 1
    assert "did you mean 'split-mnist'" in answer.text


def test_invalid_run_options_are_refused_before_a_store_is_created(remask: CommandLine) -> None:
    for wrong in (["--threads", "4097"], ["--checkpoint-seconds", "0"], ["--stack", "-1"]):
        assert remask("run", *QUICK, *wrong).code == 1
    assert not remask.store.exists()


def test_results_are_listed_shown_and_exported_by_filters(
    stored: CommandLine, tmp_path: Path
) -> None:
    chosen = _records(stored)[0].config_hash[:12]
    (line,) = stored("results", "list", "--trials", "--hash", f"ffff,{chosen}").out.splitlines()
    assert line.startswith(chosen)
    assert stored("results", "compare", "--status", "failed").out.startswith("Nothing is published")
    assert "MSDER++(-1)" in stored("results", "list").out
    assert "MSDER++(-1)" not in stored("results", "list", "--mask", "none").out
    line = stored("results", "list", "--trials", "--seed", "1", "--method", "MSDER++").out
    shown = json.loads(stored("results", "show", line.split()[0]).out)
    assert (shown["config"]["seed"], shown["config"]["mask"]) == (1, -1.0)
    for ending in ("csv", "json", "parquet", "tex"):
        target = tmp_path / f"results.{ending}"
        assert stored("results", "export", str(target), "--method", "MSDER++").code == 0
        assert target.stat().st_size > 100
    assert (tmp_path / "results.csv").read_text().count("MSDER++(-1)") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["list", "--method", "MSDRE++"], "unknown method 'MSDRE++'; did you mean 'MSDER++'?"),
        (["list", "--status", "finishd"], "'finished', 'diverged' or 'failed'"),
        (["list", "--buffer", "x"], "buffer"),
        (["list", "--since", "yesterday"], "since"),
        (["list", "--mask", ""], "a mask is"),
        (["compare", "--buffer", "1,x"], "'x' is not valid"),
        (["show", "ffff"], "no trial"),
        (["show", " "], "results list --trials"),
        (["export", "results.xyz"], "--format"),
        (["export", "results.csv", "--format", "cvs"], "did you mean 'csv'"),
        (["export", "/nowhere/at/all/results.csv"], "/nowhere/at/all"),
    ],
)
def test_an_invalid_request_for_results_is_refused_with_a_message(
    stored: CommandLine, arguments: list[str], expected: str
) -> None:
    answer = stored("results", *arguments)
    assert answer.code == 1
    assert expected in answer.text
    assert "bug in remask" not in answer.text


def test_listing_results_creates_no_store(remask: CommandLine) -> None:
    assert remask("results", "list").code == 1
    assert not remask.store.exists()


@pytest.mark.parametrize(
    "command",
    [
        ("run", *QUICK, "--workers", "1", "--output"),
        ("results", "export", "--format", "json"),
        ("report",),
    ],
    ids=lambda command: command[0],
)
def test_an_output_can_be_a_pipe(
    stored: CommandLine, tmp_path: Path, command: tuple[str, ...]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reading:
        read = reading.submit(pipe.read_text)
        answer = stored(*command, str(pipe))
        assert answer.code == 0, answer
        assert "split-" in read.result(timeout=30)
    assert pipe.is_fifo()


def test_a_folder_as_an_output_is_refused_before_anything_is_trained(
    remask: CommandLine, tmp_path: Path
) -> None:
    answer = remask("run", *QUICK, "--output", str(tmp_path))
    assert answer.code == 1
    assert f"cannot write {tmp_path}: it is a folder" in answer.text
    assert remask("results", "list").out.strip() == "No trial matches."
