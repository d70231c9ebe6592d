"""What runs on a cluster are made of, without a cluster; and one small cluster, if Ray is there."""

import os
import socket
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remask as public
from remask.data.benchmark import load_benchmark
from remask.engine import TrialStack
from remask.errors import MissingPackageError, SettingsError
from remask.experiments import RunOptions, ray_cluster
from remask.experiments.ray_cluster import ClusterError, Ray, places_on
from remask.experiments.ray_node import (
    CheckpointMirror,
    as_arrays,
    as_benchmark,
    own_files,
    scratch_folder,
    write_files,
)
from remask.store import Store
from tests.command_line import CommandLine
from tests.engine.stack_samples import finish, measured
from tests.runs.run_samples import run_here, shown, small


def test_without_ray_the_message_says_what_to_install(
    remask: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    answer = remask("run", "--on", "ray")
    assert answer.code == 1
    assert "needs Ray, which is not installed: pip install ray" in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    ("node", "cpus", "gpus", "places"),
    [
        ({"CPU": 8.0}, 1, 0, 8),
        ({"CPU": 8.0}, 3, 0, 2),
        ({"CPU": 8.0}, 0.5, 0, 16),
        ({"CPU": 64.0, "GPU": 8.0}, 1, 1, 8),
        ({"CPU": 4.0, "GPU": 8.0}, 1, 1, 4),
        ({"CPU": 64.0, "GPU": 8.0}, 1, 2, 4),
        ({"CPU": 64.0, "GPU": 2.0}, 1, 0.4, 4),  # 2 on each GPU: a fifth of both is left
        ({"CPU": 64.0}, 1, 0.5, 0),
        ({}, 1, 0, 0),  # a head that trains nothing
    ],
)
def test_a_node_has_places_for_as_many_stacks_as_fit(
    node: dict[str, float], cpus: float, gpus: float, places: int
) -> None:
    assert places_on(node, cpus, gpus) == places


def test_a_benchmark_in_memory_that_can_only_be_read_trains_to_the_same_bits() -> None:
    benchmark = load_benchmark("split-digits", limit=10)
    arrays = as_arrays(benchmark)
    assert arrays["train_inputs"].base is not None, "a view, and no copy"
    sealed = {
        name: _read_only(value) if isinstance(value, np.ndarray) else value
        for name, value in arrays.items()
    }
    configs = small(2, method="derpp", limit=10)
    there, here = (
        measured(finish(TrialStack(configs, data))) for data in (as_benchmark(sealed), benchmark)
    )
    assert there == here


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    copy = array.copy()
    copy.setflags(write=False)
    return copy


def test_own_files_are_those_that_the_names_need_and_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(
        tmp_path,
        {
            "my_room/__init__.py": b"",
            "my_room/method.py": b"import torch\nfrom my_room.parts import helper\n",
            "my_room/parts.py": b"import my_other\n",
            "my_other.py": b"",
            "not_needed.py": b"",
        },
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (config,) = small(1)
    own = {"method": "my_room.method:Method", "net": "my_other:net"}
    assert own_files(config) == {}
    assert set(own_files(config.model_copy(update=own))) == {
        "my_room/__init__.py",
        "my_room/method.py",
        "my_room/parts.py",
        "my_other.py",
    }


@pytest.mark.parametrize("place", ["memory://mirrored/job", "mirrored/job"])
def test_a_mirror_has_what_the_folder_has(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mirror = CheckpointMirror(place)
    here, there = tmp_path / "here", tmp_path / "there"
    first, second, third = (f"checkpoint-{number:08d}.safetensors" for number in (1, 2, 3))
    mirror.fetch(there)
    assert not any(there.iterdir())
    write_files(here, {first: b"one", second: b"two", "lock": b""})
    mirror.push(here)
    (here / first).unlink()
    write_files(here, {third: b"three"})
    mirror.push(here)
    mirror.fetch(there)
    assert {p.name: p.read_bytes() for p in there.iterdir()} == {second: b"two", third: b"three"}
    mirror.remove()
    mirror.remove()
    mirror.fetch(tmp_path / "empty")
    assert not any((tmp_path / "empty").iterdir())


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("s3://bucket/folder", MissingPackageError, "pip install s3fs"),
        ("nonsense://folder", SettingsError, "nonsense"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_what_to_do(
    address: str, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(error, match=message):
        CheckpointMirror(address)


@pytest.mark.parametrize("source", ["given", "environment", "file"])
def test_an_address_without_a_cluster_is_refused_within_seconds(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_cluster, "_SECONDS_TO_ANSWER", 0.2)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    if source == "environment":
        monkeypatch.setenv("RAY_ADDRESS", address)
    if source == "file":
        write_files(tmp_path, {"ray/ray_current_cluster": address.encode()})
    executor = Ray(address if source == "given" else None)
    with pytest.raises(ClusterError, match=f"no Ray cluster answers at {address}") as refused:
        executor.at_once(RunOptions())
    assert "--address local" in str(refused.value)
    assert {"environment": "$RAY_ADDRESS", "file": str(tmp_path)}.get(source, "") in str(
        refused.value
    )


def test_code_is_importable_in_a_scratch_folder_and_gone_afterwards() -> None:
    before = Path.cwd(), list(sys.path)
    for version in (b"1", b"2"):
        with scratch_folder({"shipped_part.py": b"VERSION = " + version}) as folder:
            assert int(version) == import_module("shipped_part").VERSION
            assert Path.cwd().parent == folder
        assert "shipped_part" not in sys.modules
        assert (Path.cwd(), sys.path) == before
        assert not folder.exists()


def test_the_scratch_folders_of_dead_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    abandoned = tmp_path / f"remask-stack-{os.getuid()}-{1 << 30}-abandoned"
    write_files(abandoned, {"code/method.py": b""})
    with scratch_folder({}) as living, scratch_folder({}):
        assert not abandoned.exists()
        assert living.exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.processes
def test_a_run_without_a_cluster_imports_nothing_of_ray(tmp_path: Path) -> None:
    script = f"""
import sys
import remask
settings = dict(trials=1, epochs=1, limit=10, workers=1, progress=False)
remask.run("split-digits", "er", store={str(tmp_path / "results.db")!r}, **settings)
from remask.cli import main
sys.argv = ["remask", "run", "--benchmark", "split-digits", "--limit", "10", "--dry-run"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
ray = [name for name in sys.modules if f"{{name}}.".startswith(("ray.", "remask.experiments.ray_"))]
assert not ray, ray
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.processes
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_cluster_of_this_machine_alone_gives_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # no token in the user's home
    configs = small(1)
    with Store(tmp_path / "results.db") as store:
        public.run(configs=configs, store=store, progress=False, executor=Ray("local"))
        assert shown(store) == run_here(tmp_path, configs)
