"""`remask doctor`, `remask check` and `remask new`."""

from typing import Annotated, Any

import typer

from remask.cli import options as o
from remask.cli.command import Printing, arg, opt
from remask.cli.completion import BENCHMARK, METHOD, NET, one_of
from remask.errors import RemaskError, SettingsError
from remask.setting_types import read_weights
from remask.starting_points import KINDS, write_starting_point


def doctor(*, store: o.StorePath = None, printer: Printing) -> None:
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
    settings: Annotated[dict[str, Any], o.SETTINGS.only("weights")],
    printer: Printing,
) -> None:
    """Check a method of your own for silent errors, in seconds.

    Example: `remask check my_method:WeightedReplay --weight past=2`
    """
    import torch  # takes seconds: not before it is needed

    from remask.checking import check_method

    torch.set_num_threads(1)
    given = read_weights(settings.get("weights", ()))
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
