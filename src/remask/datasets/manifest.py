"""The manifest of a prepared dataset: which arrays there are, with their checksums."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remask import durable
from remask.datasets.files import DataError, DataFile

MANIFEST = "manifest.json"
ARRAY_FILE = re.compile(r"[a-z_]+\.[0-9a-f]{16}\.npy")
_FORMAT = 1
_MAX_BYTES = 1 << 16

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class PreparedArray:
    """An array that has been prepared."""

    file: DataFile
    shape: tuple[int, ...]


def write_manifest(
    name: str, source: str, entries: Mapping[str, PreparedArray], folder: Path
) -> None:
    """Write it, whole or not at all."""
    arrays = {
        array: {
            "file": entry.file.name,
            "sha256": entry.file.sha256,
            "size": entry.file.size,
            "shape": list(entry.shape),
        }
        for array, entry in entries.items()
    }
    manifest = {"format": _FORMAT, "dataset": name, "source": source, "arrays": arrays}
    durable.write_atomically(folder / MANIFEST, json.dumps(manifest, indent=2).encode())


def read_manifest(name: str, shapes: Shapes, folder: Path) -> dict[str, PreparedArray] | None:
    """Read what has been prepared; None if nothing has. Raises DataError if it is damaged."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(durable.read_limited(path, _MAX_BYTES))
        if (manifest["format"], manifest["dataset"]) != (_FORMAT, name):
            raise ValueError("it describes something else")
        return {array: _entry(manifest["arrays"][array], shape) for array, shape in shapes.items()}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}. {remedy(name)}") from error


def _entry(entry: Any, shape: tuple[int, ...]) -> PreparedArray:
    match entry:
        case {"file": str(file), "sha256": str(sha256), "size": int(size), "shape": list(found)}:
            # The name becomes a path, so it must not lead elsewhere.
            if ARRAY_FILE.fullmatch(file) and tuple(found) == shape:
                return PreparedArray(DataFile(file, sha256, size), shape)
    raise ValueError(f"no array of shape {list(shape)} in {str(entry)[:200]}")


def remedy(name: str) -> str:
    """Say how to replace what is damaged."""
    return f"`remask data fetch {name} --force` prepares it again."
