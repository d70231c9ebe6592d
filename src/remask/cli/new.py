"""`remask new`: a starting point for a method, a net or data of your own."""

from enum import StrEnum
from typing import Annotated

import typer

from remask.cli.generated import with_groups
from remask.cli.printer import Printing


class Kind(StrEnum):
    """What a starting point is of."""

    METHOD = "method"
    NET = "net"
    DATA = "data"


@with_groups
def new(
    *,
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help="`method`, `net` or `data`.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its module, such as `my_method`.")],
    printer: Printing,
) -> None:
    """Write a method, net or data of your own to start from, with comments, to NAME.py.

    It works as it is. A file that is there is never replaced.

    Example: `remask new method my_method`
    """
    from remask.starting_points import write_starting_point

    written = write_starting_point(kind.value, name)
    printer.result(written, str(written.file))
    printer.note(f"It is {written.name}. Check it with `{written.check}`.")
