"""What several commands print."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from remask.cli.console import errors, output
from remask.errors import RemaskError
from remask.results import StoreError

if TYPE_CHECKING:
    from remask.experiments import Compared, Reproduction, Results


def print_results(results: "Results", nets: Path | None = None, *, choose: bool = False) -> None:
    """The table of all trials, and how many nets were saved, if that was asked for.

    With `choose`, also which cell is best by validation.
    """
    output.print(results.table(), crop=False)
    for line in results.masks_chosen():
        _say(line)
    if choose:
        lines = results.best_by_validation()
        if not lines and len(results.cells()) > 1:
            lines = [
                "To choose one of these without looking at the test set, add --validation 0.1."
            ]
        for line in lines:
            _say(line)
    if nets is not None:
        _print_nets(results, nets)


def print_comparison(compared: "Compared", *, markdown: bool) -> None:
    """Ours beside the published figures, and how many of them agree."""
    if markdown:
        _say(compared.markdown())
    else:
        output.print(compared.table(), crop=False, soft_wrap=True)
        for line in compared.summary():
            _say(line)


def print_reproduction(found: "Reproduction", *, markdown: bool) -> None:
    """Ours beside the published figures, then the statements that these cells can decide."""
    if markdown:
        _say(found.markdown())
        return
    print_comparison(found.compared, markdown=False)
    for table, note in found.tables():
        output.print(table, crop=False)
        _say(note)


def leave_if_failed(failures: Sequence[str]) -> None:
    """Say what failed, and leave with an error, if anything did."""
    if failures:
        for failure in failures:
            errors.print(failure, style="red", highlight=False, soft_wrap=True)
        raise typer.Exit(1)


def leave_if_damaged(damaged: Sequence[StoreError]) -> None:
    """Say which trials could not be read, and leave with an error, if there are any."""
    for error in damaged:
        errors.print(str(error), style="red", highlight=False, soft_wrap=True)
    if damaged:
        raise typer.Exit(1)


def say_if_all_were_stored(results: "Results", store: Path) -> None:
    """Say so if there was nothing to run."""
    if not results.ran:
        output.print(f"All {len(results)} trials are in {store} already.", highlight=False)


def confirmed(question: str, otherwise: str, verb: str) -> bool:
    """Ask before something is lost. Raises RemaskError if there is no terminal to ask at."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise RemaskError(
            f"there is no terminal to ask at, so {otherwise}. To {verb} without being asked, say "
            f"--yes."
        )
    errors.print(f"{question} [y/N]", end=" ", highlight=False, soft_wrap=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _print_nets(results: "Results", folder: Path) -> None:
    from remask.runs import without_net  # torch: not before it is needed

    finished = [record.config for record in results if record.status == "finished"]
    missing = without_net(folder, finished)
    diverged = sum(record.status == "diverged" for record in results)
    text = f"Nets in {folder}: {len(finished) - len(missing)}."
    if missing:
        text += (
            f" Trials without one: {len(missing)}. The store had them already, and it keeps no "
            f"nets; with --again they are trained anew, and their nets saved."
        )
    if diverged:
        text += f" Trials that diverged, and so have none: {diverged}."
    _say(text)


def _say(text: str) -> None:
    """Print as it is, however long its lines are."""
    output.print(text, highlight=False, soft_wrap=True)
