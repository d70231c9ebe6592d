"""Exceptions for users' errors, a requested stop, and what their messages are made of."""

import signal
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_LONGEST = 100_000
_LONGEST_VALUE = 200  # characters of a wrong value in a message
_MOST_ERRORS = 5  # in a message
WHOLE_NUMBER, NUMBER = "must be a whole number", "must be a number"
_ALLOWED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), WHOLE_NUMBER),
    **dict.fromkeys(("float_type", "float_parsing"), NUMBER),
}
"""By pydantic's type of an error; other errors have its message, with these words replaced."""
_WORDS = {
    "Value error, ": "",
    "Input should": "must",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
}


class RemaskError(Exception):
    """A user's error. The message has what is wrong, where, and what to do."""


class MissingPackageError(RemaskError):
    """An optional package is not installed; the message names it."""


class DataError(RemaskError):
    """Data is missing, damaged or out of reach; the message names the place and the remedy."""


class SettingsError(RemaskError, ValueError):
    """Invalid settings; the message has which, and what is allowed."""


class MethodError(SettingsError):
    """A method cannot run with the given settings."""


class UnknownNameError(RemaskError, ValueError):
    """A name that is not registered; the message suggests the nearest one."""


class Stopped(Exception):  # noqa: N818 - a request, not an error
    """A run stopped because of a signal; the message has what could not be saved, and why."""

    def __init__(self, number: int, unsaved: Sequence[str] = ()) -> None:
        lost = f", but not everything could be saved ({'; '.join(unsaved)})"
        saved = lost if unsaved else "; everything is saved"
        super().__init__(f"stopped by {signal.Signals(number).name}{saved}")
        self.exit_code = 128 + number
        self.unsaved = list(unsaved)


def nearest(name: str, options: Iterable[str]) -> str | None:
    """The option most similar to `name`, ignoring case, or None."""
    import difflib  # only needed for mistakes

    by_lower = {option.lower(): option for option in options}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """`; did you mean ...?` with the nearest option, or an empty string."""
    suggestion = nearest(name, options)
    return "" if suggestion is None else f"; did you mean {suggestion!r}?"


def unknown(kind: str, name: str, options: Iterable[str], other_names: Iterable[str] = ()) -> str:
    """A message with the unknown name, the nearest known name, and all known names.

    The nearest may be one of `other_names`, which are not listed.
    """
    known = sorted(options)
    hint = did_you_mean(name, [*known, *other_names]) or "."
    return f"unknown {kind} {name!r}{hint} Known: {', '.join(known) or 'none'}"


def counted(count: int, noun: str) -> str:
    """A number with its noun, such as `1 visit` or `2 classes`."""
    ending = "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending * (count != 1)}"


def printable(text: str) -> str:
    """Replace unprintable characters, such as escape sequences, except line breaks and tabs."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def prose(text: str) -> str:
    """Return the first 100,000 characters of a message, printable."""
    return printable(text[:_LONGEST])


def describe_errors(error: "ValidationError", *, positions: bool = True) -> str:
    """A validation error for people: the first fields, their values, and what is allowed.

    Fields in lists have their position, `buffer.0`, unless `positions` is false.
    """
    problems = []
    for problem in error.errors()[:_MOST_ERRORS]:
        allowed = what_is_allowed(problem)
        field = ".".join(str(part) for part in problem["loc"] if positions or isinstance(part, str))
        value = "" if problem["type"] == "missing" else f" = {_short(problem['input'])}"
        problems.append(f"{field}{value}: {allowed}" if field else allowed)
    return "; ".join(problems)


def what_is_allowed(problem: "ErrorDetails") -> str:
    """What one of a validation error's problems says about the allowed values."""
    message = _ALLOWED.get(problem["type"], problem["msg"])
    for words, plainer in _WORDS.items():
        message = message.replace(words, plainer)
    return message


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python does not print whole numbers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
