"""Small data that a learner can tell apart, and what of a learner must come out bit by bit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remask.learner import Learner
from remask.learner.manifest import read_manifest

Arrays = tuple[npt.NDArray[Any], list[str]]
SHAPE = (1, 6, 6)


def blobs(
    names: Sequence[str], each: int = 30, seed: int = 0, shape: tuple[int, ...] = SHAPE
) -> Arrays:
    """Noisy images of classes, each around a centre that its name decides, in mixed order."""
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
    """A learner that has learnt some classes, visit by visit."""
    learner = create(folder, **changes)
    for number, names in enumerate(visits):
        learner.learn(*blobs(names, seed=number), name=f"visit-{number}")
    return learner


def bits(folder: Path) -> dict[str, Any]:
    """All that a learner is, but for when it became so and how long that took."""
    manifest = read_manifest(folder).model_dump(mode="json", exclude={"generation", "remask"})
    for visit in manifest["history"]:
        del visit["finished"], visit["seconds"]
    for learnt in (manifest, *manifest["earlier"]):
        learnt.pop("generation", None)
        for note in (learnt["state"], *(segment["file"] for segment in learnt["segments"])):
            if note is not None:
                del note["name"]
    return dict(manifest)
