"""Damaged and hostile folders are refused with a message; nothing outside of them is touched."""

import hashlib
import json
import os
import random
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from remask import files
from remask.engine.checkpoints import CheckpointFolder
from remask.errors import RemaskError
from remask.files import _HOST
from remask.learner import Learner, LearnerError
from remask.learner.folder import LearnerFolder
from remask.learner.manifest import MANIFEST, Manifest, read_manifest
from remask.learner.staging import VisitFolder
from remask.learner.summary import summarise
from tests.learner.samples import bits, blobs, files_with, interrupted, samples_of, taught

VISIT = ("cat", "dog")
VISITS = (["ant", "bee"], ["bee", "eel"])


def begin_visit(path: Path) -> None:
    interrupted(Learner.open(path), VISIT, name="second")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("before") / "a"
    taught(path, *VISITS, method="derpp")
    return path


@pytest.fixture
def path(tmp_path: Path, before: Path) -> Path:
    return Path(shutil.copytree(before, tmp_path / "a"))


def digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def reseal(path: Path, name: str, change: Callable[[Any], None]) -> None:
    """Change the content of a sealed file, and make its checksum right again."""
    sealed = json.loads(path.read_text())
    change(sealed[name])
    sealed["sha256"] = digest(sealed[name])
    path.write_text(json.dumps(sealed))


def replaced(**values: Any) -> Callable[[Any], None]:
    return lambda content: content.update(values)


def test_a_changed_bit_or_swapped_labels_of_an_unfinished_visit_are_found(path: Path) -> None:
    begin_visit(path)
    whole = bits(path)
    note = path / "visit" / "visit.json"
    text = note.read_bytes()
    source = random.Random(0)
    for _ in range(15):
        data = bytearray(text)
        data[source.randrange(len(data))] ^= 1 << source.randrange(8)
        if json_of(data) == json_of(text):
            continue
        note.write_bytes(data)
        with pytest.raises(LearnerError, match=r"is damaged.*--discard|newer|older"):
            Learner.open(path).learn(*blobs(VISIT, seed=1), name="second")
    labels = json.loads(text)["visit"]["labels"]
    swapped = text.decode().replace(f"   {labels[0]},", f"   {5 - labels[0]},", 1)
    assert swapped != text.decode()
    note.write_text(swapped)
    with pytest.raises(LearnerError, match=r"is damaged: its checksum is wrong.*--discard"):
        Learner.open(path).learn(*blobs(VISIT, seed=1), name="second")
    assert bits(path) == whole
    Learner.open(path).learn(*blobs(VISIT, seed=1), name="second", discard=True)
    assert not (path / "visit").exists()


def json_of(data: bytes | bytearray) -> object:
    try:
        return json.loads(data)
    except ValueError:
        return None


def test_hostile_notes_of_a_visit_are_refused(path: Path) -> None:
    begin_visit(path)
    file = path / "visit" / "visit.json"
    text = file.read_bytes()
    changes: list[Callable[[Any], None]] = [
        lambda note: note.update(name="a\x1b[2J"),
        lambda note: note["classes"].__setitem__(-1, "\x07"),
        lambda note: note["classes"].__setitem__(0, "yak"),
        lambda note: note["classes"].append("ant"),
        lambda note: note["labels"].__setitem__(0, 2**40),
        lambda note: note["labels"].__setitem__(0, -1),
        lambda note: note["labels"].pop(),
        lambda note: note["data"]["inputs"].update(shape=[1, 6, 7]),
        lambda note: note.update(rows_sha256="0" * 64),
    ]
    for change in changes:
        file.write_bytes(text)
        reseal(file, "visit", change)
        with pytest.raises(LearnerError, match=r"is damaged.*--discard|was started"):
            Learner.open(path).learn(*blobs(VISIT, seed=1), name="second")


def test_hostile_checkpoints_of_a_visit_are_refused(path: Path) -> None:
    begin_visit(path)
    note = VisitFolder(path / "visit").note()
    assert note is not None
    checkpoints = path / "visit" / "checkpoints"
    (file,) = checkpoints.glob("*.safetensors")
    tensors = safetensors.torch.load(file.read_bytes())
    position = json.loads(read_note(file))["position"]
    wrong: list[dict[str, Any]] = [
        {},
        {"measured": 3, "steps": 2, "epochs": 1, "seconds": 1.0},
        {"measured": [["x", 1]], "steps": 2, "epochs": 1, "seconds": 1.0},
        {"measured": [], "steps": "two", "epochs": 1, "seconds": 1.0},
    ]
    for extra in wrong:
        shutil.rmtree(checkpoints)
        folder = CheckpointFolder(checkpoints, f"{note.name} {note.fingerprint}")
        folder.load(tensors)
        folder.save(tensors, position, extra)
        with pytest.raises(LearnerError, match=r"checkpoint of the visit is damaged.*--discard"):
            Learner.open(path).learn(*blobs(VISIT, seed=1), name="second")


def read_note(file: Path) -> str:
    """The JSON in the metadata of a checkpoint, behind its checksum."""
    with safetensors.safe_open(file, "pt") as opened:
        return str(opened.metadata()["remask"][64:])


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
    with pytest.raises(LearnerError, match=r"is a symbolic link.*Remove the link"):
        learner.learn(*blobs(VISIT, seed=1), name="second")
    learner.forget("eel")
    assert not (path / "visit").is_symlink()
    (path / "visit").symlink_to(other)
    learner.learn(*blobs(VISIT, seed=1), name="second", discard=True)
    assert {p: p.read_bytes() for p in other.rglob("*") if p.is_file()} == everything


def test_a_link_within_a_visit_is_not_followed(path: Path, tmp_path: Path) -> None:
    begin_visit(path)
    other = tmp_path / "thesis"
    shutil.copytree(path / "visit" / "checkpoints", other)
    (other / "chapter.txt").write_text("my thesis")
    everything = {p: p.read_bytes() for p in other.rglob("*")}
    shutil.rmtree(path / "visit" / "checkpoints")
    (path / "visit" / "checkpoints").symlink_to(other)
    with pytest.raises(LearnerError, match="is a symbolic link"):
        Learner.open(path).learn(*blobs(VISIT, seed=1), name="second")
    Learner.open(path).forget("eel")
    assert {p: p.read_bytes() for p in other.rglob("*")} == everything


def test_links_in_place_of_files_are_replaced_and_not_written_through(
    path: Path, tmp_path: Path
) -> None:
    manifest = read_manifest(path)
    for name in (MANIFEST, *(note.name for note in manifest.files), "learner.lock.owner.json"):
        target = tmp_path / f"target-{name}"
        if (path / name).exists():
            (path / name).rename(target)
        else:
            target.write_text("my thesis")
        (path / name).symlink_to(target)
    contents = {p: p.read_bytes() for p in tmp_path.glob("target-*")}
    Learner.open(path).learn(*blobs(VISIT, seed=1), name="second")
    Learner.open(path).forget("ant")
    assert {p: p.read_bytes() for p in tmp_path.glob("target-*")} == contents
    assert not (path / MANIFEST).is_symlink()


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


def values(kind: object) -> list[Any]:
    """What a hostile file may have in place of a value."""
    odd: list[Any] = [None, "", "x" * 300, "\x1b[2J", [], {}, -1, 0, 2**31, 2**63, 10**30, 1e308]
    return [value for value in odd if not isinstance(kind, type(value)) or value != kind]


def places(content: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a JSON value has parts."""
    if isinstance(content, dict | list):
        parts = content.items() if isinstance(content, dict) else enumerate(content)
        for key, part in list(parts)[:6]:
            yield (*prefix, key)
            yield from places(part, (*prefix, key))


def use(path: Path) -> None:
    """All that reads a learner: predict, summarise, learn, forget."""
    learner = Learner.open(path)
    learner.predict(blobs(["ant"], each=2)[0])
    str(summarise(path))
    repr(learner)
    for visit in learner.history:
        str(visit)
    learner.checkpoint_seconds = 1e9
    learner.learn(*blobs(["cat"], each=4), name="fuzz")
    learner.forget("cat")


def outcome(path: Path) -> str:
    """Use a learner: "fine", or the message of a refusal, within a second or two."""
    began = time.monotonic()
    try:
        use(path)
        found = "fine"
    except RemaskError as error:
        found = str(error)
    assert time.monotonic() - began < 10, found
    return found


@pytest.mark.parametrize("count", [40, pytest.param(1500, marks=pytest.mark.faults)])
def test_manifests_with_any_value_anywhere_are_refused_or_work(
    tmp_path: Path, before: Path, count: int
) -> None:
    source = random.Random(count)
    content = json.loads((before / MANIFEST).read_text())["learner"]
    everywhere = list(places(content))
    refused = 0
    for number in range(count):
        path = tmp_path / str(number)
        shutil.copytree(before, path)
        place = source.choice(everywhere)

        def change(learner: Any, place: tuple[Any, ...] = place) -> None:
            for key in place[:-1]:
                learner = learner[key]
            if source.random() < 0.15:
                del learner[place[-1]]
            else:
                learner[place[-1]] = source.choice(values(learner[place[-1]]))

        reseal(path / MANIFEST, "learner", change)
        message = outcome(path)
        refused += message != "fine"
        shutil.rmtree(path)
    assert refused > count // 2


def test_a_head_of_billions_of_outputs_takes_no_time(path: Path) -> None:
    for outputs in (2**31, 2**62, 11, -1):
        reseal(path / MANIFEST, "learner", replaced(outputs=outputs))
        began = time.monotonic()
        with pytest.raises(LearnerError, match=r"is damaged: .*outputs"):
            Learner.open(path)
        assert time.monotonic() - began < 1


def mutated(name: str, tensor: torch.Tensor, source: random.Random) -> torch.Tensor | None:
    """A tensor with other values, type or shape; None: not there."""
    match source.randrange(6):
        case 0:
            return None
        case 1:
            return tensor.to(torch.float32 if tensor.dtype != torch.float32 else torch.int64)
        case 2:
            return tensor.flatten()[:-1].clone()
        case 3:
            return torch.zeros(*tensor.shape, 2, dtype=tensor.dtype)
        case 4 if tensor.dtype == torch.int64 and tensor.numel():
            changed = tensor.clone()
            changed.view(-1)[source.randrange(tensor.numel())] = source.choice(
                [-(2**62), -2, 7, 2**31, 2**62]
            )
            return changed
        case _:
            return torch.empty(0, dtype=tensor.dtype)


@pytest.mark.parametrize("method", ["derpp", "er_ema", "icarl"])
@pytest.mark.parametrize("count", [10, pytest.param(400, marks=pytest.mark.faults)])
def test_states_with_any_tensor_are_refused_or_work(
    tmp_path: Path, method: str, count: int
) -> None:
    kept = taught(tmp_path / "whole", ["ant", "bee"], ["eel"], method=method, mask=None)
    note = read_manifest(tmp_path / "whole").state
    assert note is not None
    tensors = kept._folder.read_tensors(note)
    source = random.Random(count)
    for number in range(count):
        path = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", path)
        name = source.choice(sorted(tensors))
        changed = mutated(name, tensors[name], source)
        others = {own: tensor for own, tensor in tensors.items() if own != name}
        data = safetensors.torch.save(others if changed is None else {**others, name: changed})
        (path / note.name).write_bytes(data)
        new = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        reseal(path / MANIFEST, "learner", replaced(state={"name": note.name, **new}))
        outcome(path)
        shutil.rmtree(path)


@pytest.mark.parametrize(
    "data",
    [
        b"\x93NUMPY\x01\x00\x10\x00{'descr': '|u1'(\n" + bytes(400),
        b"\x93NUMPY\x02\x00\x10\x00\x00\x00L(((((((((((((((" + bytes(400),
        b"\x93NUMPY\x01\x00\xff\xff",
        b"not an array at all, but as long as one" * 5,
    ],
)
def test_a_hostile_file_of_samples_is_refused(path: Path, data: bytes) -> None:
    note = read_manifest(path).samples
    assert note is not None
    (path / note.name).write_bytes(data)
    new = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    reseal(path / MANIFEST, "learner", lambda each: each["samples"].update(new))
    with pytest.raises(LearnerError, match="is damaged"):
        Learner.open(path).learn(*blobs(VISIT), name="second")


@pytest.mark.parametrize(
    "owner", [f"{_HOST}-{os.getpid()}", "0123abcd-1"], ids=["this process", "another host"]
)
def test_forgetting_removes_temporary_files_of_any_process(path: Path, owner: str) -> None:
    eels = samples_of("eel", VISITS)
    learner = Learner.open(path)
    (path / f".samples-000009.npy.{owner}-{'0' * 16}.tmp").write_bytes(eels[0])
    learner.forget("eel")
    assert not files_with(path, eels)


def test_forgetting_looks_into_every_file_below_the_folder(path: Path) -> None:
    (path / "copies").mkdir()
    (path / "copies" / "mine.bin").write_bytes(b"".join(samples_of("eel", VISITS)))
    (path / "copies" / "harmless.txt").write_text("nothing")
    with pytest.raises(LearnerError, match=r"eel is forgotten, but .*mine\.bin.* Remove it"):
        Learner.open(path).forget("eel")
    assert "eel" not in Learner.open(path).classes


def test_forgetting_with_an_unfinished_visit_that_cannot_be_removed_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_visit(path)
    remove = files._remove

    def refuse(file: Path) -> None:
        if file.name == "inputs.npy":
            raise PermissionError(13, "Permission denied")
        remove(file)

    learner = Learner.open(path)
    monkeypatch.setattr(files, "_remove", refuse)
    with pytest.raises(LearnerError, match=r"eel is forgotten, but .*inputs\.npy|visit.*removed"):
        learner.forget("eel")


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

        def refuse(file: Path) -> None:
            raise PermissionError(13, "Permission denied")

        patch.setattr(files, "_remove", refuse)
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
