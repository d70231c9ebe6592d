"""Damaged and hostile folders are refused with a message; nothing outside of them is touched."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from remask import files
from remask.files import _HOST
from remask.learner import Learner, LearnerError
from remask.learner.folder import LearnerFolder
from remask.learner.manifest import Manifest
from tests.learner.samples import bits, blobs, files_with, interrupted, samples_of, taught

VISIT = ("cat", "dog")
VISITS = (["ant", "bee"], ["bee", "eel"])


def begin_visit(path: Path) -> None:
    interrupted(Learner.open(path), VISIT, name="second")


def refuse_to_remove(file: Path) -> None:
    raise PermissionError(13, "Permission denied")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("before") / "a"
    taught(path, *VISITS, method="derpp")
    return path


@pytest.fixture
def path(tmp_path: Path, before: Path) -> Path:
    return Path(shutil.copytree(before, tmp_path / "a"))


@pytest.mark.parametrize("with_note", [False, True])
def test_a_link_in_place_of_the_visit_is_not_followed(
    path: Path, tmp_path: Path, with_note: bool
) -> None:
    other = tmp_path / "thesis"
    (other / "checkpoints").mkdir(parents=True)
    (other / "visit.json").write_text("{}" if with_note else "my thesis")
    (other / "checkpoints" / "checkpoint-00000001.safetensors").write_text("data")
    everything = {p: p.read_bytes() for p in other.rglob("*") if p.is_file()}
    (path / "visit").symlink_to(other)
    learner = Learner.open(path)
    assert learner.predict(blobs(["ant"])[0])
    with pytest.raises(LearnerError, match="is damaged"):
        learner.learn(*blobs(VISIT, seed=1), name="second")
    learner.forget("eel")
    assert not (path / "visit").is_symlink()
    (path / "visit").symlink_to(other)
    learner.learn(*blobs(VISIT, seed=1), name="second", discard=True)
    assert {p: p.read_bytes() for p in other.rglob("*") if p.is_file()} == everything


def test_files_with_samples_can_only_be_read_by_their_owner(path: Path, tmp_path: Path) -> None:
    def mode(file: Path) -> int:
        return stat.S_IMODE(file.stat().st_mode)

    begin_visit(path)
    assert mode(path / "visit") == 0o700
    for file in (*path.glob("samples-*"), path / "visit" / "inputs.npy", path / "visit/visit.json"):
        assert mode(file) == 0o600, file
    taught(tmp_path / "b", ["ant", "bee"], method="icarl", mask=None)
    for file in (tmp_path / "b").glob("s*-*"):  # its state has the exemplars
        assert mode(file) == 0o600, file
    assert all(mode(file) != 0o600 for file in path.glob("state-*"))


@pytest.mark.parametrize(
    "owner", [f"{_HOST}-{os.getpid()}", "0123abcd-1"], ids=["this process", "another host"]
)
def test_forgetting_removes_temporary_files_of_any_process(path: Path, owner: str) -> None:
    eels = samples_of("eel", VISITS)
    learner = Learner.open(path)
    (path / f".samples-000009.npy.{owner}-{'0' * 16}.tmp").write_bytes(eels[0])
    learner.forget("eel")
    assert not files_with(path, eels)


def test_forgetting_with_an_unfinished_visit_that_cannot_be_removed_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_visit(path)
    learner = Learner.open(path)
    monkeypatch.setattr(files, "_remove", refuse_to_remove)
    with pytest.raises(LearnerError, match="eel is forgotten, but its samples may be left"):
        learner.forget("eel")
    assert "eel" not in learner.classes


def test_an_interrupted_forgetting_is_finished_by_the_next_reader_or_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eels = samples_of("eel", VISITS)
    learner = Learner.open(path)
    with monkeypatch.context() as patch:
        patch.setattr(LearnerFolder, "remove_leftovers", lambda folder: [])
        commit = LearnerFolder.commit

        def killed(folder: LearnerFolder, manifest: Manifest) -> list[Path]:
            commit(folder, manifest)
            raise KeyboardInterrupt

        patch.setattr(LearnerFolder, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            learner.forget("eel")
    assert files_with(path, eels)
    with monkeypatch.context() as patch:
        patch.setattr(files, "_remove", refuse_to_remove)
        with pytest.warns(UserWarning, match=r"left over .* may hold samples of a class"):
            reader = Learner.open(path)
        assert "eel" not in reader.classes
    assert files_with(path, eels)
    Learner.open(path)
    assert not files_with(path, eels)


def test_a_visit_continues_although_a_likelihood_is_not_finite(tmp_path: Path) -> None:
    taught(tmp_path / "a", ["ant", "bee"], method="icarl", mask=None)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    learner = Learner.open(tmp_path / "a")
    interrupted(learner, ["cat"], step=7, name="second")
    for name in "ab":
        visit = Learner.open(tmp_path / name).learn(*blobs(["cat"], seed=1), name="second")
        assert visit.epochs == 3
    assert bits(tmp_path / "a") == bits(tmp_path / "b")
