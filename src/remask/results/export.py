"""Writing trials to files that other programs read."""

import csv
import importlib
import io
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from remask.durable import AnyPath, DurabilityError, write_output
from remask.names import UnknownNameError, unknown
from remask.results.errors import StoreError
from remask.results.latex import latex_table
from remask.results.record import TrialRecord
from remask.results.summary import scores, summarise
from remask.results.table import column_types, flat_row

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def export(records: Iterable[TrialRecord], format: str, target: AnyPath) -> None:  # noqa: A002
    """Write trials to the file `target` as `csv`, `json`, `parquet`, `latex` or `latex-validation`.

    csv, parquet: one row per trial, with its config and all metrics. json: everything the store
    knows, accuracy matrices included. latex: a booktabs table, mean ± population std per config, of
    the test set; latex-validation: with the accuracies on held-out training data beside it.

    A file appears whole or not at all; one that was there before stays until then. A pipe or a
    device is written into.
    """
    _check_format(format)
    content = io.BytesIO()
    write(records, format, content)
    try:
        write_output(Path(target), content.getvalue())
    except DurabilityError as error:
        raise StoreError(str(error)) from error


def write(records: Iterable[TrialRecord], format: str, stream: IO[bytes]) -> None:  # noqa: A002
    """Write trials to a stream, such as the standard output, in a format of `export`."""
    _check_format(format)
    _WRITERS[format](records, stream)


def trial_json(record: TrialRecord) -> dict[str, Any]:
    """Write everything about a trial as JSON values, its metrics included; NaN as None."""
    return {
        "config_hash": record.config_hash,
        **record.model_dump(mode="json"),
        "metrics": {
            name: None if math.isnan(value) else value for name, value in scores(record).items()
        },
    }


def _check_format(name: str) -> None:
    if name not in _WRITERS:
        raise UnknownNameError(unknown("format", name, _WRITERS))


def _write_csv(records: Iterable[TrialRecord], stream: IO[bytes]) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    try:
        table = csv.DictWriter(text, list(column_types()), lineterminator="\n")
        table.writeheader()
        for record in records:
            row = {name: _no_formula(value) for name, value in flat_row(record).items()}
            # An empty field would read as "not known".
            row["mask"] = "none" if row["mask"] is None else row["mask"]
            table.writerow(row)
    finally:
        text.detach()  # the stream is not ours to close


def _no_formula(value: Any) -> Any:
    """Text that a spreadsheet would compute, marked as text the way spreadsheets do."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _write_json(records: Iterable[TrialRecord], stream: IO[bytes]) -> None:
    stream.write(b'{"trials": [')
    separator = b"\n"
    for record in records:
        stream.write(separator + json.dumps(trial_json(record), allow_nan=False).encode("ascii"))
        separator = b",\n"
    stream.write(b"\n]}\n")


def _write_parquet(records: Iterable[TrialRecord], stream: IO[bytes]) -> None:
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise StoreError(
            "Parquet needs pyarrow, which is not installed: pip install 'remask[parquet]'. "
            "csv and json need nothing more."
        ) from error
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in column_types().items()])
    rows = [flat_row(record) for record in records]
    parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), stream)


def _write_latex(records: Iterable[TrialRecord], stream: IO[bytes]) -> None:
    stream.write(latex_table(summarise(records)).encode())


def _write_latex_validation(records: Iterable[TrialRecord], stream: IO[bytes]) -> None:
    stream.write(latex_table(summarise(records), validation=True).encode())


_WRITERS: dict[str, Callable[[Iterable[TrialRecord], IO[bytes]], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "parquet": _write_parquet,
    "latex": _write_latex,
    "latex-validation": _write_latex_validation,
}

FORMATS = tuple(_WRITERS)
"""The names that `export` knows."""
