import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from remask import TrialStack
from tests.command_line import QUICK, CommandLine
from tests.store.store_samples import make_config, make_record


@pytest.fixture
def stored(remask: CommandLine) -> CommandLine:
    """The command line with three stored trials."""
    for seed, (method, mask) in enumerate([("derpp", None), ("derpp", -1.0), ("er", None)]):
        remask.add(make_record(make_config(seed=seed, method=method, mask=mask)))
    return remask


def test_a_run_prints_a_table_and_stores_every_trial(remask: CommandLine) -> None:
    shown = remask.succeed("run", *QUICK, "--mask", "none,-inf", "--workers", "1").out
    assert "MSER(-inf)" in shown
    assert "Class-IL A_T" in shown
    ran = [(record.config.mask, record.seed) for record in remask.records()]
    assert ran == [(None, 0), (None, 1), (-math.inf, 0), (-math.inf, 1)]
    assert list(remask.store.with_name("results.db.runs").glob("*/")) == []
    assert "no unfinished run" in remask.refusal("resume")


def test_a_diverging_trial_is_reported_and_left_out_of_the_mean(remask: CommandLine) -> None:
    answer = remask.succeed("run", *QUICK, "--lr", "1e30", "--workers", "1")
    assert "2 diverged" in answer.out
    assert "ER with seed 1 diverged at step" in answer.err
    assert {record.status for record in remask.records()} == {"diverged"}


def test_a_stopped_run_with_auto_resumes_to_the_same_result(
    remask: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = ("run", *QUICK, "--limit", "40", "--mask", "auto", "--buffer", "300", "--workers", "1")
    remask.succeed(*auto)
    whole = remask.records()
    run = TrialStack.run

    def stopped(stack: TrialStack) -> object:
        yield from islice(run(stack), 25)
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(TrialStack, "run", stopped)
        assert remask(*auto, "--again").code != 0
    remask.succeed("resume", "--workers", "1")
    for again, before in zip(remask.records(), whole, strict=True):
        assert again.created > before.created
        assert again.choices == before.choices
        assert str(again.class_il) == str(before.class_il)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--method", "drepp"], "did you mean 'derpp'"),
        (["--method", "DER++"], "unknown method 'DER++'; use 'derpp'"),
        (["--method", "MSDER++(-1)"], "use 'derpp', with a mask"),
        (["--benchmark", "split-mnits"], "did you mean 'split-mnist'"),
        (["--mask", "1"], "[-inf, 0]"),
        (["--method", "joint", "--mask", "-inf"], "does not support a mask"),
        (["--method", "mser", "--mask", "none"], "use the method er"),
        (["--method", "sgd", "--buffer", "10"], "has no memory"),
        (["--method", "er", "--alpha", "1"], "alpha"),
        (["--method", "gem", "--buffer", "4"], "`buffer >= 5` for 5 tasks and 10 classes"),
        (["--trials", "0"], "trials = 0: must be at least 1"),
        (["--trials", "x"], "'x' must be a whole number"),
        (["--lr", "0.1,0.2"], "use `remask sweep`"),
        (["--benchmark", "no_such_module:nope"], "no module 'no_such_module'"),
        (["--lr", "0"], "greater than 0"),
        (["--device", "abacus"], "abacus"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
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
        ("lr = [0.1, 0.2]", "lr = [0.1, 0.2]: must be a number; for several values, use `sweep`"),
        ("mask = [true]", "mask"),
        ("buffer = []", "comma-separated"),
    ],
)
def test_an_invalid_config_file_is_refused(
    remask: CommandLine, tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "run.toml").write_text(text)
    assert expected in remask.refusal("run", "--config", str(tmp_path / "run.toml"))


def test_filters_choose_what_is_listed_and_exported(stored: CommandLine, tmp_path: Path) -> None:
    chosen = stored.records()[0].config_hash[:12]
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
        stored.succeed("results", "export", str(target), "--method", "MSDER++")
        assert target.stat().st_size > 100
    assert (tmp_path / "results.csv").read_text().count("MSDER++(-1)") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["list", "--method", "MSDRE++"], "unknown method 'MSDRE++'; did you mean 'MSDER++'?"),
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
    assert expected in stored.refusal("results", *arguments)


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
        stored.succeed(*command, str(pipe))
        assert "split-" in read.result(timeout=30)
    assert pipe.is_fifo()


def test_a_folder_as_output_is_refused_before_training(remask: CommandLine, tmp_path: Path) -> None:
    message = remask.refusal("run", *QUICK, "--output", str(tmp_path))
    assert f"cannot write {tmp_path}: it is a folder" in message
    assert remask("results", "list").out.strip() == "No trial is finished yet."
