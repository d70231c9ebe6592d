"""`remask doctor`: what is wrong is found, named, and left as it is."""

import json
import re
import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from remask.engine.checkpoints import CheckpointFolder, damage_of
from remask.experiments.jobs import Run, plan_run
from remask.files import Lock
from remask.store import Store
from tests.command_line import CommandLine
from tests.store.store_samples import make_config, make_record


@pytest.fixture
def healthy(remask: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A store with one trial, and no data."""
    monkeypatch.setenv("REMASK_DATA", str(tmp_path / "data"))
    remask.add(make_record(make_config(seed=0)))
    return remask


def _symptoms(remask: CommandLine, *, code: int) -> dict[str, list[dict[str, Any]]]:
    answer = remask("doctor", "--json")
    assert answer.code == code, answer
    found = json.loads(answer.out)
    assert found["sound"] == (code == 0)
    by_subject: dict[str, list[dict[str, Any]]] = {}
    for symptom in found["symptoms"]:
        by_subject.setdefault(symptom["subject"], []).append(symptom)
    return by_subject


def _stopped_run(remask: CommandLine, checkpoints: int) -> tuple[Run, list[Path]]:
    configs = [make_config(seed=5)]
    with Store(remask.store) as store:
        run = plan_run(store, configs, workers=1, largest_stack=lambda _: 10, again=False)
    assert run is not None
    folder = run.checkpoints(run.jobs[0])
    saving = CheckpointFolder(folder, identity=run.jobs[0].name)
    saving.load({})
    if not checkpoints:
        return run, []
    for step in range(checkpoints):
        saving.save({"w": torch.arange(9.0)}, {"step": step}, {})
    return run, sorted(folder.iterdir())


def test_a_healthy_installation_is_not_changed(healthy: CommandLine, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    answer = healthy.succeed("doctor")
    for subject in ("versions", "devices", "threads", "disk", "data", "store", "extras"):
        assert f" {subject} " in answer.text
    assert f"1 trials in {healthy.store}" in answer.text
    assert "remask data fetch mnist" in answer.text
    assert "wrong" not in answer.out
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_missing_store_is_not_wrong_and_is_not_created(remask: CommandLine) -> None:
    (store,) = _symptoms(remask, code=0)["store"]
    assert "does not exist yet" in store["text"]
    assert not remask.store.exists()


def test_damage_is_named_with_what_to_do(healthy: CommandLine, tmp_path: Path) -> None:
    with sqlite3.connect(healthy.store) as connection:
        connection.execute("UPDATE trials SET details = '[]'")
    connection.close()
    mnist = tmp_path / "data" / "mnist"
    mnist.mkdir(parents=True)
    (mnist / "manifest.json").write_bytes(b"damaged")
    found = _symptoms(healthy, code=1)
    (wrong,) = [symptom for symptom in found["store"] if symptom["state"] == "wrong"]
    assert "remask results delete --hash" in wrong["text"]
    (wrong,) = [symptom for symptom in found["data"] if symptom["state"] == "wrong"]
    assert wrong["remedy"].startswith("`remask data fetch mnist --force`")


def test_a_stopped_run_can_be_resumed_and_one_at_work_is_named(healthy: CommandLine) -> None:
    run, _ = _stopped_run(healthy, checkpoints=1)
    (stopped,) = _symptoms(healthy, code=0)["runs"]
    assert stopped["remedy"].startswith(f"`remask resume {run.name}`")
    with Lock(run.lock):
        (working,) = _symptoms(healthy, code=0)["runs"]
    assert f"{run.name} is run by another call in this process" in working["text"]


def test_broken_checkpoints_are_found_and_one_whole_is_enough(healthy: CommandLine) -> None:
    _, (older, newer) = _stopped_run(healthy, checkpoints=2)
    assert "checkpoints" not in _symptoms(healthy, code=0)
    data = bytearray(newer.read_bytes())
    data[-1] ^= 1
    newer.write_bytes(data)
    assert damage_of(newer) == "its checksum is wrong"
    (note,) = _symptoms(healthy, code=0)["checkpoints"]
    assert (note["state"], str(newer) in note["text"]) == ("note", True)
    older.write_bytes(older.read_bytes()[:40])
    both = _symptoms(healthy, code=1)["checkpoints"]
    assert [symptom["state"] for symptom in both] == ["wrong", "wrong"]
    assert f"remove {older}" in both[0]["remedy"]


def test_every_extra_for_users_is_looked_for(healthy: CommandLine, repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].keys() - {"dev", "docs", "integrations", "test"}
    (symptom,) = _symptoms(healthy, code=0)["extras"]
    assert extras == {*re.findall(r"[a-z]+", symptom["text"])} - {"installed", "not"}


def test_a_plan_that_cannot_be_read_is_wrong(healthy: CommandLine) -> None:
    plan = healthy.store.with_name("results.db.runs") / "0123456789ab" / "run.json"
    plan.parent.mkdir(parents=True)
    plan.write_text("{}")
    (run,) = _symptoms(healthy, code=1)["runs"]
    assert "Move the folder" in run["text"]
