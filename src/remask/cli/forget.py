"""`remask forget`: remove a class from a learner for good."""

from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.generated import with_groups
from remask.cli.printer import Printing
from remask.cli.printing import confirmed


@with_groups
def forget(
    folder: o.LearnerFolder,
    name: Annotated[str, typer.Argument(metavar="CLASS", help="The class to forget.")],
    *,
    retrain: Annotated[
        bool,
        typer.Option("--retrain", help="Train a new net from what the memory has of the others."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Forget it without a question.")] = False,
    encoder: o.OwnEncoder = None,
    net: o.OwnNet = None,
    method: o.OwnMethod = None,
    device: o.Device = "cpu",
    printer: Printing,
) -> None:
    """Remove a class, its samples and what was stored with them from every file of a learner.

    Example: `remask forget animals cat`
    """
    from remask import Learner  # torch: not before it is needed

    learner = Learner.open(folder, encoder=encoder, net=net, method=method, device=device)
    if (
        name in learner.classes
        and not yes
        and not confirmed(f"Forget {name} for good?", "nothing was forgotten", "forget")
    ):
        printer.note("Nothing was forgotten.")
        raise typer.Exit(1)
    forgotten = learner.forget(name, retrain=retrain)
    printer.result(forgotten, str(forgotten))
