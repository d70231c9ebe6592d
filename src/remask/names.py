"""What to say when a user names something that does not exist."""

import difflib
import math
from collections.abc import Iterable

from remask.errors import RemaskError


class UnknownNameError(RemaskError, ValueError):
    """A name that is not registered; the message suggests the nearest one."""


def nearest(name: str, options: Iterable[str]) -> str | None:
    """Find the option most like `name`, ignoring case, or None when nothing comes close."""
    by_lower = {option.lower(): option for option in options}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def unknown(kind: str, name: str, options: Iterable[str]) -> str:
    """Write a one-line message: what is unknown, the nearest known name, and all known names."""
    known = sorted(options)
    suggestion = nearest(name, known)
    hint = f"; did you mean {suggestion!r}?" if suggestion is not None else "."
    return f"unknown {kind} {name!r}{hint} Known: {', '.join(known) or 'none'}"


_TITLES = {  # where the name in capitals is not the title
    "derpp": "DER++",
    "oewc": "oEWC",
    "lwf": "LwF",
    "agem": "A-GEM",
    "icarl": "iCaRL",
    "er_ace": "ER-ACE",
    "icarl-dark": "iCaRL with dark exemplars",
    "pnn-independent": "PNN without laterals",
}


def system_name(method: str, mask: float | None) -> str:
    """Name a method with its mask as tables do: `ER`, `MSER(-inf)`, `MSDER++(-1)`."""
    _, colon, own = method.rpartition(":")
    title = own if colon else _TITLES.get(method, method.upper())
    if mask is None:
        return title
    return f"MS{title}({_short(float(mask) + 0.0)})"  # + 0.0 takes the sign off a zero


def _short(number: float) -> str:
    """`-1`, `-0.5`, `-1e9`: the shortest form that reads back as the same number."""
    plain = repr(number).removesuffix(".0")
    if not math.isfinite(number):
        return plain
    digits, _, exponent = f"{number:e}".partition("e")
    scientific = f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"
    return min(plain, scientific, key=len) if float(scientific) == number else plain
