"""Texts: lists of strings, and columns of CSV and JSON Lines files."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset

from remask.data.readers import InputFormat, SampleReader
from remask.data.texts import TextFile
from remask.data.user_data import read
from remask.errors import DataError

TEXTS = ["a short text", 'with "quotes", commas\nand lines', "üñí ✓"]
LABELS = ["x", "y", "x"]
IMAGES = InputFormat(shape=(3, 8, 8), dtype="uint8")


def all_of(source: SampleReader) -> list[str]:
    return list(source.samples(source.format()))


def write_csv(path: Path, *rows: list[str], encoding: str = "utf-8") -> Path:
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file).writerows(rows)
    return path


def write_jsonl(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


class Pairs(Dataset[tuple[str, str]]):
    def __len__(self) -> int:
        return len(TEXTS)

    def __getitem__(self, number: int) -> tuple[str, str]:
        return TEXTS[number], LABELS[number]


@pytest.mark.parametrize(
    "given",
    [
        (TEXTS, LABELS),
        (tuple(TEXTS), np.array(LABELS)),
        (np.array(TEXTS), LABELS),
        (np.array(TEXTS, dtype=object), LABELS),
        (list(zip(TEXTS, LABELS, strict=True)),),
        (Pairs(),),
    ],
)
def test_strings_with_labels_are_texts(given: Any) -> None:
    source = read(*given, labelled=True)
    assert source.format().is_text
    assert all_of(source) == TEXTS
    assert (source.names, source.count, source.sources) == (LABELS, 3, None)


def test_strings_to_predict_are_texts_for_a_learner_of_texts_and_files_for_others() -> None:
    text = InputFormat(shape=(1,), dtype="text")
    assert all_of(read(TEXTS, labelled=False, expected=text)) == TEXTS
    assert all_of(read("one text", labelled=False, expected=text)) == ["one text"]
    with pytest.raises(DataError, match=r"3 of 3 images cannot be read"):
        read(TEXTS, labelled=False, expected=IMAGES).format()
    with pytest.raises(DataError, match=r"learnt from 3 channels .* and these are texts"):
        list(read(TEXTS, LABELS, labelled=True, expected=IMAGES).samples(IMAGES))
    with pytest.raises(DataError, match="texts need `labels`"):
        read(TEXTS, labelled=True)
    with pytest.raises(DataError, match="3 texts but 2 labels"):
        read(TEXTS, LABELS[:2], labelled=True)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_columns_of_csv_and_jsonl_files_are_read(tmp_path: Path, encoding: str) -> None:
    rows = [[label, text, "more"] for text, label in zip(TEXTS, LABELS, strict=True)]
    table = write_csv(tmp_path / "a.csv", ["kind", "words", "etc"], *rows, encoding=encoding)
    lines = write_jsonl(
        tmp_path / "a.jsonl",
        *({"kind": k, "words": t} for t, k in zip(TEXTS, LABELS, strict=True)),
    )
    for path, numbers in ((table, (2, 3, 5)), (lines, (1, 2, 3))):
        source = read(TextFile(path, "words", "kind"), labelled=True)
        assert all_of(source) == TEXTS
        assert source.names == LABELS
        assert source.sources == [f"{path}:{number}" for number in numbers]
        source = read(TextFile(str(path), "words"), labelled=False)
        assert all_of(source) == TEXTS
        assert source.names is None


def test_whole_numbers_are_labels_and_labels_are_stripped(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", {"t": "a", "l": 3}, {"t": "b", "l": " 3 "})
    assert read(TextFile(path, "t", "l"), labelled=True).names == ["3", "3"]


def test_a_field_may_be_large(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", ["t", "l"], ["word " * 100_000, "x"])
    assert len(all_of(read(TextFile(path, "t", "l"), labelled=True))[0]) == 500_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"t,l\ncaf\xe9,x\n", r"not in UTF-8: line 2 has the byte 0xe9\. Convert it, "),
        ("a.csv", "t,l\na,x\n".encode("utf-16"), r"byte 0xff\. Convert it.*iconv -f UTF-16"),
        ("a.csv", b"text,kind\na,x\n", r"a\.csv has no column 't'; it has 'text', 'kind'"),
        ("a.csv", b"t;l\na;x\n", r"has no column 't'; it has 't;l'\. Separate columns by commas"),
        ("a.csv", b"t,l,t\na,x,b\n", "has 2 columns 't': rename all but one"),
        ("a.csv", b"t,l\n", "it has no rows"),
        ("a.csv", b"t,l\na,x\nb\n", "line 3: 1 fields, but the header has 2"),
        ("a.csv", b't,l\na,x\n"b,x\n', "after line 2: unexpected end of data"),
        ("a.csv", b"t,l\na,x\n ,x\n", r"1 of 2 texts cannot be read:\n.*a\.csv:3: the text is emp"),
        ("a.csv", b"t,l\na,x\nb,\x07\n", r"a\.csv:3: the name of a class must have"),
        ("a.jsonl", b'{"t": "a"', r"line 1: not JSON"),
        ("a.jsonl", b"[" * 100_000, r"line 1: not JSON"),
        ("a.jsonl", b'{"t": "a", "l": "x"}\n{"t": "b"}\n', "line 2: has no column 'l'; it has 't'"),
        ("a.jsonl", b'{"t": 5, "l": "x"}\n', r"a\.jsonl:1: not a text but int"),
        ("a.jsonl", b'{"t": "\\ud83d", "l": "x"}\n', r"a\.jsonl:1: the text has half of a surrog"),
        ("a.txt", b"a", r"expected a file that ends in \.csv or \.jsonl"),
    ],
)
def test_a_refusal_names_the_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(TextFile(tmp_path / name, "t", "l"), labelled=True)


def test_empty_texts_are_skipped_if_asked_for(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", ["t", "l"], ["a", "x"], ["", "x"], ["c", ""], ["d", "y"])
    source = read(TextFile(path, "t", "l"), labelled=True, skip_unreadable=True)
    assert all_of(source) == ["a", "d"]
    assert source.names == ["x", "y"]
    assert source.sources == [f"{path}:2", f"{path}:5"]
    assert str(source.skipped) == (
        f"skipped 2 of 4 texts: {path}:3 (the text is empty), {path}:4 (the label is empty)"
    )
    source = read(["a", " ", "c"], LABELS, labelled=True, skip_unreadable=True)
    assert (all_of(source), source.names) == (["a", "c"], ["x", "x"])
    with pytest.raises(DataError, match="1 of 1 texts cannot be read"):
        read([""], ["x"], labelled=True, skip_unreadable=True)


def test_a_file_without_columns_says_how_to_name_them(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", ["t"], ["a"])
    with pytest.raises(DataError, match=r"--text COLUMN --label COLUMN"):
        read(path, labelled=True)
    with pytest.raises(DataError, match=r"name the column of .* that has the classes"):
        read(TextFile(path, "t"), labelled=True)
