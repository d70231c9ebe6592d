"""`remask methods`, `benchmarks`, `encoders` and `data`: what there is, and fetching datasets."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table

from remask.cli.command import Printer, Printing, arg, exit_if_any, flag, opt
from remask.cli.completion import DATA_NAME
from remask.names import SUMMARIES

if TYPE_CHECKING:
    from remask.data.dataset import Dataset

Name = Annotated[
    str | None,
    arg("NAME", "A dataset or benchmark, such as mnist. Default: all.", autocompletion=DATA_NAME),
]


def methods(*, printer: Printing) -> None:
    """List the methods."""
    _print(printer, SUMMARIES)


def benchmarks(*, printer: Printing) -> None:
    """List the benchmarks."""
    from remask.data.registry import BENCHMARKS

    _print(printer, {name: info.summary for name, info in BENCHMARKS.items()})


def encoders(*, printer: Printing) -> None:
    """List the pretrained encoders of photographs and texts."""
    from remask.encoders.catalogue import known_encoders

    table = Table(box=None, pad_edge=False)
    for title in ("name", "of", "MB", "features", "licence", "installed"):
        style, right = "bold" if title == "name" else None, title in ("MB", "features")
        table.add_column(title, style=style, justify="right" if right else "left", overflow="fold")
    for info in known_encoders():
        megabytes = "" if info.megabytes is None else f"{info.megabytes:.0f}"
        features = "" if info.features is None else f"{info.features:,}"
        installed = "yes" if info.installed else f"no: {info.install}"
        table.add_row(info.name, info.kind, megabytes, features, info.licence, installed)
    found = [{**asdict(info), "install": info.install} for info in known_encoders()]
    printer.result(found, table)


def fetch(
    *,
    name: Name = None,
    force: Annotated[bool, flag("--force", "Replace existing files.")] = False,
    data: Annotated[
        Path | None, opt("PATH", "A folder or archive that has the dataset already.")
    ] = None,
    printer: Printing,
) -> None:
    """Fetch a dataset, check it, and keep it in the cache."""
    from remask.data import dataset as datasets
    from remask.experiments.display import download_bar

    folders = {}
    for dataset in _chosen(name):
        with download_bar(printer.console) as bar:
            folders[dataset.name] = datasets.fetch(dataset, force=force, progress=bar, data=data)
        printer.show(f"{dataset.name}: {folders[dataset.name]}")
    printer.result(folders)


def verify(*, name: Name = None, printer: Printing) -> None:
    """Check every file against its checksum; exit with 1 if one is missing or damaged."""
    from remask.data import dataset as datasets

    files = []
    for dataset in _chosen(name):
        for status in datasets.check(dataset):
            line = f"{dataset.name}: {status.path}: {status.state}"
            if status.state == "damaged":
                line += f" (expected {status.expected}, found {status.found})"
            printer.show(line)
            files.append({"dataset": dataset.name, "path": status.path, "state": status.state})
    printer.result(files)
    if any(file["state"] != "ok" for file in files):
        exit_if_any(["Run `remask data fetch NAME --force` to replace these files."])


def where(*, name: Name = None, printer: Printing) -> None:
    """Print the folder a dataset is, or would be, in."""
    from remask.data import dataset as datasets

    folders = {dataset.name: datasets.where(dataset) for dataset in _chosen(name)}
    printer.result(folders, *(f"{name}: {folder}" for name, folder in folders.items()))


def _chosen(name: str | None) -> "list[Dataset]":
    from remask.data.registry import BENCHMARKS, DATASETS, find_dataset

    if name is None:
        return list(DATASETS.values())
    return [BENCHMARKS[name].dataset if name in BENCHMARKS else find_dataset(name)]


def _print(printer: Printer, summaries: Mapping[str, str]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    for name, summary in summaries.items():
        table.add_row(name, summary)
    printer.result([{"name": name, "summary": text} for name, text in summaries.items()], table)


DATA_COMMANDS = {"fetch": fetch, "verify": verify, "where": where}
