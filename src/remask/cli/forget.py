"""`remask forget`: remove a class from a learner for good."""

from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.console import output
from remask.cli.printing import confirmed


def forget(
    folder: o.LearnerFolder,
    name: Annotated[str, typer.Argument(metavar="CLASS", help="The class to forget.")],
    *,
    retrain: Annotated[
        bool,
        typer.Option("--retrain", help="Train a new net from what the memory has of the others."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Forget it without a question.")] = False,
    net: o.OwnNet = None,
    method: o.OwnMethod = None,
    device: o.Device = "cpu",
) -> None:
    """Remove a class, its samples and what was stored with them from every file of a learner.

    Example: `remask forget animals cat`
    """
    from remask import Learner  # torch: not before it is needed

    with Learner.open(folder, net=net, method=method, device=device) as learner:
        if (
            name in learner.classes
            and not yes
            and not confirmed(f"Forget {name} for good?", "nothing was forgotten", "forget")
        ):
            output.print("Nothing was forgotten.")
            raise typer.Exit(1)
        forgotten = learner.forget(name, retrain=retrain)
    output.print(str(forgotten), highlight=False, soft_wrap=True)
