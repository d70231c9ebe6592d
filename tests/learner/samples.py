"""Small data that is easy to learn, cached learners, and comparisons of learners bit by bit."""

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remask.learner import Learner, Progress
from remask.learner.manifest import read_manifest

Arrays = tuple[npt.NDArray[Any], list[str]]
SHAPE = (1, 6, 6)
VISITS = (["ant", "bee"], ["cat", "dog"], ["bee", "eel"])
_cache = tempfile.TemporaryDirectory()
_taught: dict[str, Path] = {}


class StopLearningError(Exception):
    """Raised by a caller to interrupt a visit."""


def blobs(
    names: Sequence[str], each: int = 30, seed: int = 0, shape: tuple[int, ...] = SHAPE
) -> Arrays:
    """Noisy images of classes, each around a centre that depends on its name, shuffled."""
    random = np.random.default_rng(seed)
    labels = [name for name in names for _ in range(each)]
    labels = [labels[row] for row in random.permutation(len(labels))]
    centres = {
        name: np.random.default_rng(list(name.encode())).integers(60, 200, shape) for name in names
    }
    noise = random.integers(-25, 26, (len(labels), *shape))
    inputs = np.stack([centres[name] for name in labels]) + noise
    return inputs.astype(np.uint8), labels


def create(folder: Path, **changes: Any) -> Learner:
    """A learner whose visits take a moment."""
    settings: dict[str, Any] = {"net": "mlp", "encoder": "none", "memory": 40}
    settings |= {"method": "er", "mask": -1.0, "lr": 0.1, "epochs": 3}
    return Learner.create(folder, **(settings | changes))


def taught(folder: Path, *visits: Sequence[str], **changes: Any) -> Learner:
    """A learner that has learnt some classes, visit by visit; trained once per test session."""
    key = repr((visits, sorted(changes.items())))
    if key not in _taught:
        path = Path(_cache.name, str(len(_taught)))
        learner = create(path, **changes)
        for number, names in enumerate(visits):
            learner.learn(*blobs(names, seed=number), name=f"visit-{number}")
        _taught[key] = path
    shutil.copytree(_taught[key], folder)
    return Learner.open(folder)


def interrupted(learner: Learner, names: Sequence[str], step: int = 2, **changes: Any) -> None:
    """Start a visit, and interrupt it after some steps."""

    def stop(progress: Progress) -> None:
        if progress.step == step:
            raise StopLearningError

    settings: dict[str, Any] = {"name": "interrupted", "seed": 1, **changes}
    try:
        data = blobs(names, seed=settings.pop("seed"))
        learner.learn(*data, on_progress=stop, **settings)
    except StopLearningError:
        return
    raise AssertionError("the visit was not interrupted")


def bits(folder: Path) -> dict[str, Any]:
    """All of a learner except times."""
    manifest = read_manifest(folder).model_dump(mode="json", exclude={"generation", "remask"})
    for visit in manifest["history"]:
        del visit["finished"], visit["seconds"]
    for learnt in (manifest, *manifest["earlier"]):
        learnt.pop("generation", None)
        for note in (learnt["state"], learnt["samples"]):
            if note is not None:
                del note["name"]
    return dict(manifest)


def samples_of(name: str, visits: Sequence[Sequence[str]] = VISITS) -> list[bytes]:
    """The bytes of all samples of a class in some visits."""
    return [
        sample.tobytes()
        for number, names in enumerate(visits)
        for sample, own in zip(*blobs(names, seed=number), strict=True)
        if own == name
    ]


def files_with(folder: Path, samples: Iterable[bytes]) -> list[str]:
    """The files below a folder that contain a sample."""
    contents = {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    samples = list(samples)
    return [name for name, data in contents.items() if any(sample in data for sample in samples)]
