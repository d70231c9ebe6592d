"""`remask check`: the first thing to run on your own method."""

from typing import Annotated, Any

import typer

from remask.cli import options as o
from remask.cli.completing import BENCHMARK, METHOD, NET
from remask.cli.console import output
from remask.cli.generated import with_groups
from remask.cli.printer import Printing
from remask.errors import SettingsError
from remask.setting_types import read_weights

_STYLES = {"passed": "green", "failed": "bold red", "not checked": "yellow"}


@with_groups
def check(
    *,
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD",
            help="Your own, `module:Class`, or one of remask's.",
            autocompletion=METHOD,
        ),
    ],
    net: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The net to check it with, or `module:function`.",
            autocompletion=NET,
        ),
    ] = "mlp",
    benchmark: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The data, or `module:function`; it is cut short.",
            autocompletion=BENCHMARK,
        ),
    ] = "split-digits",
    settings: Annotated[dict[str, Any], o.SETTINGS.only("weights")],
    printer: Printing,
) -> None:
    """Find what would go wrong in a long run without a word: a few seconds on a method of yours.

    Example: `remask check my_method:WeightedReplay --weight past=2`
    """
    import torch  # takes seconds: not before it is needed

    from remask.checking import check_method

    torch.set_num_threads(1)
    given = read_weights(settings.get("weights", ()))
    if any(len(values) > 1 for values in given.values()):
        raise SettingsError("give one value per weight")
    weights = {name: values[0] for name, values in given.items()}
    findings = check_method(method, net=net, benchmark=benchmark, weights=weights)
    if printer.json:
        printer.result(findings)
    for finding in [] if printer.json else findings:
        output.print(f"{finding.outcome:<12}", style=_STYLES[finding.outcome], end="")
        line = f"{finding.check:<12} {finding.text}"
        output.print(line, markup=False, highlight=False, soft_wrap=True)
    if any(finding.outcome == "failed" for finding in findings):
        raise typer.Exit(1)
