"""Trials in other files: exports for other programs, imports from JSON, other stores."""

import csv
import importlib
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError

from remask.config import TrialConfig
from remask.errors import UnknownNameError, unknown
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
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
Preferred = Literal["ours", "theirs"]
_MEASURED = (
    "status", "diverged_at", "class_il", "task_il", "validation_class_il", "validation_task_il",
    "confidence", "curve", "choices",
)  # fmt: skip
_MOST_NAMED = 5


def export(records: Iterable[TrialRecord], format: str, target: AnyPath) -> int:  # noqa: A002
    """Write trials to the file `target` as `csv`, `json`, `parquet`, `latex` or `latex-validation`.

    csv, parquet: one row per trial, with its config and all metrics. json: whole records, accuracy
    matrices included. latex: a booktabs table, mean ± population std per config, of the test set;
    latex-validation: also with the accuracies on held-out training data.

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
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
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
    types = column_types()
    config = {
        name: value if value is None or isinstance(value, types[name]) else str(value)
        for name, value in record.config
    }
    config["weights"] = ", ".join(f"{name}={value}" for name, value in record.config.weights)
    found = {
        **record.model_dump(mode="json", include=types.keys() - config.keys()),
        **{"config_hash": record.config_hash, "name": record.system},
        **config,
        **_metrics(record),
    }
    return {name: found[name] for name in types}


def _metrics(record: TrialRecord) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in scores(record).items()}


def _plain_type(annotation: Any) -> type:
    """The type of a config's field in a table; a mask is a number, though it may be "auto"."""
    union = get_origin(annotation) in (Union, UnionType)
    options = [
        option
        for option in (get_args(annotation) if union else (annotation,))
        if option is not NoneType and get_origin(option) is not Literal
    ]
    return options[0] if len(options) == 1 and options[0] in (int, float, bool) else str


def _csv(records: Iterable[TrialRecord]) -> Iterator[bytes]:
    columns = list(column_types())
    yield _csv_line(columns)
    for record in records:
        row = flat_row(record)
        if row["mask"] is None:
            row["mask"] = "none"  # an empty field would mean "unknown"
        yield _csv_line([_no_formula(value) for value in row.values()])


def _csv_line(values: list[Any]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()


def _no_formula(value: Any) -> Any:
    """Mark text that a spreadsheet would evaluate as text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


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
    types = column_types()
    place = list(types).index("mask")
    kind, masks, tables = types.pop("mask"), [], []
    schema = arrow.schema([(name, kinds[kind]) for name, kind in types.items()])
    rows = map(flat_row, records)
    while batch := list(islice(rows, _ROWS_AT_ONCE)):
        masks += [row.pop("mask") for row in batch]
        tables.append(arrow.Table.from_pylist(batch, schema=schema))
    if any(isinstance(mask, str) for mask in masks):  # a column has one type
        kind, masks = str, [None if mask is None else str(mask) for mask in masks]
    table = arrow.concat_tables(tables) if tables else schema.empty_table()
    table = table.add_column(place, "mask", arrow.array(masks, kinds[kind]))
    content = io.BytesIO()
    parquet.write_table(table, content)
    yield content.getvalue()


def _latex(records: Iterable[TrialRecord], *, validation: bool = False) -> Iterator[bytes]:
    cells = summarise(map(summary_of, records))
    yield latex_table(cells, validation=validation).encode()


_WRITERS: dict[str, Callable[[Iterable[TrialRecord]], Iterator[bytes]]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
    "latex": _latex,
    "latex-validation": partial(_latex, validation=True),
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


def merge(store: Store, other: AnyPath, *, prefer: Preferred | None = None) -> Merged:
    """Add the trials of another store to this one, all or, if this raises, none.

    The other store's trials stay as they are. A trial in both must have the same result in both,
    unless `prefer` names the store whose result to keep; a failed trial is replaced by one that did
    not fail. Raises StoreError.
    """
    other = Path(other)
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
