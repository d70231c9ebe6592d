"""`remask rename`: give a class another name, or merge two classes."""

from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.generated import with_groups
from remask.cli.printer import Printing


@with_groups
def rename(
    folder: o.LearnerFolder,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The class.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    *,
    merge: Annotated[
        bool, typer.Option("--merge", help="Make one class of OLD and NEW, which both exist.")
    ] = False,
    discard: o.DiscardVisit = False,
    encoder: o.OwnEncoder = None,
    net: o.OwnNet = None,
    method: o.OwnMethod = None,
    printer: Printing,
) -> None:
    """Give a class of a learner another name, or merge it with another class.

    The history and the generations that `remask undo` goes back to are renamed as well.

    Example: `remask rename animals kat cat`
    """
    from remask import Learner  # torch: not before it is needed

    learner = Learner.open(folder, encoder=encoder, net=net, method=method)
    learner.rename(old, new, merge=merge, discard=discard)
    done = f"merged {old} with {new}" if merge else f"renamed {old} to {new}"
    printer.result({"old": old, "new": new, "merged": merge}, done)
