"""`remask doctor`: what is wrong, and what to do."""

import typer

from remask.cli import options as o
from remask.cli.console import output
from remask.cli.generated import with_groups
from remask.cli.printer import Printing
from remask.errors import RemaskError

_STYLES = {"ok": "green", "note": "yellow", "wrong": "bold red"}


@with_groups
def doctor(*, store: o.StorePath = None, printer: Printing) -> None:
    """Find what is wrong with this installation, its store and its runs, and say what to do.

    It looks at versions, devices, threads, memory, disks, data, the store, unfinished runs, their
    checkpoints and extras, and changes nothing. The exit code is 1 if something is wrong.
    """
    try:
        from remask.experiments import examine  # torch: not before it is needed
    except ImportError as error:
        raise RemaskError(
            f"a package that remask needs cannot be imported: {error}. Install it again, such as "
            f"by `pip install --force-reinstall {error.name or 'torch'}`."
        ) from error
    found = examine(store)
    wrong = [symptom for symptom in found if symptom.state == "wrong"]
    if printer.json:
        printer.result({"sound": not wrong, "symptoms": found})
    else:
        for symptom in found:
            output.print(f"{symptom.state:<6}", style=_STYLES[symptom.state], end="")
            remedy = f": {symptom.remedy}" if symptom.remedy else ""
            line = f"{symptom.subject:<12} {symptom.text}{remedy}"
            output.print(line, highlight=False, soft_wrap=True)
    if wrong:
        raise typer.Exit(1)
