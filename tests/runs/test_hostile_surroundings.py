"""Unlucky surroundings and absurd wishes: each gets a sentence, not a traceback, and no harm."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from remask.experiments.train import describe_failure
from remask.machine import _free_in_group, lacks_memory, write_bytes
from remask.store import Store
from tests.command_line import QUICK, CommandLine
from tests.store.store_samples import make_records


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "results.db"
    with Store(path) as opened:
        opened.add_all(make_records(2))
    return path


def run(
    *args: str, before: str = "", redirects: str = "", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """`remask ARGS` in a shell, after another command and with redirections."""
    command = [sys.executable, "-m", "remask", *args]
    done = subprocess.run(
        ["sh", "-c", f'{before} "$@" {redirects}', "sh", *command],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert b"Traceback" not in done.stderr, done.stderr
    assert b"bug in remask" not in done.stderr, done.stderr
    return done


@pytest.mark.processes
@pytest.mark.parametrize(
    ("redirects", "environment", "code", "said"),
    [
        ("", {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, 0, "70.38 ?0.00"),
        ("<&- 2>&-", {}, 0, "70.38 ±0.00"),
        (">/dev/full", {}, 1, "No space left on device"),
    ],
    ids=["no unicode", "closed streams", "full disk"],
)
def test_a_table_is_printed_wherever_it_can_be(
    store: Path, redirects: str, environment: dict[str, str], code: int, said: str
) -> None:
    done = run("results", "list", "--store", str(store), redirects=redirects, **environment)
    assert done.returncode == code, done.stderr
    assert said in (done.stdout + done.stderr).decode()


@pytest.mark.processes
def test_without_a_home_folder_a_store_must_be_named() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become a user who does not exist")
    script = """
import os, sys
import decimal, remask.cli.results  # while they can still be read
from remask.__main__ import main
os.setuid(54321)
sys.argv = ["remask", "results", "list"]
main()
"""
    unset = ("HOME", "XDG_DATA_HOME", "REMASK_STORE")
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={name: value for name, value in os.environ.items() if name not in unset},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "error: there is no home folder to keep results in" in done.stderr


@pytest.mark.processes
def test_a_store_whose_path_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.db")
    done = run("run", *QUICK, "--store", path)
    assert done.returncode == 1
    assert b"is not valid UTF-8" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.processes
def test_a_file_whose_name_is_not_utf8_can_be_written(store: Path, tmp_path: Path) -> None:
    target = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")
    done = run("results", "export", target, "--store", str(store), PYTHONIOENCODING="utf-8:strict")
    assert done.returncode == 0, done.stderr
    assert Path(target).is_file()


def test_a_config_file_that_never_ends_is_refused(remask: CommandLine, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    for path in ("/dev/zero", str(tmp_path / "pipe.toml")):
        answer = remask("run", "--config", path)
        assert answer.code == 1
        assert "not a regular file" in answer.text


@pytest.mark.thorough
def test_a_run_of_too_many_trials_is_refused_at_once(remask: CommandLine, tmp_path: Path) -> None:
    answer = remask("run", "--trials", "60000", "--mask", "none,-1", "--epochs", "1")
    assert answer.code == 1
    assert "120,000 trials; a run has at most 100,000" in answer.text
    grid = tmp_path / "grid.toml"
    rates = ", ".join(f"{number + 1}e-6" for number in range(1_000))
    for trials, found in ((1_000_000, "1,000,000"), (60_000, "120,000")):
        grid.write_text(f"trials = {trials}\nepochs = 1\n[grid]\nlr = [{rates}]\n")
        answer = remask("sweep", str(grid))
        assert answer.code == 1
        assert f"{found} trials; a run has at most 100,000" in answer.text


def test_what_runs_out_of_memory_is_known_by_its_words() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert lacks_memory(caught.value)
    assert lacks_memory(MemoryError())
    assert lacks_memory(OSError(12, "Cannot allocate memory"))
    assert not lacks_memory(RuntimeError("shapes do not fit"))
    assert "out of memory" in describe_failure(caught.value)


def test_a_net_that_no_machine_has_room_for_is_refused_with_the_figure(remask: CommandLine) -> None:
    answer = remask("run", *QUICK, "--net", "resnet18:9999")
    assert answer.code == 1
    assert "resnet18:9999 with a buffer of 20 takes 1.1 TB of memory" in answer.text
    assert "are free" in answer.text
    assert not list(remask.store.parent.glob("*.runs/*"))


def test_a_control_group_has_left_what_is_not_used_and_what_can_be_taken_back(
    tmp_path: Path,
) -> None:
    assert _free_in_group(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    assert _free_in_group(tmp_path) == 300_000
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 50000\n")
    assert _free_in_group(tmp_path) == 350_000
    (tmp_path / "memory.max").write_text("max\n")
    assert _free_in_group(tmp_path) is None


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="limits are kept on Linux alone")
def test_a_buffer_beyond_a_memory_limit_is_reported_in_a_sentence(tmp_path: Path) -> None:
    large = ("--buffer", "10000000", "--limit", "5", "--trials", "1", "--workers", "1")
    command = ("run", *QUICK, *large, "--store", str(tmp_path / "results.db"))
    done = run(*command, before="ulimit -v 2000000;")
    assert done.returncode == 1, done
    assert b"out of memory; use a smaller buffer" in done.stderr


@pytest.mark.parametrize(
    ("size", "text"), [(999, "1 kB"), (1.5e6, "1.5 MB"), (2.34e10, "23 GB"), (4.4e12, "4.4 TB")]
)
def test_sizes_are_written_for_people(size: float, text: str) -> None:
    assert write_bytes(size) == text
