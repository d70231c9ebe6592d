"""What was not read of users' data, and why."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from remask.datasets import DataError
from remask.printable import printable

SKIP_UNREADABLE = "REMASK_SKIP_UNREADABLE"
"""In the environment, so that it reaches a user's own function in every worker process."""
_SHOWN = 10


class UnreadableImageWarning(UserWarning):
    """Samples were skipped because they cannot be read; the message names them."""


@dataclass(frozen=True)
class Unreadable:
    """A sample that cannot be read."""

    source: str
    """Its file, or the file and the line."""
    reason: str

    def __str__(self) -> str:
        return printable(f"{self.source}: {self.reason}")


@dataclass
class Skipped:
    """The samples that were skipped, and the files that are not samples."""

    of: int
    """How many samples there are, with those that were skipped."""
    unreadable: list[Unreadable] = field(default_factory=list)
    what: str = "files"
    """The word for samples."""
    ignored: list[str] = field(default_factory=list)
    """Files and folders whose names are not those of images."""

    def __bool__(self) -> bool:
        return bool(self.unreadable or self.ignored)

    @property
    def unreadable_line(self) -> str:
        """The line that counts and names what could not be read; empty if there is nothing."""
        if not self.unreadable:
            return ""
        named = ", ".join(f"{each.source} ({each.reason})" for each in self.unreadable)
        return printable(f"skipped {len(self.unreadable)} of {self.of} {self.what}: {named}")

    @property
    def ignored_line(self) -> str:
        """The line that counts and names the files that are not images; empty if there are none."""
        if not self.ignored:
            return ""
        count = len(self.ignored)
        files = "file that is not an image" if count == 1 else "files that are not images"
        named = ", ".join(self.ignored[:_SHOWN]) + (", ..." if count > _SHOWN else "")
        return printable(f"ignored {count} {files}: {named}")

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.unreadable_line, self.ignored_line)))


def unreadable_error(unreadable: Sequence[Unreadable], of: int, what: str = "image") -> DataError:
    """Make the error that names what cannot be read, and the option that skips it."""
    count = len(unreadable)
    named = "\n  ".join(map(str, unreadable[:_SHOWN]))
    if count > _SHOWN:
        named += f"\n  and {count - _SHOWN} more"
    return DataError(
        f"{count} of {of} {what}s cannot be read:\n  {named}\n"
        f"Replace or remove what is named, or skip it with --skip-unreadable\n"
        f"(in Python, skip_unreadable=True)."
    )
