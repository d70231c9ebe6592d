"""No command replaces a file that remask keeps its results, checkpoints or learners in."""

import sqlite3
from pathlib import Path

import pytest
import torch

from remask import Learner
from remask.engine.checkpoints import CheckpointFolder, checkpoints_in
from remask.files import DurabilityError
from remask.learner.manifest import MANIFEST
from remask.outputs import check_output, write_output
from tests.command_line import QUICK, CommandLine
from tests.learner.samples import taught
from tests.store.store_samples import make_record

KINDS = ("database", "checkpoint", "manifest", "model")


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learners") / "learner"
    taught(folder, ["a", "b"])
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, learner: Path) -> dict[str, Path]:
    """A real file of each kind that must stay."""
    folder = tmp_path_factory.mktemp("kept")
    database = folder / "other.sqlite"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE mine (a)")
        connection.commit()
    connection.close()
    checkpoints = CheckpointFolder(folder, "run")
    checkpoints.load({})
    checkpoints.save({"weights": torch.ones(2)}, {"step": 1}, {})
    return {
        "database": database,
        "checkpoint": checkpoints_in(folder)[1],
        "manifest": learner / MANIFEST,
        "model": next(learner.glob("*.safetensors")),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_never_replaces_a_file_to_keep(kept: dict[str, Path], kind: str) -> None:
    path = kept[kind]
    before = path.read_bytes()
    for write in (check_output, lambda path: write_output(path, b"new")):
        with pytest.raises(DurabilityError, match=r"It was not changed\. Name another file"):
            write(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [
        ("report", "FILE"),
        ("results", "export", "FILE", "--format", "json"),
        ("run", *QUICK, "--output", "FILE"),
        ("history", "LEARNER", "--page", "FILE"),
        ("export", "LEARNER", "--to", "safetensors", "--output", "FILE"),
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("kind", ["link", "manifest"])
def test_no_command_replaces_a_file_to_keep(
    remask: CommandLine,
    kept: dict[str, Path],
    learner: Path,
    tmp_path: Path,
    command: tuple[str, ...],
    kind: str,
) -> None:
    remask.add(make_record())
    if kind == "link":
        file = tmp_path / "link.html"
        file.symlink_to(remask.store)
    else:
        file = kept[kind]
    before = file.read_bytes()
    places = {"FILE": str(file), "LEARNER": str(learner)}
    message = remask.refusal(*(places.get(part, part) for part in command))
    assert "It was not changed. Name another file." in message
    assert file.read_bytes() == before
    assert remask.records() == [make_record()]


def test_the_store_to_wait_for_is_not_written_before_it_is_there(remask: CommandLine) -> None:
    message = remask.refusal("report", str(remask.store), "--watch")
    assert "read or written by the same command" in message
    assert not remask.store.exists()


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_settings_files_are_not_replaced(remask: CommandLine, tmp_path: Path, command: str) -> None:
    file = tmp_path / "settings.toml"
    text = "trials = 1\n" + "[grid]\nbuffer = [20, 50]\n" * (command == "sweep")
    file.write_text(text)
    given = ("--config", str(file)) if command == "run" else (str(file),)
    message = remask.refusal(command, *given, "--output", str(file))
    assert "read or written by the same command" in message
    assert file.read_text() == text


def test_an_export_may_be_written_again(learner: Path, tmp_path: Path) -> None:
    model = Learner.open(learner)
    model.export(tmp_path / "model.safetensors", to="safetensors")
    first = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(b"an older export")
    model.export(tmp_path / "model.safetensors", to="safetensors")
    assert (tmp_path / "model.safetensors").read_bytes() == first


def test_only_the_owner_can_read_a_checkpoint(kept: dict[str, Path]) -> None:
    assert kept["checkpoint"].stat().st_mode & 0o777 == 0o600
