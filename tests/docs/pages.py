"""Running the blocks of a tutorial as they stand, and comparing what they print with the page.

A `python` block is run, or added to the file that its title names, `title="FILE"`, or to the class
at its end, `title="FILE, in the class"`. In an `sh` block every line is a command, of remask alone.
The `text` block after them is what they print. To record all outputs again:
`python -m tests.docs.pages docs/tutorials/*.md`.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import Any, NamedTuple

from tests.repository import ROOT

_BLOCK = re.compile(r'^```(\w+)(?: title="(.*?)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_LINES = re.compile(r"[─ \n]+")

Command = Callable[[list[str]], str]
"""Runs `remask ARGS` and returns what it prints."""


class Output(NamedTuple):
    """The content of a `text` block, and what was printed instead."""

    shown: str
    printed: str
    start: int
    """Where in the page the text begins."""


def follow(page: str, remask: Command) -> Iterator[Output]:
    """Run the blocks of a page in the current folder, and yield each output that it shows."""
    names: dict[str, Any] = {"__name__": "tutorial"}
    printed = ""
    for block in _BLOCK.finditer(page):
        language, title, text = block.groups()
        if language == "python" and title:
            path = title.removesuffix(", in the class")
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(indent(f"\n{text}", "    ") if title != path else text)
            sys.modules.pop(Path(path).stem, None)  # it may be outdated
        elif language == "python":
            with redirect_stdout(StringIO()) as out:
                exec(compile(text, "the tutorial", "exec"), names)
            printed += out.getvalue()
        elif language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                program, *args = shlex.split(line)
                assert program == "remask", f"only remask is run here, not {line!r}"
                printed += remask(args)
        elif language == "text":
            yield Output(text, _tidied(printed), block.start(3))
            printed = ""


def _tidied(printed: str) -> str:
    """What was printed, without spaces at ends of lines and empty lines around it."""
    lines = [line.rstrip() for line in printed.splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines).strip("\n")) + "\n"


def words(text: str) -> str:
    """A text without its numbers and the spaces that make columns of them."""
    return _LINES.sub(" ", _NUMBER.sub("#", text)).strip()


def numbers(text: str) -> list[float]:
    """The numbers of a text."""
    return [float(number) for number in _NUMBER.findall(text)]


def _record(path: Path) -> None:
    page = path.read_text("utf-8")
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("docs").symlink_to(ROOT / "docs")
        os.environ["REMASK_STORE"] = "results.db"
        sys.path.insert(0, folder)
        for output in reversed(list(follow(page, _command))):
            end = output.start + len(output.shown)
            page = page[: output.start] + output.printed + page[end:]
        os.chdir(ROOT)
        sys.path.remove(folder)
    path.write_text(page, "utf-8")


def _command(args: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "remask", *args], capture_output=True, text=True, check=False
    )
    print(done.stderr, file=sys.stderr, end="")
    return done.stdout


if __name__ == "__main__":
    for tutorial in [Path(argument).resolve() for argument in sys.argv[1:]]:
        _record(tutorial)
