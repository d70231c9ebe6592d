"""`remask results`: list, show, compare, export, import."""

import json
from pathlib import Path
from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.console import output
from remask.cli.printing import print_comparison
from remask.report import compare, paper_cell, results_table
from remask.store import (
    FORMATS,
    Store,
    StoreError,
    export,
    read_export,
    scores,
    summarise,
    trial_json,
)

app = typer.Typer(no_args_is_help=True, help="Look at what the store holds.")


@app.command("list")
def list_(
    context: typer.Context,
    benchmark: o.OnlyBenchmarks = None,
    method: o.OnlyMethods = None,
    mask: o.OnlyMasks = None,
    buffer: o.OnlyBuffers = None,
    seed: o.OnlySeeds = None,
    status: o.OnlyStatus = None,
    since: o.Since = None,
    trials: Annotated[
        bool, typer.Option("--trials", help="A line per trial, with its hash, not per cell.")
    ] = False,
    store: o.StorePath = None,
) -> None:
    """Print the results, a row for all trials that differ in their seed only.

    Means of the finished trials ± their population standard deviation, which one trial has not.
    """
    with _existing(store) as opened:
        records = list(opened.records(o.filters(context)))
    if not records:
        output.print("No trial matches.")
    elif not trials:
        output.print(results_table(summarise(records)))
    else:
        for record in records:
            output.print(
                f"{record.config_hash[:12]}  {record.config.benchmark}  {record.system}  "
                f"buffer {record.config.buffer}  seed {record.seed}  {record.status}  "
                f"Class-IL A_T {scores(record)['class_il_A_T']:.2f}",
                highlight=False,
                soft_wrap=True,
            )


@app.command()
def show(
    hash: Annotated[str, typer.Argument(help="The trial's hash, or enough of its beginning.")],  # noqa: A002
    store: o.StorePath = None,
) -> None:
    """Print everything that is kept of one trial, as JSON."""
    with _existing(store) as opened:
        record = opened.find(hash)
    typer.echo(json.dumps(trial_json(record), indent=2))


@app.command("export")
def export_(
    context: typer.Context,
    target: Annotated[Path, typer.Argument(help="The file to write.")],
    format: Annotated[  # noqa: A002
        str | None,
        typer.Option(help=f"One of {', '.join(FORMATS)}. Default: by the file's ending."),
    ] = None,
    benchmark: o.OnlyBenchmarks = None,
    method: o.OnlyMethods = None,
    mask: o.OnlyMasks = None,
    buffer: o.OnlyBuffers = None,
    seed: o.OnlySeeds = None,
    status: o.OnlyStatus = None,
    since: o.Since = None,
    store: o.StorePath = None,
) -> None:
    """Write results to a file: CSV, Parquet, JSON (everything), or a LaTeX table of means."""
    endings = {".csv": "csv", ".parquet": "parquet", ".json": "json", ".tex": "latex"}
    chosen = format or endings.get(target.suffix)
    if chosen is None:
        raise StoreError(
            f"{target.name} has none of the endings {', '.join(endings)}: say --format."
        )
    with _existing(store) as opened:
        records = list(opened.records(o.filters(context)))
    export(records, chosen, target)
    output.print(f"{len(records)} trials written to {target}", highlight=False, soft_wrap=True)


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help="A JSON file that `results export` wrote.")],
    store: o.StorePath = None,
) -> None:
    """Add the trials of an exported JSON file; what the store has stays as it is."""
    records = read_export(source)
    with o.open_store(store) as opened:
        new = sum(opened.add(record) for record in records)
    output.print(f"{len(records)} trials read, {new} of them new", highlight=False)


@app.command("compare")
def compare_(
    context: typer.Context,
    benchmark: o.OnlyBenchmarks = None,
    method: o.OnlyMethods = None,
    mask: o.OnlyMasks = None,
    buffer: o.OnlyBuffers = None,
    markdown: o.Markdown = False,
    store: o.StorePath = None,
) -> None:
    """Put results beside the published figures, where the settings are the published ones."""
    from remask.settings import changed_settings  # torch: not before it is needed

    with _existing(store) as opened:
        cells = summarise(opened.records(o.filters(context)))
    cells = [cell for cell in cells if not changed_settings(cell.config)]
    compared = [cell for cell in compare([paper_cell(c) for c in cells], cells) if cell.figures]
    if not compared:
        output.print("Nothing is published about any of these results.")
        return
    print_comparison(compared, markdown=markdown)


def _existing(store: Path | None) -> Store:
    return Store(o.store_path(store), create=False)
