"""The tutorials run as they stand, and print what their pages show."""

import re
import runpy
from pathlib import Path

import pytest

from remask import Learner
from tests.command_line import CommandLine
from tests.docs.pages import Command, Output, follow, numbers, words
from tests.repository import ROOT

DOCS = ROOT / "docs"
_ANOTHER_PROCESSOR = 4.0
"""Points: other kernels add in another order, which decides a few of 70 test images otherwise."""


@pytest.fixture
def reader(remask: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs commands in a new folder, beside the docs of the repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "docs").symlink_to(DOCS)

    def run(args: list[str]) -> str:
        return remask(*args).out.replace(str(remask.store), "results.db")

    return run


@pytest.mark.parametrize(
    ("name", "up_to", "outputs"),
    [
        pytest.param("loss", "", 4, marks=pytest.mark.thorough),
        pytest.param("method", "\n## The table", 2, marks=pytest.mark.thorough),
        pytest.param("method", "", 3, marks=pytest.mark.slow),
        ("paper", "\n## Extend it", 1),
        pytest.param("paper", "", 3, marks=pytest.mark.data),
    ],
)
def test_a_tutorial_prints_what_its_page_shows(
    reader: Command, name: str, up_to: str, outputs: int
) -> None:
    page = (DOCS / "tutorials" / f"{name}.md").read_text("utf-8")
    assert up_to in page
    seen = list(follow(page.split(up_to)[0] if up_to else page, reader))
    assert len(seen) == outputs
    for output in seen:
        assert words(output.printed) == words(output.shown)
        shown = pytest.approx(numbers(output.shown), abs=_ANOTHER_PROCESSOR)
        assert numbers(output.printed) == shown


def test_exports_are_written_as_their_page_shows(reader: Command, tmp_path: Path) -> None:
    assert list(follow((DOCS / "how-to" / "export.md").read_text("utf-8"), reader)) == []
    for name in ("trials.csv", "derpp.json", "table.tex"):
        assert (tmp_path / name).stat().st_size > 0


def _read(reader: Command, *titles: str) -> list[Output]:
    """Follow sections of the learner's page; the last output is what was printed at the end."""
    page = (DOCS / "learner.md").read_text("utf-8")
    sections = [
        re.findall(rf"^## {title}\n.*?(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)[0]
        for title in titles
    ]
    return list(follow("\n".join([*sections, "```text\n```\n"]), reader))


@pytest.mark.slow
def test_a_learner_learns_ten_digits_in_five_visits(reader: Command, tmp_path: Path) -> None:
    visits, evaluation, _ = _read(
        reader, "A folder of images", "Five visits", "Predict and evaluate", "History"
    )
    learner = Learner.open("reader")
    assert (len(learner.history), len(learner.classes)) == (5, 10)
    shown = visits.shown.splitlines()
    printed = visits.printed.splitlines()[-len(shown) :]
    assert shown[0].partition(";")[0] == printed[0].partition(";")[0]
    assert printed[1].startswith("  m = ")
    printed = evaluation.printed.splitlines()
    sevens, accuracies = printed[:35], printed[35:46]
    assert sum(": seven " in line for line in sevens) > 25
    assert {line.split()[0] for line in accuracies[1:]} == set(learner.classes)
    accuracy = pytest.approx(numbers(evaluation.shown)[0], abs=_ANOTHER_PROCESSOR)
    assert numbers(accuracies[0])[0] == accuracy
    assert (tmp_path / "reader.html").exists()
    assert (tmp_path / "accuracy-per-class.png").exists()
    _read(reader, "Forget a class")
    assert set(Learner.open("reader").classes) == {*learner.classes} - {"nine"}


def test_the_calls_from_python_do_what_the_page_of_the_learner_says(reader: Command) -> None:
    (output,) = _read(reader, "From Python")
    monday, *predicted = output.printed.splitlines()
    assert monday.startswith("monday: learnt 2 new classes (ham, spam) from ")
    assert [line.split()[0] for line in predicted] == ["ham"] * 3


@pytest.mark.integrations
def test_an_exported_learner_is_used_as_its_page_shows(reader: Command) -> None:
    *_, exported = _read(reader, "A folder of images", "Five visits", "Export")
    assert exported.printed.splitlines()[-1] == "seven"


@pytest.mark.slow
def test_the_figure_of_the_start_page_plays_what_training_gives() -> None:
    website = runpy.run_path(str(ROOT / "website" / "logits.py"))
    recorded = website["record"]()
    shown = website["DATA"].read_text("utf-8")
    assert words(website["script"](recorded)) == words(shown)
    assert numbers(website["script"](recorded)) == pytest.approx(numbers(shown), abs=2.0)
    # As the page states: without a mask old digits are lost, with one they are not.
    ends = {name: frames[-1] for name, frames in recorded["frames"].items()}
    assert max(ends["sgd none"][:6]) < 3 < min(ends["sgd -1"][:6])
    assert ends["sgd -1"][10] > ends["sgd none"][10] + 10
