"""`remask undo`: go back to before the last visit of a learner."""

from remask.cli import options as o
from remask.cli.generated import with_groups
from remask.cli.printer import Printing


@with_groups
def undo(
    folder: o.LearnerFolder,
    *,
    discard: o.DiscardVisit = False,
    encoder: o.OwnEncoder = None,
    net: o.OwnNet = None,
    method: o.OwnMethod = None,
    printer: Printing,
) -> None:
    """Go back to before the last visit of a learner, as if it had not been learnt.

    Repeat it to go back further, by up to `--keep-generations` visits. A class that was forgotten
    does not come back.

    Example: `remask undo animals`
    """
    from remask import Learner  # torch: not before it is needed

    undone = Learner.open(folder, encoder=encoder, net=net, method=method).undo(discard=discard)
    printer.result(undone, str(undone))
