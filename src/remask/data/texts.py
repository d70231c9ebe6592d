"""Texts of users: lists of strings, and columns of CSV and JSON Lines files."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remask import files
from remask.data.classes import class_name
from remask.data.readers import InputFormat, SampleReader, Unreadable, unreadable_error
from remask.data.sources import users_path
from remask.errors import DataError, printable

TEXT = InputFormat(shape=(1,), dtype="text")
_LARGEST_FILE = 2 << 30
_LARGEST_FIELD = 16 << 20  # csv refuses more than 128 KiB unless it is given a limit
_SHOWN_COLUMNS = 20
ENDINGS = (".csv", ".jsonl", ".ndjson")

_Row = tuple[int, dict[str, Any]]
"""The number of its first line, and its values by column."""


@dataclass(frozen=True)
class TextFile:
    """Columns of FILE.csv, which has a header, or FILE.jsonl, an object per line; in UTF-8."""

    path: files.AnyPath
    text: str
    """The column of the texts."""
    label: str | None = None
    """The column of the classes' names; not needed to predict."""


class TextReader(SampleReader):
    """Texts in memory with the names of their classes, from these places if they have any.

    Raises DataError for texts and labels that cannot be used; with `skip_unreadable` they are left
    out, unless none is left.
    """

    def __init__(
        self,
        texts: Sequence[Any],
        labels: Sequence[Any] | None,
        places: Sequence[str] | None = None,
        *,
        skip_unreadable: bool = False,
    ) -> None:
        if labels is not None and len(labels) != len(texts):
            raise DataError(f"{len(texts)} texts but {len(labels)} labels")
        names: list[str] = []
        super().__init__(len(texts), None if labels is None else names)
        self.skipped.what = "texts"
        self._texts: list[str] = []
        sources = []
        for number, text in enumerate(texts):
            place = f"text {number}" if places is None else places[number]
            try:
                _check_text(text)
                if labels is not None:
                    names.append(_name(labels[number]))
            except DataError as error:
                self.skipped.unreadable.append(Unreadable(place, str(error)))
                continue
            self._texts.append(text)
            sources.append(place)
        if self.skipped.unreadable and not (skip_unreadable and self._texts):
            raise unreadable_error(self.skipped.unreadable, self.count, "text")
        self.count, self.sources = len(self._texts), None if places is None else sources

    def format(self) -> InputFormat:
        """Return the format of texts."""
        return TEXT

    def samples(self, form: InputFormat) -> Iterator[str]:
        """Yield the texts."""
        if not form.is_text:
            raise DataError(
                f"the model has learnt from {form}, and these are texts (pass image files as "
                f"pathlib.Path)"
            )
        yield from self._texts


def _check_text(text: Any) -> None:
    if not isinstance(text, str):
        raise DataError(f"not a text but {type(text).__name__}")
    if not text.strip():
        raise DataError("the text is empty")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError("the text has half of a surrogate pair: invalid Unicode") from error


def _name(label: Any) -> str:
    if label is None or label == "":
        raise DataError("the label is empty")
    return class_name(label)


def read_text_file(file: TextFile, *, labelled: bool, skip_unreadable: bool = False) -> TextReader:
    """Read texts, and their classes if they are needed, from a file. Raises DataError."""
    path = users_path(file.path)
    if labelled and file.label is None:
        raise DataError(f"name the column of {path} that has the classes: label=... (--label)")
    if path.suffix.lower() not in ENDINGS:
        raise DataError(f"{path}: expected a file that ends in .csv or .jsonl")
    wanted = [file.text, *([file.label] if labelled and file.label is not None else [])]
    read_rows = _csv_rows if path.suffix.lower() == ".csv" else _json_rows
    rows = list(read_rows(path, _decoded(path), wanted))
    if not rows:
        raise DataError(f"{path} has no texts: it has no rows")
    labels = [row[wanted[1]] for _, row in rows] if labelled else None
    if labels is not None:
        labels = [label.strip() if isinstance(label, str) else label for label in labels]
    places = [f"{path}:{line}" for line, _ in rows]
    texts = [row[file.text] for _, row in rows]
    return TextReader(texts, labels, places, skip_unreadable=skip_unreadable)


def _decoded(path: Path) -> str:
    """Read a text file in UTF-8, with or without a byte order mark. Raises DataError."""
    try:
        data = files.read_limited(path, _LARGEST_FILE)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        likely = "UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "ISO-8859-1"
        raise DataError(
            f"{path} is not in UTF-8: line {line} has the byte 0x{data[error.start]:02x}. Convert "
            f"it, for example with `iconv -f {likely} -t UTF-8`"
        ) from error


def _csv_rows(path: Path, text: str, wanted: Sequence[str]) -> Iterator[_Row]:
    csv.field_size_limit(_LARGEST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    end = 0
    try:
        header = next(reader, [])
        _check_columns(path, header, wanted)
        end = reader.line_num
        for row in reader:
            line, end = end + 1, reader.line_num
            if row and len(row) != len(header):  # not an empty line
                raise DataError(
                    f"{path}, line {line}: {len(row)} fields, but the header has {len(header)}. "
                    f"Put fields with commas or line breaks in double quotes."
                )
            if row:
                yield line, dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise DataError(f"{path}, after line {end}: {error}") from error


def _json_rows(path: Path, text: str, wanted: Sequence[str]) -> Iterator[_Row]:
    # Not `splitlines`: JSON strings may contain other line separators.
    for line, written in enumerate(text.split("\n"), start=1):
        if not written.strip():
            continue
        try:
            row = json.loads(written)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {line}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {line}: expected an object, {{...}}, per line")
        _check_columns(f"{path}, line {line}:", list(row), wanted)
        yield line, row


def _check_columns(where: Path | str, columns: Sequence[str], wanted: Sequence[str]) -> None:
    for name in wanted:
        if columns.count(name) > 1:
            raise DataError(
                f"{where} has {columns.count(name)} columns {name!r}: rename all but one"
            )
        if name not in columns:
            shown = ", ".join(map(repr, columns[:_SHOWN_COLUMNS])) or "none"
            hint = ". Separate columns by commas" if len(columns) == 1 and ";" in columns[0] else ""
            raise DataError(printable(f"{where} has no column {name!r}; it has {shown}{hint}"))
