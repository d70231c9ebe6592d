"""`remask show`: what a learner is and has learnt."""

from remask.cli import options as o
from remask.cli.generated import with_groups
from remask.cli.printer import Printing


@with_groups
def show(folder: o.LearnerFolder, *, printer: Printing) -> None:
    """Show the classes of a learner, its memory, settings, generations and size.

    Example: `remask show animals`
    """
    from remask.learner.summary import summarise  # torch: not before it is needed

    found = summarise(folder)
    printer.result(found, str(found))
