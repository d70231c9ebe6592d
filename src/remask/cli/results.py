"""`remask results`: list, show, export."""

import json
from pathlib import Path
from typing import Annotated

import typer

from remask.cli.console import output
from remask.cli.options import StorePath, store_path
from remask.names import system_name
from remask.report import results_table
from remask.store import FORMATS, Store, StoreError, export, scores, summarise, trial_json

app = typer.Typer(no_args_is_help=True, help="Look at what the store holds.")

Benchmark = Annotated[str | None, typer.Option(help="Only these benchmarks, comma-separated.")]
Method = Annotated[str | None, typer.Option(help="Only these methods.")]
Mask = Annotated[str | None, typer.Option(help="Only these masks, such as `none,-inf`.")]
Buffer = Annotated[str | None, typer.Option(help="Only these buffer sizes.")]
Seed = Annotated[str | None, typer.Option(help="Only these seeds.")]
Status = Annotated[str | None, typer.Option(help="Only finished, diverged or failed trials.")]
Since = Annotated[str | None, typer.Option(help="Only what was made since, such as 2026-01-31.")]


@app.command("list")
def list_(
    benchmark: Benchmark = None,
    method: Method = None,
    mask: Mask = None,
    buffer: Buffer = None,
    seed: Seed = None,
    status: Status = None,
    since: Since = None,
    trials: Annotated[
        bool, typer.Option("--trials", help="A line per trial, with its hash, not per cell.")
    ] = False,
    store: StorePath = None,
) -> None:
    """Print the results, a row for all trials that differ in their seed only."""
    filters = _filters(benchmark, method, mask, buffer, seed, status, since)
    with _existing(store) as opened:
        records = list(opened.records(filters))
    if not records:
        output.print("No trial matches.")
    elif not trials:
        output.print(results_table(summarise(records)))
    else:
        for record in records:
            system = system_name(record.config.method, record.config.mask)
            output.print(
                f"{record.config_hash[:12]}  {record.config.benchmark}  {system}  "
                f"buffer {record.config.buffer}  seed {record.seed}  {record.status}  "
                f"Class-IL A_T {scores(record)['class_il_A_T']:.2f}",
                highlight=False,
                soft_wrap=True,
            )


@app.command()
def show(
    hash: Annotated[str, typer.Argument(help="The trial's hash, or enough of its beginning.")],  # noqa: A002
    store: StorePath = None,
) -> None:
    """Print everything that is kept of one trial, as JSON."""
    with _existing(store) as opened:
        record = opened.find(hash)
    typer.echo(json.dumps(trial_json(record), indent=2))


@app.command("export")
def export_(
    target: Annotated[Path, typer.Argument(help="The file to write.")],
    format: Annotated[  # noqa: A002
        str | None,
        typer.Option(help=f"One of {', '.join(FORMATS)}. Default: by the file's ending."),
    ] = None,
    benchmark: Benchmark = None,
    method: Method = None,
    mask: Mask = None,
    buffer: Buffer = None,
    seed: Seed = None,
    status: Status = None,
    since: Since = None,
    store: StorePath = None,
) -> None:
    """Write results to a file: CSV, Parquet, JSON (everything), or a LaTeX table of means."""
    endings = {".csv": "csv", ".parquet": "parquet", ".json": "json", ".tex": "latex"}
    chosen = format or endings.get(target.suffix)
    if chosen is None:
        raise StoreError(
            f"{target.name} has none of the endings {', '.join(endings)}: say --format."
        )
    with _existing(store) as opened:
        records = list(
            opened.records(_filters(benchmark, method, mask, buffer, seed, status, since))
        )
    export(records, chosen, target)
    output.print(f"{len(records)} trials written to {target}", highlight=False, soft_wrap=True)


def _existing(store: Path | None) -> Store:
    return Store(store_path(store), create=False)


def _filters(
    benchmark: str | None,
    method: str | None,
    mask: str | None,
    buffer: str | None,
    seed: str | None,
    status: str | None,
    since: str | None,
) -> dict[str, object]:
    given = {
        "benchmark": benchmark, "method": method, "mask": mask, "buffer": buffer, "seed": seed,
        "status": status,
    }  # fmt: skip
    filters: dict[str, object] = {
        name: [part.strip() for part in text.split(",")]
        for name, text in given.items()
        if text is not None
    }
    return filters if since is None else {**filters, "since": since}
