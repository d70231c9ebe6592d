"""`remask data`: fetch, verify, where."""

from typing import TYPE_CHECKING, Annotated

import typer

from remask.cli import options as o
from remask.cli.commands import COMMANDS, MARKUP
from remask.cli.completing import DATA_NAME
from remask.cli.console import errors
from remask.cli.generated import with_groups
from remask.cli.printer import Printing

if TYPE_CHECKING:
    from remask.datasets import Dataset

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=MARKUP,
    help=COMMANDS["data"].summary,
)

Name = Annotated[
    str | None,
    typer.Argument(
        help="A dataset or benchmark, such as mnist. Default: all.", autocompletion=DATA_NAME
    ),
]


@app.command()
@with_groups
def fetch(
    *,
    name: Name = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    data: o.Data = None,
    printer: Printing,
) -> None:
    """Fetch a dataset, check it, and keep it in the cache."""
    from remask import datasets
    from remask.experiments import download_bar

    there = {}
    for dataset in _chosen(name):
        with download_bar(printer.console) as bar:
            there[dataset.name] = datasets.fetch(dataset, force=force, progress=bar, data=data)
        if not printer.json:  # said at once: the next one may take minutes
            printer.result(None, f"{dataset.name}: {there[dataset.name]}")
    if printer.json:
        printer.result(there)


@app.command()
@with_groups
def verify(*, name: Name = None, printer: Printing) -> None:
    """Check every file against its checksum; exit with 1 if one is missing or damaged."""
    from remask import datasets

    files = []
    for dataset in _chosen(name):
        for status in datasets.verify(dataset):
            line = f"{dataset.name}: {status.path}: {status.state}"
            if status.state == "damaged":
                line += f" (expected {status.expected}, found {status.found})"
            if not printer.json:
                printer.result(None, line)
            files.append({"dataset": dataset.name, "path": status.path, "state": status.state})
    if printer.json:
        printer.result(files)
    if any(file["state"] != "ok" for file in files):
        errors.print("Run `remask data fetch NAME --force` to replace what is wrong.")
        raise typer.Exit(1)


@app.command()
@with_groups
def where(*, name: Name = None, printer: Printing) -> None:
    """Print the folder a dataset is, or would be, in."""
    from remask import datasets

    folders = {dataset.name: datasets.where(dataset) for dataset in _chosen(name)}
    printer.result(folders, *(f"{name}: {folder}" for name, folder in folders.items()))


def _chosen(name: str | None) -> "list[Dataset]":
    from remask.benchmarks import BENCHMARKS
    from remask.datasets import DATASETS, find_dataset

    if name is None:
        return list(DATASETS.values())
    return [BENCHMARKS[name].dataset if name in BENCHMARKS else find_dataset(name)]
