"""Groups of options: one parameter of a command stands for several options, made from fields.

@with_groups
def run(*, settings: Annotated[dict[str, Any], SETTINGS], store: StorePath = None) -> None: ...
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import typer

from remask.cli.completion import VALUES

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_METAVARS = {int: "N", float: "X", str: "NAME", Path: "PATH"}


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


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameters of a command that are groups by the options of the groups."""
    options: list[inspect.Parameter] = []
    groups: dict[str, Group] = {}
    for parameter in inspect.signature(command).parameters.values():
        group = next((p for p in get_args(parameter.annotation) if isinstance(p, Group)), None)
        options += [parameter] if group is None else group.options
        if group is not None:
            groups[parameter.name] = group

    @functools.wraps(command)
    def parsed(**values: Any) -> None:
        for name, group in groups.items():
            taken = {option.name: values.pop(option.name) for option in group.options}
            given = {option: value for option, value in taken.items() if value is not None}
            values[name] = group.make(**given)
        command(**values)

    parsed.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    parsed.__annotations__ = {option.name: option.annotation for option in options}
    return parsed


def opt(metavar: str, text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option with a value."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **more)


def flag(name: str, text: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=text, rich_help_panel=panel, **more)


def arg(metavar: str, text: str, **more: Any) -> Any:
    """Return an argument."""
    return typer.Argument(metavar=metavar, help=text, **more)


def option(
    name: str, text: str, metavar: str | None, panel: str, kind: Any, *names: str, **more: Any
) -> inspect.Parameter:
    """Return a member of a group, which is None unless it is given."""
    info = typer.Option(
        *names, help=text, metavar=metavar, rich_help_panel=panel, show_default=False, **more
    )
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=Annotated[kind | None, info])


def option_for(
    name: str, field: "FieldInfo", panel: str, default: object = None
) -> inspect.Parameter:
    """Return the option for a field of a model; the help text ends with the default, if any."""
    from remask.setting_types import OnCommandLine  # commands without settings need no pydantic

    written = next((part for part in field.metadata if isinstance(part, OnCommandLine)), None)
    kind = _plain_type(field.annotation)
    names = []
    if kind is bool:
        names = [f"--{name.replace('_', '-')}"]  # without --no-...
    elif written is not None and written.repeated_as is not None:
        kind, names = list[str], [f"--{written.repeated_as}"]
    elif written is not None and written.several:
        kind = str
    metavar = _METAVARS.get(kind) if written is None else written.metavar
    text = field.description or ""
    if default is not None and default is not False:
        shown = f"{default:g}" if isinstance(default, float) else default
        text += f" Default: {shown}."
    return option(name, text, metavar, panel, kind, *names, autocompletion=VALUES.get(name))


def _plain_type(annotation: Any) -> Any:
    """Return the type that the command line parses; other types are parsed later, from text."""
    if get_origin(annotation) is Annotated:
        return _plain_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        options = [part for part in get_args(annotation) if part is not NoneType]
        return _plain_type(options[0]) if len(options) == 1 else str
    return annotation if annotation in (int, float, bool, Path) else str
