"""The recipes for clusters: the Slurm script is run on local nodes, the YAML is read."""

import os
import signal
import socket
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from remask.store import Store
from tests.repository import ROOT
from tests.runs.ray_nodes import HOST
from tests.runs.run_samples import run_here, shown, small

pytest.importorskip("ray")
SLURM = ROOT / "examples" / "cluster" / "slurm.sh"
KUBERAY = ROOT / "examples" / "cluster" / "kuberay.yaml"

SRUN = f"""#!{sys.executable}
# In the place of Slurm's: starts the command as often as there are tasks, on this machine.
import subprocess, sys, signal
options = [word for word in sys.argv[1:] if word.startswith("--")]
start = next(i for i, word in enumerate(sys.argv) if i and not word.startswith("--"))
command = sys.argv[start:]
if not any(word.startswith("--node-ip-address") for word in command):
    command.append("--node-ip-address={HOST}")
command += ["--object-store-memory=80000000"]
tasks = int(next(w for w in options if w.startswith("--ntasks=")).partition("=")[2])
started = [subprocess.Popen(command) for _ in range(tasks)]
def end(*_):
    for process in started:
        process.terminate()
signal.signal(signal.SIGTERM, end)
sys.exit(max(process.wait() for process in started))
"""
RAY = f"#!{sys.executable}\nimport sys\nfrom ray.scripts.scripts import main\nsys.exit(main())\n"
REMASK = f"#!{sys.executable}\nfrom remask.cli import main\nmain()\n"


def _commands(folder: Path) -> Path:
    """The programs that the script calls."""
    folder.mkdir()
    for name, source in (("srun", SRUN), ("ray", RAY), ("remask", REMASK)):
        (folder / name).write_text(source)
        (folder / name).chmod(0o755)
    return folder


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        return int(taken.getsockname()[1])


def _sbatch(folder: Path, *args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        ["bash", str(SLURM), *args],
        env={
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),  # where the script makes a token for the cluster
            "SLURM_CPUS_PER_TASK": "1",
            "SLURM_JOB_NUM_NODES": "2",
            "HEAD_IP": HOST,
            "RAY_PORT": str(_free_port()),
            "CHECKPOINTS": str(folder / "checkpoints"),
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.ray
def test_the_slurm_script_starts_ray_stops_when_asked_and_goes_on(tmp_path: Path) -> None:
    _commands(tmp_path / "bin")
    command = (
        *("run", "--benchmark", "split-digits", "--limit", "20", "--epochs", "60", "--trials", "2"),
        *("--checkpoint-seconds", "0.1", "--store", str(tmp_path / "results.db")),
    )
    job = _sbatch(tmp_path, *command)
    try:
        deadline = time.monotonic() + 150
        while not any((tmp_path / "checkpoints").glob("*/checkpoint-*")):
            assert job.poll() is None, job.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        job.send_signal(signal.SIGTERM)  # as Slurm does before the time is up
        _, err = job.communicate(timeout=90)
        assert job.returncode == 128 + signal.SIGTERM
        assert "everything is saved" in " ".join(err.split())
        job = _sbatch(tmp_path, *command)
        out, err = job.communicate(timeout=150)
        assert job.returncode == 0, err
        assert "ER" in out
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
    with Store(tmp_path / "results.db") as store:
        assert shown(store) == run_here(tmp_path, small(2, epochs=60))


def test_the_yaml_for_kubernetes_has_what_an_operator_needs() -> None:
    yaml: Any = pytest.importorskip("yaml")
    job, claim = yaml.safe_load_all(KUBERAY.read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    words = job["spec"]["entrypoint"].split()
    assert words[:2] == ["remask", "reproduce"]
    assert words[words.index("--on") + 1] == "ray"
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["rayVersion"] == import_module("ray").__version__
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    for group in (head, workers):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert container["image"] == head["template"]["spec"]["containers"][0]["image"]
        (mount,) = container["volumeMounts"]
        (volume,) = pod["volumes"]
        assert mount["name"] == volume["name"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        shared = [words[words.index(option) + 1] for option in ("--store", "--checkpoints")]
        assert all(path.startswith(mount["mountPath"] + "/") for path in shared)
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_the_page_shows_the_script_as_it_is() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    assert f"```bash\n{SLURM.read_text()}```" in page
    assert "examples/cluster/kuberay.yaml" in page
