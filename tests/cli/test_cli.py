import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remask import __version__
from remask.results import Store
from tests.command_line import QUICK, CommandLine
from tests.results.store_samples import make_config, make_record


@pytest.mark.processes
def test_a_run_prints_a_table_and_stores_every_trial(remask: CommandLine) -> None:
    answer = remask("run", *QUICK, "--method", "er", "--mask", "none,-inf", "--workers", "1")
    assert answer.code == 0, answer.err
    assert "MSER(-inf)" in answer.out
    assert "Class-IL A_T" in answer.out
    with Store(remask.store) as store:
        assert sorted((r.config.mask is None, r.seed) for r in store.records()) == [
            (False, 0), (False, 1), (True, 0), (True, 1),
        ]  # fmt: skip


def test_a_trial_that_the_store_has_is_not_run_again(remask: CommandLine) -> None:
    remask("run", *QUICK, "--workers", "1")
    with Store(remask.store) as store:
        before = list(store.records())
    answer = remask("run", *QUICK, "--workers", "1", "--trials", "3")
    assert answer.code == 0
    with Store(remask.store) as store:
        after = {r.seed: r for r in store.records()}
    assert [after[0], after[1]] == before
    assert len(after) == 3
    assert "already" in remask("run", *QUICK, "--workers", "1").out


def test_again_runs_once_more_and_replaces(remask: CommandLine) -> None:
    remask("run", *QUICK, "--workers", "1")
    with Store(remask.store) as store:
        before = list(store.records())
    assert remask("run", *QUICK, "--workers", "1", "--again").code == 0
    with Store(remask.store) as store:
        after = list(store.records())
    assert [r.class_il for r in after] == [r.class_il for r in before]
    assert all(a.created > b.created for a, b in zip(after, before, strict=True))


@pytest.mark.processes
def test_two_workers_give_what_one_gives(remask: CommandLine, tmp_path: Path) -> None:
    quick = ("run", *QUICK, "--method", "derpp", "--mask", "none,-1")
    assert remask(*quick, "--workers", "1").code == 0
    assert remask(*quick, "--workers", "2", "--store", str(tmp_path / "two.db")).code == 0
    with Store(remask.store) as one, Store(tmp_path / "two.db") as two:
        left, right = list(one.records()), list(two.records())
    assert [r.config for r in left] == [r.config for r in right]
    assert [r.class_il for r in left] == [r.class_il for r in right]
    assert [r.confidence for r in left] == [r.confidence for r in right]


def test_nothing_is_left_beside_the_store_when_a_run_is_done(remask: CommandLine) -> None:
    remask("run", *QUICK, "--workers", "1")
    runs = remask.store.with_name("results.db.runs")
    assert list(runs.iterdir()) == []


def test_a_diverging_trial_is_reported_and_left_out_of_the_mean(remask: CommandLine) -> None:
    answer = remask("run", *QUICK, "--lr", "1e30", "--workers", "1")
    assert answer.code == 0
    assert "2 diverged" in answer.out
    assert "ER with seed 1 diverged at step" in answer.err
    with Store(remask.store) as store:
        assert all(r.status == "diverged" and r.diverged_at is not None for r in store.records())


def test_the_json_file_is_strict_json_with_the_whole_matrices(
    remask: CommandLine, tmp_path: Path
) -> None:
    remask("run", *QUICK, "--workers", "1", "--output", str(tmp_path / "r.json"))

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    trials = json.loads((tmp_path / "r.json").read_text(), parse_constant=refuse)
    trials = trials["trials"] if isinstance(trials, dict) else trials
    assert [trial["config"]["seed"] for trial in trials] == [0, 1]
    assert len(trials[0]["class_il"]) == 5
    assert trials[0]["class_il"][0][1] is None


def test_joint_has_no_forgetting(remask: CommandLine) -> None:
    answer = remask("run", *QUICK, "--method", "joint", "--workers", "1")
    assert answer.code == 0, answer.err
    with Store(remask.store) as store:
        record = next(store.records())
    assert all(math.isnan(value) for row in record.class_il[:-1] for value in row)
    assert min(record.class_il[-1]) > 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--method", "drepp"], "did you mean 'derpp'"),
        (["--benchmark", "split-mnits"], "did you mean 'split-mnist'"),
        (["--net", "mpl"], "did you mean 'mlp'"),
        (["--mask", "1"], "[-inf, 0]"),
        (["--mask", "nan"], "[-inf, 0]"),
        (["--mask", "minus one"], "minus one"),
        (["--mask", "none,,-1"], "comma-separated"),
        (["--method", "joint", "--mask", "-inf"], "cannot wear a mask"),
        (["--method", "mser", "--mask", "none"], "--method er"),
        (["--method", "sgd", "--buffer", "10"], "keeps no memory"),
        (["--method", "er", "--alpha", "1"], "alpha"),
        (["--buffer", "0"], "at least 1"),
        (["--buffer", "many"], "whole number"),
        (["--method", "gem", "--buffer", "4"], "with 5 tasks and 10 classes it needs a buffer of"),
        (["--method", "icarl", "--buffer", "9"], "at least 10, not 9"),
        (["--buffer", "99999999999999999999"], "buffer"),
        (["--trials", "0"], "trials"),
        (["--seed", "-1"], "seed"),
        (["--lr", "nan"], "lr"),
        (["--lr", "0"], "greater than 0"),
        (["--batch", "0"], "batch"),
        (["--device", "abacus"], "abacus"),
        (["--device", "cuda:99"], "cuda:99"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
        (["--workers", "0"], "workers = 0"),
        (["--epohcs", "3"], "--epohcs"),
        (["--tasks", "30"], "not to 30"),
        (["--class-order", "1,2"], "class_order"),
        (["--class-order", "x"], "whole number"),
        (["--limit", "0"], "limit"),
        (["--validation", "1"], "validation = 1.0"),
        (["--validation", "-0.1"], "validation = -0.1"),
        (["--validation", "10%"], "--validation"),
        (["--validation", "0.1", "--limit", "1"], "has one training sample"),
        (["--net", "resnet18:wide"], "width"),
        (["--data", "nowhere"], "ships with remask"),
    ],
)
def test_a_mistake_gets_a_message_and_a_non_zero_exit(
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
        ("epochs = 1.5", "epochs = 1.5"),
        ("mask = [true]", "mask"),
        ("[nested]\nlr = 1", "nested"),
        ("buffer = []", "comma-separated"),
        ("\x00", "not valid TOML"),
    ],
)
def test_a_config_file_that_cannot_be_meant_is_refused(
    remask: CommandLine, tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "run.toml").write_text(text)
    answer = remask("run", "--config", str(tmp_path / "run.toml"))
    assert answer.code == 1
    assert expected in answer.text


@pytest.mark.processes
def test_options_win_over_the_config_file(remask: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        "benchmark = 'split-digits'\nmask = ['none', -1]\nepochs = 1\ntrials = 5\nlr = 0.2\n"
    )
    answer = remask("run", "--config", str(tmp_path / "run.toml"), "--trials", "1")
    assert answer.code == 0, answer.err
    with Store(remask.store) as store:
        assert [(r.config.mask, r.config.lr) for r in store.records()] == [(None, 0.2), (-1, 0.2)]


def test_several_benchmarks_are_asked_for_at_once(remask: CommandLine, tmp_path: Path) -> None:
    answer = remask("run", "--benchmark", "split-digits,split-mnits")
    assert answer.code == 1
    assert "did you mean 'split-mnist'" in answer.text
    (tmp_path / "run.toml").write_text("benchmark = ['split-digits', 'split-digits']\nepochs = 1\n")
    answer = remask("run", "--config", str(tmp_path / "run.toml"), "--trials", "1")
    assert answer.code == 0
    with Store(remask.store) as store:
        assert [record.config.benchmark for record in store.records()] == ["split-digits"]


def test_run_options_that_cannot_be_are_refused_before_a_store_is_made(
    remask: CommandLine,
) -> None:
    for wrong in (["--threads", "4097"], ["--checkpoint-seconds", "0"], ["--stack", "-1"]):
        assert remask("run", *QUICK, *wrong).code == 1
    assert not remask.store.exists()


def test_what_there_is_can_be_listed(remask: CommandLine) -> None:
    assert "msderpp" in remask("methods").out
    assert "split-mnist" in remask("benchmarks").out
    assert "digits" in remask("data", "where").out
    assert "ok" in remask("data", "verify", "split-digits").out
    assert "run" in remask("--help").out
    assert remask("--version").out.strip() == __version__


def test_every_filter_works_wherever_results_are_looked_at(remask: CommandLine) -> None:
    with Store(remask.store) as store:
        for seed in range(2):
            store.add(make_record(make_config(seed=seed)))
        chosen = next(iter(store.records()))
    line = remask("results", "list", "--trials", "--hash", f"ffff,{chosen.config_hash[:12]}").out
    assert [word for word in line.split() if word.startswith(chosen.config_hash[:12])]
    assert len(line.splitlines()) == 1
    assert remask("results", "compare", "--status", "failed").out.startswith("Nothing is published")


def test_results_can_be_listed_shown_and_exported(remask: CommandLine, tmp_path: Path) -> None:
    remask("run", *QUICK, "--mask", "none,-1", "--workers", "1")
    assert "MSER(-1)" in remask("results", "list").out
    assert "MSER(-1)" not in remask("results", "list", "--mask", "none").out
    line = remask("results", "list", "--trials", "--seed", "1", "--mask", "-1").out.split()
    shown = json.loads(remask("results", "show", line[0]).out)
    assert (shown["config"]["seed"], shown["config"]["mask"]) == (1, -1.0)
    for ending in ("csv", "json", "parquet", "tex"):
        target = tmp_path / f"results.{ending}"
        assert remask("results", "export", str(target)).code == 0
        assert target.stat().st_size > 100


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["list", "--status", "finishd"], "did you mean 'finished'"),
        (["list", "--buffer", "x"], "buffer"),
        (["list", "--since", "yesterday"], "since"),
        (["list", "--mask", ""], "a mask is"),
        (["compare", "--buffer", "1,x"], "'x' is not valid"),
        (["show", "ffff"], "no trial"),
        (["export", "results.xyz"], "--format"),
        (["export", "results.csv", "--format", "cvs"], "did you mean 'csv'"),
        (["export", "/nowhere/at/all/results.csv"], "/nowhere/at/all"),
    ],
)
def test_asking_wrongly_for_results_gets_a_message(
    remask: CommandLine, arguments: list[str], expected: str
) -> None:
    remask("run", *QUICK, "--trials", "1", "--workers", "1")
    answer = remask("results", *arguments)
    assert answer.code == 1
    assert expected in answer.text
    assert "bug in remask" not in answer.text


def test_a_store_that_is_not_there_is_not_made_by_looking(remask: CommandLine) -> None:
    assert remask("results", "list").code == 1
    assert not remask.store.exists()


def test_a_damaged_store_is_refused_and_left_alone(remask: CommandLine) -> None:
    remask.store.write_bytes(b"not a database at all" * 300)
    answer = remask("run", *QUICK)
    assert answer.code == 1
    assert str(remask.store) in answer.text.replace(" ", "") or "results.db" in answer.text
    assert remask.store.read_bytes() == b"not a database at all" * 300


def test_there_is_nothing_to_resume_after_a_finished_run(remask: CommandLine) -> None:
    remask("run", *QUICK, "--workers", "1")
    answer = remask("resume")
    assert answer.code == 1
    assert "no unfinished run" in answer.text


def test_an_unreadable_plan_is_refused_and_left_alone(remask: CommandLine) -> None:
    remask("run", *QUICK, "--workers", "1")
    folder = remask.store.with_name("results.db.runs") / "0123456789ab"
    folder.mkdir()
    (folder / "run.json").write_text('{"version": 99}')
    answer = remask("resume")
    assert answer.code == 1
    assert "run.json" in answer.text
    assert (folder / "run.json").read_text() == '{"version": 99}'


def test_results_are_found_by_the_names_that_tables_print(
    remask: CommandLine, tmp_path: Path
) -> None:
    with Store(remask.store) as store:
        for seed, (method, mask) in enumerate([("derpp", None), ("derpp", -1.0), ("er", None)]):
            store.add(make_record(make_config(seed=seed, method=method, mask=mask)))
    export = str(tmp_path / "found.csv")
    for command in (["list"], ["list", "--trials"], ["export", export]):
        assert remask("results", *command, "--method", "MSDER++").code == 0
    assert (tmp_path / "found.csv").read_text().count("MSDER++(-1)") == 1
    answer = remask("results", "list", "--method", "MSDRE++")
    assert answer.code == 1
    assert "unknown method 'MSDRE++'; did you mean 'MSDER++'?" in answer.err


@pytest.mark.parametrize(
    "command", [("run", *QUICK, "--output"), ("results", "export", "--format", "json"), ("report",)]
)
def test_what_is_written_into_a_pipe_leaves_it_a_pipe(
    remask: CommandLine, tmp_path: Path, command: tuple[str, ...]
) -> None:
    assert remask("run", *QUICK, "--workers", "1").code == 0
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reading:
        read = reading.submit(pipe.read_text)
        answer = remask(*command, str(pipe))
        assert answer.code == 0, answer
        assert "split-digits" in read.result(timeout=30)
    assert pipe.is_fifo()


def test_a_folder_as_an_output_is_refused_before_anything_is_trained(
    remask: CommandLine, tmp_path: Path
) -> None:
    answer = remask("run", *QUICK, "--output", str(tmp_path))
    assert answer.code == 1
    assert f"cannot write {tmp_path}: it is a folder" in answer.text
    assert remask("results", "list").out.strip() == "No trial matches."
