"""Loggers get each event once, and a run continues when one fails."""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from remask.errors import RemaskError, SettingsError
from remask.experiments import RunOptions
from remask.loggers import Log, Logger, TrialInfo, open_logger

ONE, OTHER = TrialInfo("one", {"method": "er", "mask": "-inf"}), TrialInfo("other")
KINDS = [
    "csv",
    "jsonl",
    pytest.param("tensorboard", marks=pytest.mark.integrations),
    pytest.param("mlflow", marks=pytest.mark.integrations),
]


class Remembering(Logger):
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def on_step(self, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]) -> None:
        self.calls.append(("step", trial.name, step, task, dict(values)))

    def on_end(self, trial: TrialInfo, step: int, values: Mapping[str, float]) -> None:
        self.calls.append(("end", trial.name, step, dict(values)))


class Failing(Logger):
    def on_step(self, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]) -> None:
        raise OSError(28, "No space left on device")


def write(log: Log, last: int) -> None:
    """Log a run of `last` steps; a task has ten."""
    for step in range(1, last + 1):
        for trial in (ONE, OTHER):
            log.on_event(
                "step", trial, step, 1 + (step - 1) // 10, {"loss": 1 / step, "loss/replay": 0.5}
            )
            if step % 10 == 0:
                log.on_event("task", trial, step, step // 10, {"class_il/mean": float(step)})
    log.flush()


def losses(kind: str, path: Path) -> Iterator[tuple[str, int, float]]:
    """Trial, step and loss of everything that a log has."""
    if kind == "csv":
        for row in csv.DictReader(path.read_text().splitlines()):
            if row["event"] == "step" and row["name"] == "loss":
                yield row["trial"], int(row["step"]), float(row["value"])
    elif kind == "jsonl":
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry["event"] == "step":
                yield entry["trial"], entry["step"], entry["values"]["loss"]
    elif kind == "tensorboard":
        reader: Any = import_module("tensorboard.backend.event_processing.event_accumulator")
        for trial in ("one", "other"):
            events = reader.EventAccumulator(str(path / trial), size_guidance={"scalars": 0})
            events.Reload()
            yield from ((trial, found.step, found.value) for found in events.Scalars("loss"))
    else:
        client: Any = import_module("mlflow").MlflowClient(tracking_uri=path.resolve().as_uri())
        (experiment,) = client.search_experiments(filter_string="name = 'remask'")
        for run in client.search_runs([experiment.experiment_id]):
            for found in client.get_metric_history(run.info.run_id, "loss"):
                yield run.info.run_name, found.step, found.value


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_does_not_log_points_again(kind: str, tmp_path: Path) -> None:
    path, notes = tmp_path / "log", list[str]()
    for last in (13, 25):
        with Log([f"{kind}:{path}"], notes.append) as log:
            write(log, last)
            log.on_event("end", ONE, last, 0, {"class_il_A_T": 80.0})
    assert notes == []
    found = sorted(losses(kind, path))
    assert [(trial, step) for trial, step, _ in found] == [
        (trial, step) for trial in ("one", "other") for step in range(1, 26)
    ]
    assert all(value == pytest.approx(1 / step) for _, step, value in found)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_line_that_was_cut_short_is_written_again(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Log([f"{kind}:{path}"], pytest.fail) as log:
        write(log, 20)
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with Log([f"{kind}:{path}"], pytest.fail) as log:
        write(log, 20)
    rows = path.read_text().splitlines()
    assert len(rows) == len({*rows})
    assert {*rows} == {*whole.decode().splitlines()}
    path.write_bytes(whole.splitlines()[0][:-3])
    with Log([f"{kind}:{path}"], pytest.fail) as log:
        write(log, 20)
    assert path.read_bytes() == whole


def test_json_lines_have_the_settings_of_a_trial_once_and_no_nan(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for last in (1, 2):
        with Log([f"jsonl:{path}"], pytest.fail) as log:
            log.on_event("step", ONE, last, 1, {"loss": math.nan})
    _, first, *others = (json.loads(line) for line in path.read_text().splitlines())
    assert first["settings"] == {"method": "er", "mask": "-inf"}
    assert [entry["values"] for entry in others] == [{"loss": None}] * 2


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize(
    "content",
    [
        b"my thesis\nand more of it\n",
        b'{"trial": "my trial", "event": "my thesis"}',
        b"\xff\xfe",
        b"trial,event,step,task,name,value\n\n",
        b'{"event": "log", "version": 1}\nmy thesis\n',
    ],
)
def test_a_file_of_another_kind_is_unchanged(kind: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_bytes(content)
    with pytest.raises(RemaskError, match=r"is not a remask log .* Nothing was written to it"):
        open_logger(f"{kind}:{path}")
    assert path.read_bytes() == content


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_runs_that_start_on_one_new_file_write_one_header(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    place = f"{kind}:{path}"
    with Log([place], pytest.fail) as one, Log([place], pytest.fail) as other:
        one.on_event("step", ONE, 1, 1, {"loss": 0.5})
        other.on_event("step", OTHER, 1, 1, {"loss": 0.5})
    assert sorted(losses(kind, path)) == [("one", 1, 0.5), ("other", 1, 0.5)]
    assert path.read_text().count("trial,event") == (kind == "csv")


def test_a_logger_that_fails_is_dropped_and_the_others_continue() -> None:
    notes, sound = list[str](), Remembering()
    with Log([Failing(), sound], notes.append) as log:
        write(log, 3)
    assert len(notes) == 1
    assert notes[0].startswith("nothing more is logged to Failing (1): OSError(28")
    assert len(sound.calls) == 6


def test_a_repeated_step_is_logged_once() -> None:
    logger = Remembering()
    with Log([logger], pytest.fail) as log:
        for steps in ((1, 2, 3), (2, 3, 4)):
            for step in steps:
                log.on_event("step", ONE, step, 1, {"loss": float(step)})
        log.on_event("end", ONE, 4, 0, {})
        log.on_event("end", ONE, 4, 0, {})
    assert [call[2] for call in logger.calls] == [1, 2, 3, 4, 4]


@pytest.mark.parametrize("place", ["csv", "csv:", "tensorbord:runs/x", "nonsense", "a b:C"])
def test_an_invalid_place_is_refused(place: str) -> None:
    with pytest.raises(SettingsError, match="is not a place to log to: use csv:FILE, jsonl:FILE"):
        RunOptions(log=[place])
    with pytest.raises(SettingsError, match="not a class derived from"):
        open_logger("collections:Counter")


@pytest.mark.integrations
def test_wandb_has_a_run_per_trial_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    with Log(["wandb:remask-test"], pytest.fail) as log:
        write(log, 12)
        log.on_event("end", ONE, 12, 0, {"class_il_A_T": 80.0})
    kept = list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(kept) == 2
    assert all(path.stat().st_size > 0 for path in kept)
