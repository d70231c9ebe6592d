"""`remask data`: fetch, verify, where."""

from typing import TYPE_CHECKING, Annotated

import typer

from remask.cli import options as o
from remask.cli.commands import COMMANDS, MARKUP
from remask.cli.console import errors, output

if TYPE_CHECKING:
    from remask.datasets import Dataset

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=MARKUP,
    help=COMMANDS["data"].summary,
)

Name = Annotated[
    str | None, typer.Argument(help="A dataset or benchmark, such as mnist. Default: all.")
]


@app.command()
def fetch(
    name: Name = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    data: o.Data = None,
) -> None:
    """Fetch a dataset, check it, and keep it in the cache."""
    from remask import datasets
    from remask.experiments import download_bar

    for dataset in _chosen(name):
        with download_bar() as bar:
            path = datasets.fetch(dataset, force=force, progress=bar, data=data)
        output.print(f"{dataset.name}: {path}", highlight=False, soft_wrap=True)


@app.command()
def verify(name: Name = None) -> None:
    """Check every file against its checksum; exit with 1 if one is missing or damaged."""
    from remask import datasets

    sound = True
    for dataset in _chosen(name):
        for status in datasets.verify(dataset):
            sound &= status.state == "ok"
            line = f"{dataset.name}: {status.path}: {status.state}"
            if status.state == "damaged":
                line += f" (expected {status.expected}, found {status.found})"
            output.print(line, highlight=False, soft_wrap=True)
    if not sound:
        errors.print("Run `remask data fetch NAME --force` to replace what is wrong.")
        raise typer.Exit(1)


@app.command()
def where(name: Name = None) -> None:
    """Print the folder a dataset is, or would be, in."""
    from remask import datasets

    for dataset in _chosen(name):
        output.print(f"{dataset.name}: {datasets.where(dataset)}", highlight=False, soft_wrap=True)


def _chosen(name: str | None) -> "list[Dataset]":
    from remask.benchmarks import BENCHMARKS
    from remask.datasets import DATASETS, find_dataset

    if name is None:
        return list(DATASETS.values())
    return [BENCHMARKS[name].dataset if name in BENCHMARKS else find_dataset(name)]
