"""`remask results` and `remask report`: what is in the store."""

import gc
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from remask.cli.app import Printing, confirm, exit_if_any
from remask.cli.options import (
    HASH,
    VALUES,
    Group,
    Markdown,
    StorePath,
    arg,
    flag,
    one_of,
    opt,
    option,
)
from remask.errors import SettingsError, counted
from remask.outputs import check_output
from remask.store.cells import TrialSummary, summarise
from remask.store.database import StoreError, store_path
from remask.store.export import FORMATS, PREFERRED, export, merge, read_export, trial_json
from remask.store.filters import FILTERS
from remask.store.store import Store

_ONLY = "Only these results; several values with commas between them"
FILTER_OPTIONS = Group(
    option(
        name,
        str,
        opt(
            filter_.metavar,
            filter_.description,
            panel=_ONLY,
            callback=lambda text: text and [part.strip() for part in text.split(",")],
            autocompletion=VALUES.get(name),
        ),
    )
    for name, filter_ in FILTERS.items()
)
Filters = Annotated[dict[str, Any], FILTER_OPTIONS]
_ENDINGS = {".csv": "csv", ".parquet": "parquet", ".json": "json", ".tex": "latex"}


def list_(
    *,
    filters: Filters,
    trials: Annotated[bool, flag("--trials", "Print a line per trial, with its hash.")] = False,
    store: StorePath = None,
    printer: Printing,
) -> None:
    """Print the results, a row for all trials that differ in their seed only.

    Means of the finished trials ± their population standard deviation, if there is more than one.
    They are of the test set, except in columns headed `validation`.
    """
    damaged: list[StoreError] = []
    gc.disable()  # it would look at 100,000 trials again and again, for a quarter of the time
    with _existing(store) as opened:
        found = list(opened.summaries(filters, damaged=damaged))
    if printer.json:
        cells = [cell.as_json() for cell in summarise(found)]
        printer.result({"cells": cells, "trials": [trial.as_json() for trial in found]})
    elif not found:
        printer.show("No trial matches." if filters else "No trial is finished yet.")
    elif trials:
        printer.show(*map(_line, found))
    else:
        from remask.reports.tables import results_table  # not before it is needed

        printer.show(results_table(summarise(found)))
    exit_if_any(damaged)


def _line(trial: TrialSummary) -> str:
    """A trial in `list --trials`."""
    accuracy = f"Class-IL A_T {trial.scores['class_il_A_T']:.2f}"
    validation = trial.scores["validation_class_il_A_T"]
    if not math.isnan(validation):
        accuracy = f"test {accuracy}, validation {validation:.2f}"
    return (
        f"{trial.config_hash[:12]}  {trial.benchmark}  {trial.system}  buffer {trial.buffer}  "
        f"seed {trial.seed}  {trial.status}  {accuracy}"
    )


def show(
    *,
    hash: Annotated[  # noqa: A002
        str, arg("HASH", "The trial's hash, or enough of its beginning.", autocompletion=HASH)
    ],
    store: StorePath = None,
    printer: Printing,
) -> None:
    """Print everything that is kept of one trial, as JSON."""
    with _existing(store) as opened:
        record = opened.find(hash)
    replace(printer, json=True).result(trial_json(record))


def export_(
    *,
    target: Annotated[Path, arg("TARGET", "The file to write.")],
    format: Annotated[  # noqa: A002
        str | None,
        opt(
            "FORMAT",
            f"{', '.join(FORMATS)}. Default: by the ending.",
            autocompletion=one_of(FORMATS),
        ),
    ] = None,
    filters: Filters,
    store: StorePath = None,
    printer: Printing,
) -> None:
    """Write results to a file: CSV, Parquet, JSON (everything), or a LaTeX table of means."""
    chosen = format or _ENDINGS.get(target.suffix)
    if chosen is None:
        raise StoreError(
            f"{target.name} has none of the endings {', '.join(_ENDINGS)}: add --format."
        )
    damaged: list[StoreError] = []
    with _existing(store) as opened:
        check_output(target, [opened.path])
        written = export(opened.records(filters, damaged=damaged), chosen, target)
    printer.result({"file": target, "format": chosen, "trials": written})
    printer.note(f"{written} trials written to {target}")
    exit_if_any(damaged)


def import_(
    *,
    source: Annotated[Path, arg("SOURCE", "A JSON file that `results export` wrote.")],
    store: StorePath = None,
    printer: Printing,
) -> None:
    """Add the trials of an exported JSON file, all or none; existing trials stay unchanged."""
    records = read_export(source)
    with Store(store_path(store)) as opened:
        new = opened.add_all(records)
    counts = {"read": len(records), "new": new}
    printer.result(counts, f"{len(records)} trials read, {new} of them new")


def merge_(
    *,
    other: Annotated[Path, arg("OTHER.db", "The store to take from.")],
    prefer: Annotated[
        str | None,
        opt(
            "WHOSE",
            "Keep `ours` or `theirs` where the two differ. Default: refuse.",
            autocompletion=one_of(PREFERRED),
        ),
    ] = None,
    store: StorePath = None,
    printer: Printing,
) -> None:
    """Add the trials of another store, all or none; the other one is only read.

    A trial that both have, with the same result, stays unchanged. If their results differ, nothing
    is merged and the trials are named, unless `--prefer` is given.

    Example: `remask results merge from-the-cluster.db`
    """
    if not other.exists():  # checked before a store is created
        raise StoreError(f"there are no results at {other}: no such file.")
    with Store(store_path(store)) as opened:
        merged = merge(opened, other, prefer=prefer)
    text = f"{merged.read} trials read, {merged.new} of them new"
    if merged.replaced:
        text += f", {merged.replaced} replaced ours"
    if merged.kept:
        text += f", {merged.kept} left out in favour of ours"
    printer.result(merged, text)


def delete(
    *,
    filters: Filters,
    every: Annotated[bool, flag("--all", "Every trial of the store.")] = False,
    yes: Annotated[bool, flag("--yes", "Delete without asking.")] = False,
    store: StorePath = None,
    printer: Printing,
) -> None:
    """Delete the results that pass all filters, after asking."""
    if bool(filters) == every:
        raise StoreError(
            "name the results to delete, by the filters of `remask results list` or by --hash, "
            "or give --all; not both. Nothing was deleted."
        )
    with _existing(store) as opened:
        found = list(opened.unchecked(filters))
        if not found:
            printer.result({"deleted": []}, "No trial matches.")
            return
        for cell, number in Counter(map(_cell, found)).items():
            printer.note(f"{cell}: {number}")
        count = counted(len(found), "trial")
        if not yes:
            confirm(f"Delete {count} from {opened.path}?", "delete", "deleted")
        hashes = [trial.config_hash for trial in found]
        opened.delete(hashes)
    printer.result({"deleted": hashes}, f"{count} deleted")


def _cell(trial: TrialSummary) -> str:
    return f"{trial.benchmark}  {trial.system}  buffer {trial.buffer}  {trial.status}"


def compare_(
    *,
    filters: Filters,
    markdown: Markdown = False,
    store: StorePath = None,
    printer: Printing,
) -> None:
    """Compare results with the published figures, where the settings are the published ones."""
    from remask.experiments.results import Results  # torch: not before it is needed

    damaged: list[StoreError] = []
    with _existing(store) as opened:
        compared = Results(opened.records(filters, damaged=damaged)).compare()
    shown = [compared.table(), *compared.summary()] if compared else compared.summary()
    printer.result(compared.as_json(), *([compared.markdown()] if markdown else shown))
    exit_if_any(damaged)


def report(
    *,
    target: Annotated[Path, arg("FILE", "The HTML file to write.")] = Path("remask-report.html"),
    figures: Annotated[
        Path | None, opt("FOLDER", "Also draw the figures, as SVG and PNG, in this folder.")
    ] = None,
    watch: Annotated[bool, flag("--watch", "Update the page whenever a trial is stored.")] = False,
    paper: Annotated[bool, flag("--paper", "Also list what of the paper was not run.")] = False,
    filters: Filters,
    store: StorePath = None,
    printer: Printing,
) -> None:
    """Write the results as a page, with tables and figures.

    It is one HTML file that needs nothing else and no network: tables beside the paper's, curves,
    every trial. With `--watch` it is updated while trials are stored, and reloads itself, until
    Ctrl-C; it waits for a store that does not exist yet.
    """
    from remask.experiments import pages  # torch: not before it is needed

    def note(new: pages.Written) -> None:
        printer.note(f"{new.trials} trials in {new.page}")

    path = store_path(store)
    check_output(target, [path])
    if target.suffix not in ("", ".html", ".htm"):
        raise SettingsError(f"{target}: the page is HTML; name a file that ends in .html")
    if watch:
        if not path.exists():
            printer.note(f"waiting for {path}")
        written = pages.watch(path, target, filters, note, paper=paper)
        if written is None:  # stopped before there was a store
            return
    else:
        with Store(path, create=False) as opened:
            written = pages.write_report(opened, target, filters, figures=figures, paper=paper)
        note(written)
        if figures is not None:
            printer.note(f"{len(written.figures)} figures in {figures}")
    printer.result(written)
    exit_if_any(written.damaged)


def _existing(store: Path | None) -> Store:
    return Store(store_path(store), create=False)


COMMANDS = {
    "list": list_,
    "show": show,
    "compare": compare_,
    "export": export_,
    "import": import_,
    "merge": merge_,
    "delete": delete,
}
