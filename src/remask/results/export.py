"""Trials in files that other programs read, and back from one of them."""

import csv
import importlib
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError

from remask.config import TrialConfig
from remask.durable import AnyPath, DurabilityError, read_limited, write_output
from remask.names import UnknownNameError, unknown
from remask.record import TrialRecord
from remask.results.errors import StoreError
from remask.results.latex import latex_table
from remask.results.summary import summarise_listed
from remask.results.trial_scores import SCORES, scores
from remask.results.trial_summary import summary_of

_LARGEST_IMPORT = 1024 * 1024 * 1024
_ROWS_AT_ONCE = 1000
_DERIVED = ("config_hash", "metrics")  # what an export adds to what is kept
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def export(records: Iterable[TrialRecord], format: str, target: AnyPath) -> int:  # noqa: A002
    """Write trials to the file `target` as `csv`, `json`, `parquet`, `latex` or `latex-validation`.

    csv, parquet: one row per trial, with its config and all metrics. json: everything the store
    knows, accuracy matrices included. latex: a booktabs table, mean ± population std per config, of
    the test set; latex-validation: with the accuracies on held-out training data beside it.

    A file appears whole or not at all; one that was there before stays until then. A pipe or a
    device is written into. Returns how many trials were written; they are not held in memory.
    """
    _check_format(format)
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


def write(records: Iterable[TrialRecord], format: str, stream: IO[bytes]) -> None:  # noqa: A002
    """Write trials to a stream, such as the standard output, in a format of `export`."""
    _check_format(format)
    for piece in _WRITERS[format](records):
        stream.write(piece)


def trial_json(record: TrialRecord) -> dict[str, Any]:
    """Write everything about a trial as JSON values, its metrics included; NaN as None."""
    return {
        "config_hash": record.config_hash,
        **record.model_dump(mode="json"),
        "metrics": {
            name: None if math.isnan(value) else value for name, value in scores(record).items()
        },
    }


def read_export(path: AnyPath) -> list[TrialRecord]:
    """Read what `export` wrote as JSON, all of it or nothing; raises StoreError."""
    path = Path(path)
    try:
        content = json.loads(read_limited(path, _LARGEST_IMPORT))
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
    return record


def column_types() -> dict[str, type]:
    """List the columns in order, and what they hold beside None: str, int, float or bool."""
    config = {
        name: _plain_type(field.annotation) for name, field in TrialConfig.model_fields.items()
    }
    return {
        "config_hash": str,
        "name": str,
        **config,
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
    """Write a trial's values for the columns; None where there is none."""
    written = record.model_dump(mode="json", include={"started", "created"})
    types = column_types()
    config = {
        name: value if value is None or isinstance(value, types[name]) else str(value)
        for name, value in record.config
    }
    config["weights"] = ", ".join(f"{name}={value}" for name, value in record.config.weights)
    return {
        "config_hash": record.config_hash,
        "name": record.system,
        **config,
        "status": record.status,
        "diverged_at": record.diverged_at,
        "error": record.error,
        **{name: None if math.isnan(value) else value for name, value in scores(record).items()},
        **written,
        "seconds": record.seconds,
        "flops": record.flops,
        "memory_bytes": record.memory_bytes,
        "commit": record.commit,
    }


def _plain_type(annotation: Any) -> type:
    """Find the type of a config's field in a table; what has no plain one is written as text.

    A mask is a number, though it may be the word "auto".
    """
    union = get_origin(annotation) in (Union, UnionType)
    options = [
        option
        for option in (get_args(annotation) if union else (annotation,))
        if option is not NoneType and get_origin(option) is not Literal
    ]
    return options[0] if len(options) == 1 and options[0] in (int, float, bool) else str


def _check_format(name: str) -> None:
    if name not in _WRITERS:
        raise UnknownNameError(unknown("format", name, _WRITERS))


def _csv(records: Iterable[TrialRecord]) -> Iterator[bytes]:
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, list(column_types()), lineterminator="\n")

    def taken() -> bytes:
        piece = text.getvalue().encode()
        text.seek(0)
        text.truncate()
        return piece

    table.writeheader()
    yield taken()
    for record in records:
        row = {name: _no_formula(value) for name, value in flat_row(record).items()}
        # An empty field would read as "not known".
        row["mask"] = "none" if row["mask"] is None else row["mask"]
        table.writerow(row)
        yield taken()


def _no_formula(value: Any) -> Any:
    """Text that a spreadsheet would compute, marked as text the way spreadsheets do."""
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
    types, masks, tables = column_types(), [], []
    del types["mask"]
    schema = arrow.schema([(name, kinds[kind]) for name, kind in types.items()])
    rows = (flat_row(record) for record in records)
    while batch := list(islice(rows, _ROWS_AT_ONCE)):
        masks += [row.pop("mask") for row in batch]
        tables.append(arrow.Table.from_pylist(batch, schema=schema))
    kind = column_types()["mask"]
    if any(isinstance(mask, str) for mask in masks):  # a column has one type
        kind, masks = str, [None if mask is None else str(mask) for mask in masks]
    table = arrow.concat_tables(tables) if tables else schema.empty_table()
    place = list(column_types()).index("mask")
    table = table.add_column(place, "mask", arrow.array(masks, kinds[kind]))
    content = io.BytesIO()
    parquet.write_table(table, content)
    yield content.getvalue()


def _latex(records: Iterable[TrialRecord], *, validation: bool = False) -> Iterator[bytes]:
    cells = summarise_listed(map(summary_of, records))
    yield latex_table(cells, validation=validation).encode()


_WRITERS: dict[str, Callable[[Iterable[TrialRecord]], Iterator[bytes]]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
    "latex": _latex,
    "latex-validation": partial(_latex, validation=True),
}

FORMATS = tuple(_WRITERS)
"""The names that `export` knows."""
