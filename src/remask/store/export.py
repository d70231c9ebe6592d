"""Trials in other files: exports for other programs, imports from JSON, other stores."""

import csv
import importlib
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from remask.config import TrialConfig
from remask.errors import UnknownNameError, describe_errors, unknown
from remask.files import AnyPath, DurabilityError, read_limited
from remask.outputs import write_output
from remask.record import TrialRecord
from remask.store.cells import SCORES, scores, summarise, summary_of
from remask.store.database import StoreError
from remask.store.latex import latex_table
from remask.store.store import Store

_LARGEST_IMPORT = 1024 * 1024 * 1024
_ROWS_AT_ONCE = 1000
_DERIVED = ("config_hash", "metrics")  # added by an export, and not part of a record
_FORMULA = re.compile(r"[=+@\t\r]|-(?!inf$|[0-9.]+(e[+-]?[0-9]+)?$)")
"""The beginning of what a spreadsheet would compute; a negative number is no formula."""
PREFERRED = ("ours", "theirs")
_MEASURED = (
    *("status", "diverged_at", "class_il", "task_il", "confidence", "curve", "choices"),
    *("validation_class_il", "validation_task_il"),
)
_MOST_NAMED = 5


def export(records: Iterable[TrialRecord], format: str, target: AnyPath) -> int:  # noqa: A002
    """Write trials to the file `target` as `csv`, `json`, `parquet` or `latex`.

    csv, parquet: one row per trial, with its config and all metrics. json: whole records, accuracy
    matrices included. latex: a booktabs table, mean ± population std per config.

    A regular file is replaced once the new one is complete. A pipe or a device is written into.
    Returns the number of trials; they are not held in memory.
    """
    if format not in _WRITERS:
        raise UnknownNameError(unknown("format", format, _WRITERS))
    written = 0

    def counted() -> Iterator[TrialRecord]:
        nonlocal written
        for record in records:
            written += 1
            yield record

    try:
        write_output(Path(target), _WRITERS[format](counted()))
    except DurabilityError as error:
        raise StoreError(str(error)) from error
    return written


def trial_json(record: TrialRecord) -> dict[str, Any]:
    """A whole record as JSON values, and its metrics; NaN as None."""
    written = record.model_dump(mode="json")
    return {"config_hash": record.config_hash, **written, "metrics": _metrics(record)}


def read_export(path: AnyPath) -> list[TrialRecord]:
    """Read a JSON file from `export`, all of it or nothing; raises StoreError."""
    path = Path(path)
    try:
        content = json.loads(read_limited(path, _LARGEST_IMPORT))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from None
    except MemoryError:
        raise StoreError(f"{path} does not fit into memory. Nothing was imported.") from None
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not JSON: {error}. Nothing was imported.") from None
    match content:
        case {"trials": list(trials)}:
            return [_record(path, number, trial) for number, trial in enumerate(trials)]
    raise StoreError(f"{path} has no trials: `remask results export` did not write it.")


def _record(path: Path, number: int, trial: Any) -> TrialRecord:
    reason = "its hash is not that of its config"
    try:
        record = TrialRecord.model_validate(
            {name: value for name, value in trial.items() if name not in _DERIVED}
        )
        if record.config_hash == trial.get("config_hash"):
            return record
    except AttributeError:
        reason = "it is not an object"
    except ValidationError as error:
        reason = describe_errors(error)
    raise StoreError(f"trial {number} of {path} is damaged ({reason}). Nothing was imported.")


def column_types() -> dict[str, type]:
    """The columns in order, with their types beside None: str, int, float or bool."""
    fields = TrialConfig.model_fields.items()
    return {
        "config_hash": str,
        "name": str,
        **{name: _plain_type(field.annotation) for name, field in fields},
        "status": str,
        "diverged_at": int,
        "error": str,
        **dict.fromkeys(SCORES, float),
        "started": str,
        "seconds": float,
        "flops": float,
        "memory_bytes": int,
        "created": str,
        "commit": str,
    }


def flat_row(record: TrialRecord) -> dict[str, Any]:
    """A trial's values of the columns; None where there is none."""
    types, config = column_types(), dict(record.config)
    config["weights"] = ", ".join(f"{name}={value}" for name, value in record.config.weights)
    config["mask"] = "none" if record.config.mask is None else record.config.mask
    found = {
        **record.model_dump(mode="json", include=types.keys() - config.keys()),
        **{"config_hash": record.config_hash, "name": record.system},
        **config,
        **_metrics(record),
    }
    # Text where a column also has other values: a mask may be a number or a word.
    return {
        name: str(found[name]) if kind is str and found[name] is not None else found[name]
        for name, kind in types.items()
    }


def _metrics(record: TrialRecord) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in scores(record).items()}


def _plain_type(annotation: Any) -> type:
    """The type of a config's field in a table."""
    return next((kind for kind in (int, float, bool) if annotation in (kind, kind | None)), str)


def _csv(records: Iterable[TrialRecord]) -> Iterator[bytes]:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for row in chain([column_types()], (flat_row(record).values() for record in records)):
        # Text that a spreadsheet would compute is marked as text.
        writer.writerow(f"'{v}" if isinstance(v, str) and _FORMULA.match(v) else v for v in row)
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()


def _json(records: Iterable[TrialRecord]) -> Iterator[bytes]:
    yield b'{"trials": ['
    separator = b"\n"
    for record in records:
        yield separator + json.dumps(trial_json(record), allow_nan=False).encode("ascii")
        separator = b",\n"
    yield b"\n]}\n"


def _parquet(records: Iterable[TrialRecord]) -> Iterator[bytes]:
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise StoreError(
            "Parquet needs pyarrow, which is not installed: pip install pyarrow. "
            "csv and json need nothing more."
        ) from error
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in column_types().items()])
    rows = map(flat_row, records)
    content = io.BytesIO()
    with parquet.ParquetWriter(content, schema) as writer:
        while batch := list(islice(rows, _ROWS_AT_ONCE)):
            writer.write_table(arrow.Table.from_pylist(batch, schema=schema))
    yield content.getvalue()


def _latex(records: Iterable[TrialRecord]) -> Iterator[bytes]:
    yield latex_table(summarise(map(summary_of, records))).encode()


_WRITERS: dict[str, Callable[[Iterable[TrialRecord]], Iterator[bytes]]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
    "latex": _latex,
}
FORMATS = tuple(_WRITERS)
"""The formats of `export`."""


@dataclass(frozen=True)
class Merged:
    """The numbers of trials in a merge."""

    read: int
    new: int
    """Trials that the store did not have, or had as failed."""
    replaced: int
    """Trials that replaced another result."""
    kept: int
    """Trials whose other result in the store was kept."""


def merge(store: Store, other: AnyPath, *, prefer: str | None = None) -> Merged:
    """Add the trials of another store to this one, all or, if this raises, none.

    The other store's trials stay as they are. A trial in both must have the same result in both,
    unless `prefer` is `ours` or `theirs`, whose result to keep; a failed trial is replaced by one
    that did not fail. Raises StoreError.
    """
    other = Path(other)
    if prefer not in (None, *PREFERRED):
        raise UnknownNameError(unknown("store to prefer", prefer, PREFERRED))
    if other.exists() and other.samefile(store.path):
        raise StoreError(f"{other} is the store itself: there is nothing to merge.")
    read = 0
    differing: list[TrialRecord] = []

    def replaces(mine: TrialRecord, theirs: TrialRecord) -> bool:
        same = all(getattr(mine, name) == getattr(theirs, name) for name in _MEASURED)
        if same or theirs.status == "failed":
            return False
        differing.append(theirs)
        return prefer == "theirs"

    def all_or_none() -> Iterator[TrialRecord]:
        nonlocal read
        with Store(other, create=False) as source:
            for record in source.checked():
                read += 1
                yield record
        if differing and prefer is None:  # within the transaction, so nothing is written
            raise StoreError(_refusal(differing, store.path, other))

    written = store.add_all(all_or_none(), replace=replaces)
    replaced = len(differing) if prefer == "theirs" else 0
    return Merged(read, written - replaced, replaced, len(differing) - replaced)


def _refusal(differing: list[TrialRecord], ours: Path, theirs: Path) -> str:
    named = [
        f"{record.config_hash[:12]} ({record.system} on {record.config.benchmark}, buffer "
        f"{record.config.buffer}, seed {record.seed})"
        for record in differing[:_MOST_NAMED]
    ]
    if len(differing) > _MOST_NAMED:
        named.append(f"{len(differing) - _MOST_NAMED} more")
    return (
        f"{ours} and {theirs} have different results of the same trials: {', '.join(named)}. "
        f"Nothing was merged. Choose with --prefer ours or --prefer theirs. Another kind of "
        f"processor, or another version of your own code, may be the reason."
    )
