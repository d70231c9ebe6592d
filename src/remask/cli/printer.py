"""How a command prints: its result for people or as JSON, and what it says on the way.

Results go to standard output, everything else to standard error. Every command has the two options:

    @with_groups
    def methods(*, printer: Printing) -> None: ...
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Annotated

from remask.cli.console import errors, output, write_out
from remask.cli.generated import Group, option

if TYPE_CHECKING:
    from remask.console import PlainConsole
    from remask.runs.options import RunOptions

_PANEL = "What to print"


@dataclass(frozen=True)
class Printer:
    """Prints the results of one command."""

    json: bool = False
    """Print results as JSON."""
    quiet: bool = False
    """Print results and errors, and nothing else."""

    def result(self, value: object, *texts: str) -> None:
        """Print a result: `value` as JSON, or the texts, which are for people."""
        if self.json:
            # Strict JSON: what is not a number is null, and paths are texts.
            write_out(json.dumps(_plain(value), indent=1, allow_nan=False) + "\n")
        else:
            for text in texts:
                output.print(text, highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Say something that is no result, on standard error."""
        self.console.print(text, highlight=False, soft_wrap=True)

    @property
    def console(self) -> "PlainConsole":
        """Where to say what happens on the way."""
        from remask.console import silence

        return silence if self.quiet else errors

    def applied_to(self, options: "RunOptions") -> "RunOptions":
        """The options of a run that says no more than this printer does."""
        return options.model_copy(update={"progress": False}) if self.quiet else options


PRINTING = Group(
    (
        option("json", "Print JSON, for programs.", None, _PANEL, bool, "--json"),
        option("quiet", "Print results and errors only.", None, _PANEL, bool, "--quiet"),
    ),
    make=Printer,
)
Printing = Annotated[Printer, PRINTING]


def _plain(value: object) -> object:
    """What JSON has for a value."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
