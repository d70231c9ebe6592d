"""Files made to do harm: none of them runs code, takes much memory, or is believed."""

import io
import json
import pickle
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import torch

import remask
from remask.engine import checkpoints
from remask.engine.checkpoints import CheckpointError
from remask.files import Lock, LockHeldError
from tests.payload import Payload
from tests.runs.faults import reopened, state

pytestmark = pytest.mark.usefixtures("nothing_is_executed")

DATA = bytes(31)  # as long as the tensors of state()
ENTRIES = {
    "net/weight": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]},
    "memory/inputs": {"dtype": "U8", "shape": [7], "data_offsets": [24, 31]},
}
NOTE = {
    "format": 1,
    "identity": "run",
    "position": {"step": 3},
    "extra": {"version": 3},
}
DEEP = "[" * 100_000 + "]" * 100_000


def raw(header: bytes, data: bytes = DATA, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def sealed(entries: str, note: str = json.dumps(NOTE), data: bytes = DATA) -> bytes:
    """A file whose checksums are right: its maker knew how to compute them."""
    line = json.dumps("0" * 64 + note)
    whole = raw(f'{{"__metadata__":{{"remask":{line}}},{entries[1:]}'.encode(), data)
    return whole.replace(b"0" * 64, checkpoints._digest(whole), 1)


def entries(name: str = "net/weight", **changes: object) -> str:
    return json.dumps({**ENTRIES, name: {**ENTRIES["net/weight"], **changes}})


def note(**changes: object) -> str:
    return json.dumps({**NOTE, **changes})


def zip_bomb() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(4):
            archive.writestr(f"data{number}.pkl", bytes(8 << 20))
    return packed.getvalue()


def saved_by_torch() -> bytes:
    packed = io.BytesIO()
    torch.save({"net/weight": Payload()}, packed)
    return packed.getvalue()


NOT_SAFETENSORS = {
    **{f"pickle, protocol {p}": pickle.dumps(Payload(), p) for p in (0, 2, 5)},
    "file of torch.save": saved_by_torch(),
    "zip bomb": zip_bomb(),
    "nothing": b"",
    "text": b"import os; os.system('touch executed')",
    "header length 2**63": raw(b"{}", length=2**63),
    "header of 100 MB": raw(b" " * 100, length=100_000_000),
    "header without metadata": raw(json.dumps(ENTRIES).encode()),
    "header not UTF-8": raw(b'{"\xff\xfe":{}}'),
    "header nested deeply": raw(DEEP.encode()),
    "wrong checksum": sealed(json.dumps(ENTRIES)).replace(b"run", b"ruN"),
}

SEALED = {
    "a hole": sealed(entries(data_offsets=[4, 24])),
    "offsets beyond the end": sealed(entries(data_offsets=[0, 2**40])),
    "offsets that wrap": sealed(entries(data_offsets=[2**64 - 24, 2**64])),
    "huge shape": sealed(entries(shape=[2**62, 4])),
    "shape whose size wraps to the right one": sealed(entries(shape=[2**63, 2, 3, 2])),
    "unknown dtype": sealed(entries(dtype="PICKLE")),
    "a tensor twice": sealed(entries()[:-1] + "," + entries(dtype="I32")[1:]),
    "a tensor too few": sealed(json.dumps({"net/weight": ENTRIES["net/weight"]})),
    "metadata twice": sealed('{"__metadata__":{"remask":"x"},' + entries()[1:]),
    "bytes behind the tensors": sealed(entries(), data=bytes(32)),
    "note nested deeply": sealed(entries(), DEEP),
    "note with deep extra": sealed(entries(), note(extra={"x": 0}).replace("0", DEEP)),
    "note with a huge format": sealed(entries(), note(format=10**4000)),
    "note of format 2": sealed(entries(), note(format=2)),
    "note with a text as position": sealed(entries(), note(position={"step": "3"})),
    "note with a steering identity": sealed(entries(), note(identity="\x1b[2J" * 10**4)),
    "note with NaN": sealed(entries(), note(position={"step": float("nan")})),
}


def test_the_payload_would_do_harm_if_it_were_unpickled() -> None:
    pickle.loads(pickle.dumps(Payload())).close()
    assert [path.name for path in Path.cwd().iterdir()] == ["executed"]
    Path("executed").unlink()  # every other test here must end with an empty folder


def test_a_file_made_by_hand_is_accepted_if_nothing_is_wrong_with_it(tmp_path: Path) -> None:
    """Otherwise the files below might be refused for another reason than theirs."""
    (tmp_path / "checkpoint-00000001.safetensors").write_bytes(sealed(json.dumps(ENTRIES)))
    found = reopened(tmp_path).load(state(0))
    assert found is not None
    assert torch.equal(found.tensors["net/weight"], torch.zeros(3, 2))
    assert found.position == {"step": 3}


@pytest.mark.parametrize("data", [*NOT_SAFETENSORS.values(), *SEALED.values()],
                         ids=[*NOT_SAFETENSORS, *SEALED])  # fmt: skip
def test_a_malicious_checkpoint_is_refused_without_taking_memory_or_removing_anything(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "checkpoint-00000009.safetensors"
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(CheckpointError) as caught:
        reopened(tmp_path).load(state(0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    assert str(path) in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2000
    assert path.read_bytes() == data


_RUNS_CODE = re.compile(
    r"^\s*(?:import|from) (?:pickle|cPickle|dill|cloudpickle|joblib|shelve|marshal)\b"
    r"|(?<![.\w])(?:eval|exec|__import__|torch\.save|yaml\.load)\("
    r"|\.extract(?:all)?\(|read_pickle|np\.load\((?!.*allow_pickle=False)"
    r"|(?<![.\w])torch\.load\((?!.*weights_only=True)",
    re.MULTILINE,
)


def test_no_source_file_can_run_what_it_reads() -> None:
    sources = list(Path(remask.__file__).parent.rglob("*.py"))
    assert len(sources) > 100
    found = [
        (path.name, danger.strip())
        for path in sources
        for danger in _RUNS_CODE.findall(path.read_text("utf-8"))
    ]
    assert found == [("published.py", "import pickle")]  # whose unpickler allows two names alone


OWNERS = {
    "pickle": pickle.dumps(Payload()),
    "nested deeply": b"[" * 30_000 + b"]" * 30_000,  # within the size that is read
    "other types": b'{"pid": "1", "host": 2, "command": [], "since": {}}',
    "kill everything": b'{"pid": -1, "host": "h", "command": "c", "since": 0}',
    "steering characters": b'{"pid": 5, "host": "\\u001b[2J", "command": "\\u0007", "since": 0}',
    "huge": b'{"pid": 5, "command": "' + bytes(1 << 17),
}


@pytest.mark.parametrize("owner", OWNERS.values(), ids=OWNERS)
def test_a_malicious_note_beside_a_lock_is_harmless(tmp_path: Path, owner: bytes) -> None:
    (tmp_path / "lock.owner.json").write_bytes(owner)
    with Lock(tmp_path / "lock"):
        (tmp_path / "lock.owner.json").write_bytes(owner)
        with pytest.raises(LockHeldError) as caught, Lock(tmp_path / "lock"):
            pass
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
