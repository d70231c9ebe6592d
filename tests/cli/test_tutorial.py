"""The tutorial of the learner runs as it stands, and prints what the page shows."""

import re
from pathlib import Path
from typing import Any

import pytest

from remask import Learner
from tests.command_line import CommandLine
from tests.repository import ROOT

PAGE = (ROOT / "docs" / "learner.md").read_text("utf-8")
NAMES = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"}
_ANOTHER_PROCESSOR = 3.0
"""Points: other kernels add in another order, and a few of the 355 test images change sides."""


def _section(title: str) -> list[tuple[str, str]]:
    """The blocks of a section, each with its language."""
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


class Reader:
    """Runs the code and commands of the page, section by section."""

    def __init__(self, remask: CommandLine) -> None:
        self._remask = remask
        self._names: dict[str, Any] = {}
        self.printed: list[str] = []
        self.shown: list[str] = []

    def follow(self, title: str) -> None:
        for language, block in _section(title):
            if language == "python":
                exec(block, self._names)
            elif language == "sh":
                for line in block.splitlines():
                    command, *args = line.split()
                    assert command == "remask"
                    answer = self._remask(*args)
                    assert answer.code == 0, answer.err
                    self.printed.append(answer.out)
            else:
                self.shown.append(block)


@pytest.fixture
def reader(remask: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.chdir(tmp_path)
    return Reader(remask)


@pytest.mark.slow
def test_the_tutorial_teaches_ten_classes_in_five_visits(reader: Reader, tmp_path: Path) -> None:
    reader.follow("A folder of images")
    reader.follow("Five visits")
    learner = Learner.open("reader")
    assert len(learner.history) == 5
    assert set(learner.classes) == NAMES
    assert learner.settings.memory == 600
    shown, printed = reader.shown[-1].splitlines(), reader.printed[-1].splitlines()
    assert len(shown) == len(printed)
    assert shown[0].partition(";")[0] == printed[0].partition(";")[0]
    assert printed[1].startswith("  m = ")

    reader.follow("Predict and evaluate")
    sevens = reader.printed[-2].splitlines()
    assert len(sevens) == 35
    assert sum(": seven " in line for line in sevens) > 25
    accuracies = [
        dict(re.findall(r"(\w+) +(\d+\.\d) % of \d+", text)) | {"all": text.split()[0]}
        for text in (reader.shown[-1], reader.printed[-1])
    ]
    assert accuracies[0].keys() == accuracies[1].keys() == NAMES | {"all"}
    assert float(accuracies[1]["all"]) == pytest.approx(
        float(accuracies[0]["all"]), abs=_ANOTHER_PROCESSOR
    )

    reader.follow("History")
    assert (tmp_path / "reader.html").exists()
    assert (tmp_path / "accuracy-per-class.png").exists()
    reader.follow("Forget a class")
    assert set(Learner.open("reader").classes) == NAMES - {"nine"}


def test_the_calls_from_python_do_what_the_page_says(
    reader: Reader, capfd: pytest.CaptureFixture[str]
) -> None:
    reader.follow("From Python")
    monday, *predicted = capfd.readouterr().out.splitlines()
    assert monday.startswith("monday: learnt 2 new classes (ham, spam) from ")
    assert [line.split()[0] for line in predicted] == ["ham"] * 3


@pytest.mark.integrations
def test_the_exported_file_is_used_as_the_page_shows(
    reader: Reader, capfd: pytest.CaptureFixture[str]
) -> None:
    reader.follow("A folder of images")
    reader.follow("Five visits")
    reader.follow("Export")
    assert capfd.readouterr().out.splitlines()[-1] == "seven"
