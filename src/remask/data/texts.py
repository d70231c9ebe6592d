"""Texts of users: lists of strings, and columns of CSV and JSON Lines files."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
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
    """Texts in memory; `unreadable` were left out."""

    def __init__(
        self,
        texts: Sequence[str],
        names: list[str] | None,
        sources: list[str] | None = None,
        unreadable: Sequence[Unreadable] = (),
    ) -> None:
        super().__init__(len(texts), names, sources)
        self._texts = texts
        self.skipped.of += len(unreadable)
        self.skipped.what = "texts"
        self.skipped.unreadable += unreadable

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


def _why_bad(text: Any) -> str | None:
    if not isinstance(text, str):
        return f"not a text but {type(text).__name__}"
    if not text.strip():
        return "the text is empty"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "the text has half of a surrogate pair, which is invalid Unicode"
    return None


def read_texts(
    texts: Sequence[Any], names: list[str] | None, *, skip_unreadable: bool = False
) -> TextReader:
    """Check texts that are in memory, and the names of their classes. Raises DataError."""
    if names is not None and len(names) != len(texts):
        raise DataError(f"{len(texts)} texts but {len(names)} labels")
    reasons = [_why_bad(text) for text in texts]
    bad = [Unreadable(f"text {n}", reason) for n, reason in enumerate(reasons) if reason]
    _check_unreadable(bad, len(texts), skip=skip_unreadable)
    whole = [reason is None for reason in reasons]
    chosen = None if names is None else list(compress(names, whole))
    return TextReader(list(compress(texts, whole)), chosen, None, bad)


def _check_unreadable(bad: Sequence[Unreadable], of: int, *, skip: bool) -> None:
    if bad and (not skip or len(bad) == of):
        raise unreadable_error(bad, of, "text")


def read_text_file(file: TextFile, *, labelled: bool, skip_unreadable: bool = False) -> TextReader:
    """Read texts, and their classes if they are needed, from a file. Raises DataError."""
    path = users_path(file.path)
    if labelled and file.label is None:
        raise DataError(f"name the column of {path} that has the classes: label=... (--label)")
    if path.suffix.lower() not in ENDINGS:
        raise DataError(f"{path}: expected a file that ends in .csv or .jsonl")
    wanted = [file.text, *([file.label] if labelled and file.label is not None else [])]
    texts, names, sources, bad = [], [], [], []
    rows = _csv_rows if path.suffix.lower() == ".csv" else _json_rows
    for line, row in rows(path, _decoded(path), wanted):
        source = f"{path}:{line}"
        text, reason = row[file.text], _why_bad(row[file.text])
        if reason is None and labelled:
            try:
                names.append(_label(row[wanted[1]]))
            except DataError as error:
                reason = str(error)
        if reason is not None:
            bad.append(Unreadable(source, reason))
            continue
        texts.append(text)
        sources.append(source)
    if not texts and not bad:
        raise DataError(f"{path} has no texts: it has no rows")
    _check_unreadable(bad, len(texts) + len(bad), skip=skip_unreadable)
    return TextReader(texts, names if labelled else None, sources, bad)


def _label(value: Any) -> str:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise DataError("the label is empty")
    return class_name(value.strip() if isinstance(value, str) else value)


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
