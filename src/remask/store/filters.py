"""Filters that select trials by name and value."""

import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidationError

from remask.config import Integer, Mask
from remask.errors import UnknownNameError, nearest, unknown, what_is_allowed
from remask.names import TITLES, systems_named, unknown_method
from remask.own_code import names_own_code
from remask.record import Status, write_moment
from remask.store.database import StoreError


def _check_hash(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{4,64}", digits := text.strip().lower()):
        raise ValueError("use at least 4 digits of a hash, see `remask results list --trials`")
    return digits


def _refuse_numbers(value: object) -> object:
    # They would pass as seconds since 1970: `2026` would select everything.
    if isinstance(value, int | float) or (isinstance(value, str) and "-" not in value[1:]):
        raise ValueError("use a date such as 2026-01-31 or 2026-01-31T12:00:00+00:00")
    return value


def _write(moment: datetime) -> str:
    return write_moment(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


class Filter(NamedTuple):
    """A filter in SQL, in Python and on the command line."""

    condition: str
    kind: TypeAdapter[Any]
    """How its value is validated."""
    metavar: str
    """The placeholder of the value in help texts."""
    description: str


_INTEGER = TypeAdapter[int](Integer)
_SINCE = TypeAdapter[Any](
    Annotated[datetime, BeforeValidator(_refuse_numbers), AfterValidator(_write)]
)
_HASH = TypeAdapter[str](Annotated[str, AfterValidator(_check_hash)])
FILTERS = {
    "benchmark": Filter("benchmark IS ?", TypeAdapter(str), "NAMES", "Benchmarks."),
    "method": Filter(
        "method IS ?",
        TypeAdapter(str),
        "NAMES",
        "Methods by any name: `er` with or without mask, `mser` with one, `MSER(-1)`.",
    ),
    "mask": Filter("mask IS ?", TypeAdapter(Mask), "MASKS", "Masks, such as `none,-inf`."),
    "buffer": Filter("buffer IS ?", _INTEGER, "SIZES", "Buffer sizes."),
    "seed": Filter("seed IS ?", _INTEGER, "SEEDS", "Seeds."),
    "status": Filter(
        "status IS ?", TypeAdapter(Status), "STATUS", "`finished`, `diverged` or `failed`."
    ),
    "since": Filter("created >= ?", _SINCE, "DATE", "Created since this date, such as 2026-01-31."),
    "hash": Filter(
        "config_hash GLOB ? || '*'", _HASH, "HASHES", "Hashes, or enough of their beginnings."
    ),
}
"""The filters by name."""
_METHODS = "SELECT DISTINCT method, title FROM trials"


def where(
    filters: Mapping[str, object], query: Callable[[str], Collection[tuple[str, str | None]]]
) -> tuple[str, list[object]]:
    """The filters as an SQL condition and its parameters.

    A list, tuple or set of values selects what any of them selects. `query` reads the stored
    methods, each with its own title if it has one: custom methods can be selected by either.
    """
    conditions = ["TRUE"]
    parameters: list[object] = []
    for name, value in filters.items():
        if name not in FILTERS:
            raise UnknownNameError(unknown("filter", name, FILTERS))
        alternatives = []
        for option in value if isinstance(value, list | tuple | set | frozenset) else [value]:
            condition, values = FILTERS[name].condition, [_validated(name, option)]
            if name == "method":
                condition, values = _of_method(str(values[0]), query(_METHODS))
            alternatives.append(condition)
            parameters.extend(values)
        conditions.append(" OR ".join(alternatives) or "FALSE")
    return " AND ".join(f"({condition})" for condition in conditions), parameters


def check_filters(filters: Mapping[str, object]) -> None:
    """Raise unless the filters are valid for some store; methods depend on the store."""
    where({name: value for name, value in filters.items() if name != "method"}, lambda _: [])


def _of_method(name: str, stored: Collection[tuple[str, str | None]]) -> tuple[str, list[object]]:
    """The condition of a method by any of its names."""
    known = dict.fromkeys([*TITLES, *(method for method, _ in stored)])
    own_titles = [(method, title) for method, title in stored if title is not None]
    conditions: list[str] = []
    values: list[object] = []
    for method, masked, mask, title in systems_named(name, known, own_titles):
        required = {"method": method, "title": title, "mask": mask}
        given = {column: value for column, value in required.items() if value is not None}
        parts = [f"{column} IS ?" for column in given]
        conditions.append(" AND ".join([*parts, *(["mask IS NOT NULL"] if masked else [])]))
        values += given.values()
    if not conditions and names_own_code(name) and nearest(name, known) is None:
        return "FALSE", []  # a custom method without trials in the store
    if not conditions:
        raise unknown_method("method", name, known, [title for _, title in own_titles])
    return f"({' OR '.join(conditions)})", values


def _validated(name: str, value: object) -> object:
    try:
        return FILTERS[name].kind.validate_python(value)
    except ValidationError as error:
        allowed = what_is_allowed(error.errors()[0])
        raise StoreError(f"filter {name}: {value!r} is not valid: {allowed}") from None
