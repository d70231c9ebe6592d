"""The tutorials run as they stand, and print what their pages show."""

import runpy
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.docs.pages import Command, follow, numbers, words
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


def _check(page: str, run: Command, outputs: int) -> None:
    seen = list(follow(page, run))
    assert len(seen) == outputs
    for output in seen:
        assert words(output.printed) == words(output.shown)
        shown = pytest.approx(numbers(output.shown), abs=_ANOTHER_PROCESSOR)
        assert numbers(output.printed) == shown


@pytest.mark.thorough
def test_the_loss_in_a_loop_does_what_its_page_shows(reader: Command) -> None:
    _check((DOCS / "tutorials" / "loss.md").read_text("utf-8"), reader, 4)


@pytest.mark.thorough
def test_the_checks_find_what_the_first_version_of_a_method_lacks(reader: Command) -> None:
    page, _, _ = (DOCS / "tutorials" / "method.md").read_text("utf-8").partition("\n## The table")
    _check(page, reader, 2)


@pytest.mark.slow
def test_a_method_goes_from_equation_to_table_as_its_page_shows(reader: Command) -> None:
    _check((DOCS / "tutorials" / "method.md").read_text("utf-8"), reader, 3)


def test_the_paper_s_own_table_is_read_from_the_published_trials(reader: Command) -> None:
    page, _, _ = (DOCS / "tutorials" / "paper.md").read_text("utf-8").partition("\n## Extend it")
    _check(page, reader, 1)


@pytest.mark.data
def test_the_paper_is_extended_as_its_page_shows(reader: Command) -> None:
    _check((DOCS / "tutorials" / "paper.md").read_text("utf-8"), reader, 3)


def test_exports_are_written_as_their_page_shows(reader: Command, tmp_path: Path) -> None:
    assert list(follow((DOCS / "how-to" / "export.md").read_text("utf-8"), reader)) == []
    for name in ("trials.csv", "derpp.json", "table.tex"):
        assert (tmp_path / name).stat().st_size > 0


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
