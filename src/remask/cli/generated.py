"""Options that are made from fields, so that a setting is written down once.

A command has a group of them as one parameter, and gets what is made of those that were given:

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

from remask.cli.completing import VALUES

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
        """Makes the parameter's value from those options that were given, by name."""

    def only(self, *names: str) -> "Group":
        """Some of these options."""
        return Group((option for option in self.options if option.name in names), self.make)

    def without(self, *names: str) -> "Group":
        """These options except some."""
        return Group((option for option in self.options if option.name not in names), self.make)


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Put the options of its groups in the place of a command's parameters for them."""
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


def option_for(
    name: str, field: "FieldInfo", panel: str, default: object = None
) -> inspect.Parameter:
    """The option for a field of a model; the help text says the default, if there is one."""
    from remask.setting_types import OnCommandLine  # commands without settings need no pydantic

    written = next((part for part in field.metadata if isinstance(part, OnCommandLine)), None)
    kind = _plain_type(field.annotation)
    names = []
    if kind is bool:
        names = [f"--{name.replace('_', '-')}"]  # and no --no-...
    elif written is not None and written.repeated_as is not None:
        kind, names = list[str], [f"--{written.repeated_as}"]
    elif written is not None and written.several:
        kind = str
    metavar = _METAVARS.get(kind) if written is None else written.metavar
    meaning = field.description or ""
    if default is not None and default is not False:
        shown = f"{default:g}" if isinstance(default, float) else default
        meaning += f" Default: {shown}."
    return option(name, meaning, metavar, panel, kind, *names, autocompletion=VALUES.get(name))


def option(
    name: str, meaning: str, metavar: str | None, panel: str, kind: Any, *names: str, **more: Any
) -> inspect.Parameter:
    """An option that is None unless it is given."""
    info = typer.Option(
        *names, help=meaning, metavar=metavar, rich_help_panel=panel, show_default=False, **more
    )
    annotation = Annotated[kind | None, info]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _plain_type(annotation: Any) -> Any:
    """What the command line reads for a field; what has no plain type is a text, read later."""
    if get_origin(annotation) is Annotated:
        return _plain_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        options = [part for part in get_args(annotation) if part is not NoneType]
        return _plain_type(options[0]) if len(options) == 1 else str
    return annotation if annotation in (int, float, bool, Path) else str
