"""Options of commands, made from fields, and the completion of their values in the shell.

Importing this loads neither torch nor pydantic.
"""

import inspect
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from importlib import import_module
from math import inf
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import typer

from remask.errors import NUMBER, WHOLE_NUMBER, RemaskError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Choices = Callable[[Path | None], Iterable[str | tuple[str, str]]]
"""Returns names, or names with a description, given the store that was named, if any."""
Completion = Callable[..., list[tuple[str, str]]]
_MAX_HASHES, _HASH_DIGITS = 50, 12
STORE = "The results store. Default: $REMASK_STORE, else `~/.local/share/remask/results.db`."
_METAVARS = {bool: "", int: "N", float: "X", str: "NAME", Path: "PATH"}


def one_of(choices: Choices | Iterable[str], *, several: bool = False) -> Completion:
    """Complete one of the choices, or the last of several with commas between them."""

    def complete(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
        before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        named = choices(ctx.params.get("store")) if callable(choices) else choices
        return [
            (f"{before}{comma}{name}", text)
            for name, text in (each if isinstance(each, tuple) else (each, "") for each in named)
            if name.startswith(last) and name not in before.split(",")
        ]

    return complete


def _named_in(module: str, *tables: str) -> Choices:
    """The names in tables of a module, with their summaries if they have any."""

    def named(_: Path | None) -> list[tuple[str, str]]:
        found = import_module(f"remask.{module}")
        return [
            (name, info if isinstance(info, str) else getattr(info, "summary", ""))
            for table in tables
            for name, info in dict(getattr(found, table)).items()
        ]

    return named


def _encoders(_: Path | None) -> list[tuple[str, str]]:
    from remask.encoders.catalogue import known_encoders

    found = [(info.name, info.kind) for info in known_encoders()]
    return [("auto", "the installed default"), ("none", "train a net instead"), *found]


def _hashes(named: Path | None) -> list[tuple[str, str]]:
    """The newest trials of the store."""
    from remask.store.database import store_path

    query = "SELECT config_hash, method, benchmark, seed FROM trials ORDER BY created DESC LIMIT ?"
    with suppress(RemaskError, sqlite3.Error):
        # Immutable: completion reads no log of a store in use, and creates no files beside it.
        address = f"{store_path(named).resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            return [
                (config_hash[:_HASH_DIGITS], f"{method} on {benchmark}, seed {seed}")
                for config_hash, method, benchmark, seed in connection.execute(query, [_MAX_HASHES])
            ]
    return []


def _runs(named: Path | None) -> list[str]:
    """The unfinished runs beside the store."""
    from remask.store.database import store_path

    with suppress(RemaskError):
        path = store_path(named)
        plans = path.with_name(f"{path.name}.runs").glob("*/run.json")
        return sorted(plan.parent.name for plan in plans)
    return []


_METHODS = _named_in("names", "SUMMARIES")
_BENCHMARKS = _named_in("data.registry", "BENCHMARKS")
METHOD = one_of(_METHODS)
BENCHMARK = one_of(_BENCHMARKS)
NET = one_of(["mlp", "conv", "resnet18"])
ENCODER = one_of(_encoders)
DATA_NAME = one_of(_named_in("data.registry", "DATASETS", "BENCHMARKS"))
EXPERIMENT = one_of(_named_in("papers.experiments", "EXPERIMENTS"), several=True)
HASH = one_of(_hashes)
RUN = one_of(_runs)

VALUES: dict[str, Completion] = {
    "benchmark": one_of(_BENCHMARKS, several=True),
    "method": one_of(_METHODS, several=True),
    "mask": one_of(["none", "auto", "-inf", "-1", "0"], several=True),
    "net": NET,
    "device": one_of(["cpu", "cuda", "mps"]),
    "status": one_of(["finished", "diverged", "failed"], several=True),
    "hash": one_of(_hashes, several=True),
}
"""By the name of a setting, an option of a run, or a filter; others are those of its type."""


class Group:
    """The options that one parameter of a command stands for."""

    def __init__(
        self, options: Iterable[inspect.Parameter], make: Callable[..., Any] = dict
    ) -> None:
        self.options = tuple(options)
        self.make = make
        """Makes the parameter's value from the options that were given, by name."""

    def only(self, *names: str) -> "Group":
        """Return a group of the named options."""
        return Group((option for option in self.options if option.name in names), self.make)

    def without(self, *names: str) -> "Group":
        """Return a group of all options but the named ones."""
        return Group((option for option in self.options if option.name not in names), self.make)


def opt(metavar: str, text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option with a value."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **more)


def flag(name: str, text: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option without a value."""
    return typer.Option(name, metavar="", help=text, rich_help_panel=panel, **more)


def arg(metavar: str, text: str, **more: Any) -> Any:
    """Return an argument."""
    return typer.Argument(metavar=metavar, help=text, **more)


def number(
    kind: type[int] | type[float], least: float = -inf, most: float = inf, *, hint: str = ""
) -> Callable[[str], float]:
    """Return a parser of numbers; its message ends with `hint` where several are given."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            allowed = (WHOLE_NUMBER if kind is int else NUMBER) + hint * ("," in text)
            raise typer.BadParameter(f"{text!r} {allowed}") from None
        if not least <= value <= most:
            allowed = f"at least {least}" if value < least else f"at most {most}"
            raise typer.BadParameter(f"{text} must be {allowed}")
        return value

    return parse


def option(name: str, kind: Any, info: Any) -> inspect.Parameter:
    """Return a member of a group, which is None unless it is given."""
    info.show_default = False
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=Annotated[kind | None, info])


def option_for(
    name: str,
    field: "FieldInfo",
    panel: str | None,
    default: object = None,
    completions: Mapping[str, Completion] = VALUES,
    hint: str = "",
) -> inspect.Parameter:
    """Return the option for a field of a model; the help text ends with the default, if any.

    `hint` is what to do instead of giving several numbers.
    """
    from remask.config import OnCommandLine  # commands without settings need no pydantic

    written = next((part for part in field.metadata if isinstance(part, OnCommandLine)), None)
    inner = _inner_type(field.annotation)
    # Values of other types, and lists of values, are parsed later, from text.
    kind = inner if inner in (int, float, bool, Path) else str
    names = []
    if kind is bool:
        flag_name = name.replace("_", "-")
        names = [f"--{flag_name}/--no-{flag_name}" if field.default is True else f"--{flag_name}"]
    elif written is not None and written.repeated_as is not None:
        kind, names = list[str], [f"--{written.repeated_as}"]
    elif written is not None and written.several:
        kind = str
    metavar = _METAVARS.get(kind) if written is None else written.metavar
    parser = number(kind, hint=hint) if kind in (int, float) else None
    text = field.description or ""
    if default not in (None, False, ()):
        text += f" Default: {f'{default:g}' if isinstance(default, float) else default}."
    complete = completions.get(name) or one_of(get_args(inner))
    info = typer.Option(
        *names,
        help=text,
        metavar=metavar,
        rich_help_panel=panel,
        autocompletion=complete,
        parser=parser,
    )
    return option(name, kind, info)


def _inner_type(annotation: Any) -> Any:
    """The annotation without what surrounds it: `int` of `Annotated[int, ...] | None`."""
    if get_origin(annotation) is Annotated:
        return _inner_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        options = [part for part in get_args(annotation) if part is not NoneType]
        return _inner_type(options[0]) if len(options) == 1 else str
    return annotation


StorePath = Annotated[Path | None, opt("FILE", STORE)]
Markdown = Annotated[bool, flag("--markdown", "Print a table for a document.")]
