"""`remask methods`, `benchmarks`, `encoders`, `data`, `doctor`, `check` and `new`."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from remask.cli.app import Printer, Printing, exit_if_any
from remask.cli.options import BENCHMARK, DATA_NAME, METHOD, NET, StorePath, arg, flag, one_of, opt
from remask.errors import RemaskError, SettingsError
from remask.names import SUMMARIES
from remask.starting_points import KINDS, write_starting_point

if TYPE_CHECKING:
    from remask.data.dataset import Dataset

DatasetName = Annotated[
    str | None,
    arg("NAME", "A dataset or benchmark, such as mnist. Default: all.", autocompletion=DATA_NAME),
]


def methods(*, printer: Printing) -> None:
    """List the methods."""
    _list(printer, SUMMARIES)


def benchmarks(*, printer: Printing) -> None:
    """List the benchmarks."""
    from remask.data.registry import BENCHMARKS

    _list(printer, {name: info.summary for name, info in BENCHMARKS.items()})


def _list(printer: Printer, summaries: Mapping[str, str]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    for name, summary in summaries.items():
        table.add_row(name, summary)
    printer.result([{"name": name, "summary": text} for name, text in summaries.items()], table)


def encoders(*, printer: Printing) -> None:
    """List the pretrained encoders of photographs and texts."""
    from remask.encoders.catalogue import known_encoders

    table = Table(box=None, pad_edge=False)
    table.add_column("name", style="bold", min_width=18)
    table.add_column("of")
    for title in ("MB", "features"):
        table.add_column(title, justify="right")
    for title in ("licence", "installed"):
        table.add_column(title, overflow="fold")
    for info in known_encoders():
        megabytes = "" if info.megabytes is None else f"{info.megabytes:.0f}"
        features = "" if info.features is None else f"{info.features:,}"
        installed = "yes" if info.installed else f"no: {info.install}"
        table.add_row(info.name, info.kind, megabytes, features, info.licence, installed)
    found = [{**asdict(info), "install": info.install} for info in known_encoders()]
    printer.result(found, table)


def fetch(
    *,
    name: DatasetName = None,
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


def verify(*, name: DatasetName = None, printer: Printing) -> None:
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
        advice = "fetches missing data; --force replaces damaged files"
        exit_if_any([f"`remask data fetch NAME` {advice}."])


def where(*, name: DatasetName = None, printer: Printing) -> None:
    """Print the folder a dataset is, or would be, in."""
    from remask.data import dataset as datasets

    folders = {dataset.name: datasets.where(dataset) for dataset in _chosen(name)}
    printer.result(folders, *(f"{name}: {folder}" for name, folder in folders.items()))


def _chosen(name: str | None) -> "list[Dataset]":
    from remask.data.registry import BENCHMARKS, DATASETS, find_dataset

    if name is None:
        return list(DATASETS.values())
    return [BENCHMARKS[name].dataset if name in BENCHMARKS else find_dataset(name)]


DATA_COMMANDS = {"fetch": fetch, "verify": verify, "where": where}


def doctor(*, store: StorePath = None, printer: Printing) -> None:
    """Check this installation, its store and its runs.

    It looks at versions, devices, threads, memory, disks, data, the store, unfinished runs, their
    checkpoints and extras, prints what to do, and changes nothing. The exit code is 1 if something
    is wrong.
    """
    try:
        from remask.experiments.doctor import examine  # torch: not before it is needed
    except ImportError as error:
        raise RemaskError(
            f"a package that remask needs cannot be imported: {error}. Reinstall it, such as "
            f"by `pip install --force-reinstall {error.name or 'torch'}`."
        ) from error
    found = examine(store)
    lines = (
        (each.state, f"{each.subject:<12} {each.text}{f': {each.remedy}' * bool(each.remedy)}")
        for each in found
    )
    printer.states(lines, {"ok": "green", "note": "yellow", "wrong": "bold red"})
    is_wrong = any(symptom.state == "wrong" for symptom in found)
    printer.result({"sound": not is_wrong, "symptoms": found})
    if is_wrong:
        raise typer.Exit(1)


def check(
    *,
    method: Annotated[
        str, arg("METHOD", "Your own, `module:Class`, or one of remask's.", autocompletion=METHOD)
    ],
    net: Annotated[
        str, opt("NAME", "The net to check it with, or `module:function`.", autocompletion=NET)
    ] = "mlp",
    benchmark: Annotated[
        str,
        opt("NAME", "The data, or `module:function`; it is cut short.", autocompletion=BENCHMARK),
    ] = "split-digits",
    weight: Annotated[
        list[str], opt("NAME=X", "A weight of the method, by name. May be repeated.")
    ] = [],  # noqa: B006 - typer makes a new list per call
    printer: Printing,
) -> None:
    """Check a method of your own for silent errors, in seconds.

    Example: `remask check my_method:WeightedReplay --weight past=2`
    """
    import torch  # takes seconds: not before it is needed

    from remask.checking import check_method
    from remask.experiments.configs import read_weights

    torch.set_num_threads(1)
    given = read_weights(weight)
    if any(len(values) > 1 for values in given.values()):
        raise SettingsError("give one value per weight")
    weights = {name: values[0] for name, values in given.items()}
    found = check_method(method, net=net, benchmark=benchmark, weights=weights)
    lines = ((each.outcome, f"{each.check:<12} {each.text}") for each in found)
    printer.states(lines, {"passed": "green", "failed": "bold red", "not checked": "yellow"})
    printer.result(found)
    if any(finding.outcome == "failed" for finding in found):
        raise typer.Exit(1)


def new(
    *,
    kind: Annotated[str, arg("KIND", "`method`, `net` or `data`.", autocompletion=one_of(KINDS))],
    name: Annotated[str, arg("NAME", "Its module, such as `my_method`.")],
    printer: Printing,
) -> None:
    """Write a method, net or data of your own to start from.

    NAME.py has comments and works unchanged. An existing file is never replaced.

    Example: `remask new method my_method`
    """
    written = write_starting_point(kind, name)
    printer.result(written, str(written.file))
    printer.note(f"It is {written.name}. Check it with `{written.check}`.")
