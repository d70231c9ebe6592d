"""Stopped or killed at any moment, a run ends bit-identical to one that was left alone."""

import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import remask
from remask.config import TrialConfig
from remask.experiments.configs import trial_configs
from remask.methods import METHODS
from remask.store import TrialRecord
from tests.command_line import start
from tests.runs.disturbances import rows
from tests.runs.killing import run_uninterrupted, run_with_kills


def _configs(method: str, trials: int, epochs: int) -> list[TrialConfig]:
    """A stack; of several trials, masked and unmasked ones."""
    masks = [None, -1.0, float("-inf")] if METHODS[method].unmaskable is None else [None]
    configs = [
        config
        for seed in range(trials)
        for config in trial_configs(
            benchmark="split-digits",
            method=method,
            masks=[masks[seed % len(masks)]],
            seeds=[seed],
            overrides={"epochs": epochs},
        )
    ]
    assert len(configs) == trials
    return configs


@pytest.mark.processes
@pytest.mark.parametrize(("method", "trials"), [("er", 1), ("derpp", 3)])
def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path, method: str, trials: int) -> None:
    configs = _configs(method, trials, epochs=2)
    whole, seconds = run_uninterrupted(configs, tmp_path / "whole")
    source = random.Random(1)
    bits, killed = run_with_kills(
        configs, tmp_path / "killed", kills=3, seconds=seconds, random_source=source
    )
    assert killed >= 1
    assert bits == whole


@pytest.mark.faults
@pytest.mark.parametrize("trials", [1, 4])
@pytest.mark.parametrize("method", sorted(n for n, kind in METHODS.items() if kind.trains_net))
def test_every_method_survives_many_kills(tmp_path: Path, method: str, trials: int) -> None:
    configs = _configs(method, trials, epochs=12)
    whole, seconds = run_uninterrupted(configs, tmp_path / "whole")
    source = random.Random(f"{method} {trials}")
    bits, killed = run_with_kills(
        configs, tmp_path / "killed", kills=10, seconds=seconds, random_source=source
    )
    print(f"kills survived: {killed} ({method}, {trials} stacked)")
    assert killed >= 3
    assert bits == whole


CONFIGS = trial_configs(
    benchmark="split-digits",
    method="derpp",
    masks=[None, -1.0],
    seeds=range(2),
    overrides={"epochs": 10},
)
RUN = (
    "run", "--benchmark", "split-digits", "--method", "derpp", "--mask", "none,-1",
    "--trials", "2", "--epochs", "10", "--checkpoint-seconds", "0.1",
)  # fmt: skip


def _wait_for_checkpoint(store: Path, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 60
    while not any(store.parent.glob("*.runs/*/*/checkpoint-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _stop_at_a_checkpoint(command: Sequence[str], store: Path) -> None:
    process = start(*command, store=store)
    _wait_for_checkpoint(store, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[TrialRecord]:
    """What an undisturbed run stores."""
    store = tmp_path_factory.mktemp("whole") / "results.db"
    remask.run(configs=CONFIGS, store=store, workers=1, progress=False)
    return rows(store)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("workers", "number", "code"), [("1", signal.SIGTERM, 143), ("2", signal.SIGINT, 130)]
)
def test_a_signal_saves_and_the_same_command_goes_on(
    tmp_path: Path, whole: list[TrialRecord], workers: str, number: signal.Signals, code: int
) -> None:
    store = tmp_path / "results.db"
    process = start(*RUN, "--workers", workers, store=store)
    _wait_for_checkpoint(store, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "everything is saved" in " ".join(err.split())
    assert "Traceback" not in err
    again = start(*RUN, "--workers", workers, store=store)
    _, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert rows(store) == whole


@pytest.mark.processes
def test_kill_9_of_everything_loses_nothing_and_resume_goes_on(
    tmp_path: Path, whole: list[TrialRecord]
) -> None:
    store = tmp_path / "results.db"
    process = start(*RUN, "--workers", "2", store=store)
    _wait_for_checkpoint(store, process)
    process.kill()
    process.communicate(timeout=60)
    # The orphaned workers end by themselves; the new ones wait for them to let go.
    resumed = start("resume", "--workers", "2", store=store)
    _, err = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, err
    assert rows(store) == whole


@pytest.mark.faults
def test_a_sweep_that_is_stopped_goes_on_like_any_run(
    tmp_path: Path, whole: list[TrialRecord]
) -> None:
    store, grid = tmp_path / "results.db", tmp_path / "grid.toml"
    grid.write_text("method = 'derpp'\ntrials = 2\nepochs = 10\n[grid]\nmask = ['none', -1]\n")
    sweep = ("sweep", str(grid), "--checkpoint-seconds", "0.1", "--workers", "2")
    _stop_at_a_checkpoint(sweep, store)
    again = start(*sweep, store=store)
    _, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert rows(store) == whole


@pytest.mark.data
def test_a_reproduction_that_is_stopped_goes_on_like_any_run(tmp_path: Path) -> None:
    command = ("reproduce", "confidence", "--method", "er", "--trials", "2", "--workers", "2")
    stores = tmp_path / "left alone.db", tmp_path / "stopped.db"
    _stop_at_a_checkpoint((*command, "--checkpoint-seconds", "0.1"), stores[1])
    for store in stores:
        process = start(*command, store=store)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert "MSER(-inf)" in out
    assert len(rows(stores[0])) == 4
    assert rows(stores[0]) == rows(stores[1])


@pytest.mark.processes
def test_a_second_process_on_the_same_run_is_told_who_has_it(tmp_path: Path) -> None:
    store = tmp_path / "results.db"
    first = start(*RUN, "--workers", "1", store=store)
    _wait_for_checkpoint(store, first)
    first.send_signal(signal.SIGSTOP)  # it holds the run, and cannot finish it meanwhile
    second = start(*RUN, "--workers", "1", store=store)
    _, err = second.communicate(timeout=60)
    first.send_signal(signal.SIGINT)
    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=60)
    assert first.returncode == 130
    assert second.returncode == 1
    assert f"process {first.pid}" in " ".join(err.split())


@pytest.mark.faults
@pytest.mark.processes
def test_a_second_ctrl_c_exits_at_once(tmp_path: Path) -> None:
    store = tmp_path / "results.db"
    process = start(*RUN, "--workers", "1", store=store)
    _wait_for_checkpoint(store, process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
