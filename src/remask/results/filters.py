"""Choosing trials: filters by name, with values as people write them."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple, get_args

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from remask.names import (
    TITLES,
    UnknownNameError,
    nearest,
    systems_named,
    unknown,
    unknown_method,
)
from remask.own_code import names_own_code
from remask.record import Status, write_moment
from remask.results.errors import StoreError
from remask.setting_types import Integer, Mask


class FilterError(StoreError, ValueError):
    """A filter's value that is not valid; the message says which, and what is allowed."""


def _check_status(name: str) -> str:
    if name not in get_args(Status):
        raise UnknownNameError(unknown("status", name, get_args(Status)))
    return name


def _assume_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _refuse_numbers(value: object) -> object:
    # They would pass as seconds since 1970: `2026` would let everything through.
    if isinstance(value, int | float) or (isinstance(value, str) and "-" not in value[1:]):
        raise ValueError("a date such as 2026-01-31 or 2026-01-31T12:00:00+00:00 is needed")
    return value


_Since = Annotated[datetime, BeforeValidator(_refuse_numbers), AfterValidator(_assume_utc)]

_Hash = Annotated[str, Field(pattern="^[0-9a-f]{4,64}$")]


class Filter(NamedTuple):
    """One definition of a filter, for SQL, for Python and for the command line."""

    condition: str
    kind: TypeAdapter[Any]
    """How its value is read."""
    metavar: str
    """What stands for the value in help texts."""
    description: str


FILTERS = {
    "benchmark": Filter("benchmark IS ?", TypeAdapter(str), "NAMES", "Benchmarks."),
    "method": Filter(
        "method IS ?",
        TypeAdapter(str),
        "NAMES",
        "Methods by any name: `er` with or without mask, `mser` with one, `MSER(-1)`.",
    ),
    "mask": Filter("mask IS ?", TypeAdapter(Mask), "MASKS", "Masks, such as `none,-inf`."),
    "buffer": Filter("buffer IS ?", TypeAdapter(Integer), "SIZES", "Buffer sizes."),
    "seed": Filter("seed IS ?", TypeAdapter(Integer), "SEEDS", "Seeds."),
    "status": Filter(
        "status IS ?",
        TypeAdapter(Annotated[str, AfterValidator(_check_status)]),
        "STATUS",
        "`finished`, `diverged` or `failed`.",
    ),
    "since": Filter(
        "created >= ?", TypeAdapter(_Since), "DATE", "Made since this date, such as 2026-01-31."
    ),
    "hash": Filter(
        "config_hash GLOB ? || '*'",
        TypeAdapter(_Hash),
        "HASHES",
        "Hashes, or enough of their beginnings.",
    ),
}
"""What `where` knows, by name."""


def where(
    filters: Mapping[str, object], methods: Callable[[], Collection[tuple[str, str | None]]]
) -> tuple[str, list[object]]:
    """Put the filters as a condition in SQL, with its values.

    A list, tuple or set of values lets through what any of them lets through. `methods` tells
    which ones the store has, each with its own title if it has one: they may be the user's own,
    and their names are asked for too.
    """
    conditions = ["TRUE"]
    parameters: list[object] = []
    for name, value in filters.items():
        if name not in FILTERS:
            raise UnknownNameError(unknown("filter", name, FILTERS))
        condition, kind = FILTERS[name][:2]
        options = value if isinstance(value, list | tuple | set | frozenset) else [value]
        alternatives = []
        for option in options:
            read = _read(name, kind, option)
            if name == "method":
                condition, values = _of_method(str(read), methods())
            else:
                values = [read]
            alternatives.append(condition)
            parameters.extend(values)
        conditions.append(" OR ".join(alternatives) or "FALSE")
    return " AND ".join(f"({condition})" for condition in conditions), parameters


def check_filters(filters: Mapping[str, object]) -> None:
    """Refuse what no store could be filtered by; which methods there are, only a store knows."""
    where({name: value for name, value in filters.items() if name != "method"}, list)


def _of_method(name: str, stored: Collection[tuple[str, str | None]]) -> tuple[str, list[object]]:
    """The condition of a method by any of its names; a name of nothing is likely a slip."""
    known = dict.fromkeys([*TITLES, *(method for method, _ in stored)])
    own_titles = [(method, title) for method, title in stored if title is not None]
    conditions: list[str] = []
    values: list[object] = []
    for method, masked, mask, title in systems_named(name, known, own_titles):
        conditions.append("method IS ?")
        values.append(method)
        if title is not None:
            conditions[-1] += " AND title IS ?"
            values.append(title)
        if mask is not None:
            conditions[-1] += " AND mask IS ?"
            values.append(mask)
        elif masked:
            conditions[-1] += " AND mask IS NOT NULL"
    if not conditions and names_own_code(name) and nearest(name, known) is None:
        return "FALSE", []  # a custom one, of which the store has no trials yet
    if not conditions:
        raise unknown_method("method", name, known, [title for _, title in own_titles])
    return f"({' OR '.join(conditions)})", values


def _read(name: str, kind: TypeAdapter[Any], value: object) -> object:
    try:
        read = kind.validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]
        cause = reason.get("ctx", {}).get("error")
        if isinstance(cause, UnknownNameError):
            raise cause from None
        allowed = reason["msg"].removeprefix("Value error, ")
        raise FilterError(f"filter {name}: {value!r} is not valid: {allowed}") from None
    return write_moment(read) if isinstance(read, datetime) else read
