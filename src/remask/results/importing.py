"""Reading trials back from an exported file."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from remask.durable import AnyPath, read_limited
from remask.results.completing import completed
from remask.results.errors import StoreError
from remask.results.record import TrialRecord

_LARGEST = 1024 * 1024 * 1024


def read_export(path: AnyPath) -> list[TrialRecord]:
    """Read what `export` wrote as JSON, all of it or nothing; raises StoreError."""
    path = Path(path)
    try:
        content = json.loads(read_limited(path, _LARGEST))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from None
    except MemoryError:
        raise StoreError(f"{path} is larger than there is memory. Nothing was imported.") from None
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is no JSON: {error}. Nothing was imported.") from None
    match content:
        case {"trials": list(trials)}:
            return [_record(path, number, trial) for number, trial in enumerate(trials)]
    raise StoreError(f"{path} has no trials: it is not what `remask results export` writes.")


def _record(path: Path, number: int, trial: Any) -> TrialRecord:
    where = f"trial {number} of {path}"
    if not isinstance(trial, dict):
        raise StoreError(f"{where} is no trial. Nothing was imported.")
    values = {name: value for name, value in trial.items() if name not in _DERIVED}
    try:
        record = TrialRecord.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        reason = f"{place}: {first['msg']}"
        raise StoreError(f"{where} is damaged ({reason}). Nothing was imported.") from None
    if record.config_hash != trial.get("config_hash"):
        raise StoreError(
            f"{where} is damaged (its hash is not that of its config). Nothing was imported."
        )
    return record if "tasks" in trial else completed(record)


_DERIVED = ("config_hash", "metrics")  # what an export adds to what is kept
