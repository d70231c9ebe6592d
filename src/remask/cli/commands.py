"""The commands: what each is called, where it is, and what it does in one line.

A command's module is imported when the command is called, so that `remask --help` waits for none of
them, and no command for the options of another.
"""

from importlib import import_module
from typing import Any, Literal, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command
from typing_extensions import override

MARKUP: Literal["markdown"] = "markdown"
_LEARNER = "A learner: one model that learns new classes for years"


class _Command(NamedTuple):
    place: str
    """`module:function`, or `module:app` for a group of commands, in this package."""
    summary: str
    """The first line of its own help text."""
    panel: str | None = None


COMMANDS = {
    "demo": _Command(
        "demo:demo",
        "See masked replay forget less, in under a minute, on digits that ship with remask.",
    ),
    "run": _Command("run:run", "Train trials and print a table of their accuracy and forgetting."),
    "sweep": _Command(
        "sweep:sweep",
        "Train every combination of settings that a file asks for, and print a table.",
    ),
    "reproduce": _Command(
        "reproduce:reproduce",
        "Run what is missing of a table or figure of the paper, and put ours beside it.",
    ),
    "resume": _Command("resume:resume", "Go on with runs that were stopped."),
    "report": _Command(
        "report:report",
        "Write a page of the results: tables beside the paper's, curves, every trial.",
    ),
    "check": _Command(
        "check:check",
        "Find what would go wrong in a long run without a word: a few seconds on a method of "
        "yours.",
    ),
    "new": _Command(
        "new:new",
        "Write a method, net or data of your own to start from, with comments, to NAME.py.",
    ),
    "doctor": _Command(
        "doctor:doctor",
        "Find what is wrong with this installation, its store and its runs, and say what to do.",
    ),
    "methods": _Command("listings:methods", "List the methods, with one line each."),
    "benchmarks": _Command("listings:benchmarks", "List the benchmarks, with one line each."),
    "encoders": _Command(
        "listings:encoders", "List the pretrained encoders of photographs and texts."
    ),
    "results": _Command("results:app", "Look at what the store holds, add to it, or remove it."),
    "data": _Command("data:app", "Fetch and check the datasets."),
    "learn": _Command(
        "learn:learn",
        "Teach a learner the classes of images or texts; the first visit creates the learner.",
        _LEARNER,
    ),
    "predict": _Command(
        "predict:predict", "Name the classes of images or texts, with probabilities.", _LEARNER
    ),
    "evaluate": _Command(
        "predict:evaluate",
        "Measure accuracy and calibration on images or texts whose classes are known.",
        _LEARNER,
    ),
    "history": _Command(
        "history:history",
        "Show what a learner has learnt, when, and its accuracy per class after each visit.",
        _LEARNER,
    ),
    "show": _Command(
        "show:show",
        "Show the classes of a learner, its memory, settings, generations and size.",
        _LEARNER,
    ),
    "undo": _Command(
        "undo:undo",
        "Go back to before the last visit of a learner, as if it had not been learnt.",
        _LEARNER,
    ),
    "rename": _Command(
        "rename:rename",
        "Give a class of a learner another name, or merge it with another class.",
        _LEARNER,
    ),
    "forget": _Command(
        "forget:forget",
        "Remove a class, its samples and what was stored with them from every file of a learner.",
        _LEARNER,
    ),
    "export": _Command(
        "export:export",
        "Write a learner's model as a file for other programs, and a JSON beside it.",
        _LEARNER,
    ),
}


class LazyGroup(TyperGroup):
    """Knows its commands by name and summary, and imports the one that is called."""

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, known, rest = super().resolve_command(ctx, args)
        return name, known if name is None else load(name), rest


def load(name: str) -> Any:
    """The command of that name, with all its options."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    found = getattr(import_module(f"remask.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        return get_command(found)
    alone = typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
    alone.command(name)(found)
    return get_command(alone)
