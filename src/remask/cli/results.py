"""`remask results`: list, show, compare, export, import, merge, delete."""

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.commands import COMMANDS, MARKUP
from remask.cli.completing import FORMAT, HASH
from remask.cli.console import output
from remask.cli.generated import with_groups
from remask.cli.printer import Printing
from remask.cli.printing import confirmed, leave_if_damaged, print_comparison
from remask.cli.shapes import compared_shape, stored_shape
from remask.durable import check_output
from remask.results import (
    FORMATS,
    Store,
    StoreError,
    TrialSummary,
    export,
    merge,
    read_export,
    store_path,
    summarise_listed,
    trial_json,
)

_SEEDS_SHOWN = 10

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=MARKUP,
    help=COMMANDS["results"].summary,
)


@app.command("list")
@with_groups
def list_(
    *,
    filters: o.Filters,
    trials: Annotated[
        bool, typer.Option("--trials", help="A line per trial, with its hash, not per cell.")
    ] = False,
    store: o.StorePath = None,
    printer: Printing,
) -> None:
    """Print the results, a row for all trials that differ in their seed only.

    Means of the finished trials ± their population standard deviation, if there is more than one.
    They are of the test set, except in columns that say `validation`.
    """
    damaged: list[StoreError] = []
    with _existing(store) as opened:
        found = list(opened.summaries(filters, damaged=damaged))
    if printer.json:
        printer.result(stored_shape(summarise_listed(found), found))
    elif not found:
        output.print("No trial matches.")
    elif not trials:
        from remask.reports import results_table  # not before it is needed

        output.print(results_table(summarise_listed(found)), crop=False)
    else:
        for trial in found:
            output.print(_line(trial), highlight=False, soft_wrap=True)
    leave_if_damaged(damaged)


def _line(trial: TrialSummary) -> str:
    """A trial in `list --trials`."""
    measured = trial.scores
    test, validation = measured["class_il_A_T"], measured["validation_class_il_A_T"]
    held_out = not math.isnan(validation)
    return (
        f"{trial.config_hash[:12]}  {trial.benchmark}  {trial.system}  "
        f"buffer {trial.buffer}  seed {trial.seed}  {trial.status}  "
        f"{'test ' if held_out else ''}Class-IL A_T {test:.2f}"
        f"{f', validation {validation:.2f}' if held_out else ''}"
    )


@app.command()
@with_groups
def show(
    *,
    hash: Annotated[  # noqa: A002
        str,
        typer.Argument(help="The trial's hash, or enough of its beginning.", autocompletion=HASH),
    ],
    store: o.StorePath = None,
    printer: Printing,
) -> None:
    """Print everything that is kept of one trial, as JSON."""
    if not hash.strip():
        raise StoreError("name the trial by its hash: `remask results list --trials` prints it.")
    with _existing(store) as opened:
        record = opened.find(hash)
    replace(printer, json=True).result(trial_json(record))


@app.command("export")
@with_groups
def export_(
    *,
    target: Annotated[Path, typer.Argument(help="The file to write.")],
    format: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            help=f"One of {', '.join(FORMATS)}. Default: by the file's ending.",
            autocompletion=FORMAT,
        ),
    ] = None,
    filters: o.Filters,
    store: o.StorePath = None,
    printer: Printing,
) -> None:
    """Write results to a file: CSV, Parquet, JSON (everything), or a LaTeX table of means."""
    endings = {".csv": "csv", ".parquet": "parquet", ".json": "json", ".tex": "latex"}
    chosen = format or endings.get(target.suffix)
    if chosen is None:
        raise StoreError(
            f"{target.name} has none of the endings {', '.join(endings)}: say --format."
        )
    damaged: list[StoreError] = []
    with _existing(store) as opened:
        check_output(target, [opened.path])
        written = export(opened.records(filters, damaged=damaged), chosen, target)
    if printer.json:
        printer.result({"file": target, "format": chosen, "trials": written})
    printer.note(f"{written} trials written to {target}")
    leave_if_damaged(damaged)


@app.command("import")
@with_groups
def import_(
    *,
    source: Annotated[Path, typer.Argument(help="A JSON file that `results export` wrote.")],
    store: o.StorePath = None,
    printer: Printing,
) -> None:
    """Add the trials of an exported JSON file, all or none; what the store has stays as it is."""
    records = read_export(source)
    with Store(store_path(store)) as opened:
        new = opened.add_all(records)
    counts = {"read": len(records), "new": new}
    printer.result(counts, f"{len(records)} trials read, {new} of them new")


class Whose(StrEnum):
    """Whose result of a trial to keep, if two stores differ."""

    OURS = "ours"
    THEIRS = "theirs"


@app.command("merge")
@with_groups
def merge_(
    *,
    other: Annotated[Path, typer.Argument(metavar="OTHER.db", help="The store to take from.")],
    prefer: Annotated[
        Whose | None,
        typer.Option(help="Whose result to keep where the two differ. Default: refuse."),
    ] = None,
    store: o.StorePath = None,
    printer: Printing,
) -> None:
    """Add the trials of another store, all or none; the other one is only read.

    A trial that both have, with the same result, stays as it is. If their results differ, nothing
    is merged and the trials are named, unless you say --prefer.

    Example: `remask results merge from-the-cluster.db`
    """
    if not other.exists():  # said before a store is made for nothing
        raise StoreError(f"there are no results at {other}: no such file.")
    with Store(store_path(store)) as opened:
        merged = merge(opened, other, prefer=None if prefer is None else prefer.value)
    told = f"{merged.read} trials read, {merged.new} of them new"
    if merged.replaced:
        told += f", {merged.replaced} in place of others"
    if merged.kept:
        told += f", {merged.kept} left out for those that are here"
    printer.result(merged, told)


@app.command()
@with_groups
def delete(
    *,
    filters: o.Filters,
    every: Annotated[bool, typer.Option("--all", help="Every trial of the store.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them without a question.")] = False,
    store: o.StorePath = None,
    printer: Printing,
) -> None:
    """Remove the results that pass all filters, once you have confirmed it."""
    if bool(filters) == every:
        raise StoreError(
            "say which results to delete, by the filters of `remask results list` or by --hash, "
            "or say --all; not both. Nothing was deleted."
        )
    with _existing(store) as opened:
        found = list(opened.unchecked(filters))
        if not found:
            printer.result({"deleted": []}, "No trial matches.")
            return
        for line in _outlined(found):
            printer.note(line)
        what = f"{len(found)} trial{'s' * (len(found) > 1)}"
        if not yes and not confirmed(
            f"Delete {what} from {opened.path}?", "nothing was deleted", "delete"
        ):
            printer.note("Nothing was deleted.")
            raise typer.Exit(1)
        hashes = [trial.config_hash for trial in found]
        gone = opened.delete(hashes)
    printer.result({"deleted": hashes}, f"{gone} trial{'s' * (gone != 1)} deleted")


@app.command("compare")
@with_groups
def compare_(
    *,
    filters: o.Filters,
    markdown: o.Markdown = False,
    store: o.StorePath = None,
    printer: Printing,
) -> None:
    """Put results beside the published figures, where the settings are the published ones."""
    from remask.experiments import Results  # torch: not before it is needed

    damaged: list[StoreError] = []
    with _existing(store) as opened:
        compared = Results(opened.records(filters, damaged=damaged)).compare()
    if printer.json or not compared:
        published = compared_shape(compared)
        printer.result(published, str(compared))
    else:
        print_comparison(compared, markdown=markdown)
    leave_if_damaged(damaged)


def _outlined(trials: Sequence[TrialSummary]) -> list[str]:
    """A line for all trials of one benchmark, method, mask, buffer and status."""
    seeds: dict[tuple[object, ...], list[str]] = {}
    for trial in trials:
        cell = (trial.benchmark, trial.method, trial.mask, trial.buffer, trial.status)
        seeds.setdefault(cell, []).append(str(trial.seed))
    return [
        f"{benchmark}  {method}  mask {'none' if mask is None else mask}  buffer {buffer}  "
        f"{status}  {'seeds' if len(own) > 1 else 'seed'} {', '.join(own[:_SEEDS_SHOWN])}"
        + (f" and {len(own) - _SEEDS_SHOWN} more" if len(own) > _SEEDS_SHOWN else "")
        for (benchmark, method, mask, buffer, status), own in seeds.items()
    ]


def _existing(store: Path | None) -> Store:
    return Store(store_path(store), create=False)
