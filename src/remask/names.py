"""Names: what methods are called, what a name stands for, and what to say about an unknown one."""

import math
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from remask.errors import RemaskError


class UnknownNameError(RemaskError, ValueError):
    """A name that is not registered; the message suggests the nearest one."""


def nearest(name: str, options: Iterable[str]) -> str | None:
    """Find the option most like `name`, ignoring case, or None when nothing comes close."""
    import difflib  # only mistakes need it, and every command would wait for it

    by_lower = {option.lower(): option for option in options}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """The end of a sentence about a name that is not one of the options: the nearest, if any."""
    suggestion = nearest(name, options)
    return "" if suggestion is None else f"; did you mean {suggestion!r}?"


def unknown(kind: str, name: str, options: Iterable[str], other_names: Iterable[str] = ()) -> str:
    """Write a one-line message: what is unknown, the nearest known name, and all known names.

    The nearest may also be one of the `other_names` of the same things, which are not listed.
    """
    known = sorted(options)
    hint = did_you_mean(name, [*known, *other_names]) or "."
    return f"unknown {kind} {name!r}{hint} Known: {', '.join(known) or 'none'}"


TITLES = {
    "sgd": "SGD",
    "joint": "JOINT",
    "oewc": "oEWC",
    "si": "SI",
    "lwf": "LwF",
    "pnn": "PNN",
    "pnn-independent": "PNN without laterals",
    "er": "ER",
    "gem": "GEM",
    "agem": "A-GEM",
    "icarl": "iCaRL",
    "icarl-dark": "iCaRL with dark exemplars",
    "fdr": "FDR",
    "gss": "GSS",
    "hal": "HAL",
    "der": "DER",
    "derpp": "DER++",
    "er_ace": "ER-ACE",
    "er_las": "ER-LAS",
    "lode": "LODE",
    "cls_er": "CLS-ER",
    "er_ema": "ER-EMA",
    "ncm": "NCM",
    "slda": "SLDA",
    "ridge": "RIDGE",
}
"""What tables call the methods that come with remask, by name; here because it takes no torch."""

SUMMARIES = {
    "sgd": "plain training on the stream, no memory: the lower bound",
    "joint": "training on all tasks at once, shuffled: the upper bound",
    "oewc": "holds the weights that mattered to earlier tasks; no memory of samples",
    "si": "holds the weights whose way lowered earlier losses; no memory of samples",
    "lwf": "keeps its answers to the new samples as they were; no memory of samples",
    "pnn": "a new network for every task, connected to the older ones; Task-IL only",
    "pnn-independent": "a new network for every task, and nothing between them; Task-IL only",
    "er": "replays stored samples beside the stream; with a mask: MSER",
    "gem": "turns a step that would raise the loss on any past task's memory",
    "agem": "turns a step that would raise the loss on a draw from memory",
    "icarl": "learns exemplars beside each task; predicts by the nearest mean of features",
    "icarl-dark": "iCaRL with a published accident: exemplars are all but black in training",
    "fdr": "a second step per batch brings outputs back to what they were at each task's end",
    "gss": "replay from a memory of samples whose gradients differ",
    "hal": "replay that holds the outputs at one invented input per class",
    "der": "recalls the logits it once gave to stored samples",
    "derpp": "recalls stored logits and, in a second draw, relearns stored labels; with a mask: "
    "MSDER++",
    "er_ace": "lets a batch's own classes compete in the stream, and all classes in the replay",
    "er_las": "ER whose logits are adjusted by how often each class came lately",
    "lode": "ER that weighs new classes against old ones less than new ones against each other",
    "cls_er": "ER taught by the better of two slow copies of the network; the slower one predicts",
    "er_ema": "ER with a slow copy of the network that teaches the replay and predicts; masked: "
    "m = 0",
    "ncm": "the nearest class mean of the inputs, such as features; trains no net, no memory",
    "slda": "streaming linear discriminant analysis of the inputs; trains no net, no memory",
    "ridge": "ridge regression from the inputs, in closed form; trains no net, no memory",
}
"""What the methods that come with remask do, in a line each."""

MASKED_NAMES: dict[str, tuple[str, float]] = {
    "mser": ("er", float("-inf")),
    "msderpp": ("derpp", -1.0),
}
"""Names for a method with a mask: (the method, the mask that it has unless another is given)."""


def title_of(method: str) -> str:
    """What tables call a method: `DER++`; of your own, `module:Class`, the class."""
    _, colon, own = method.rpartition(":")
    return own if colon else TITLES.get(method, method.upper())


def system_name(method: str, mask: float | Literal["auto"] | None, title: str | None = None) -> str:
    """Name a method with its mask as tables do: `ER`, `MSER(-inf)`, `MSDER++(-1)`, `MSER(auto)`.

    `title` is what your own method calls itself, if that is not the name of its class.
    """
    title = title or title_of(method)
    if mask is None:
        return title
    # + 0.0 takes the sign off a zero
    return f"MS{title}({mask if isinstance(mask, str) else short_number(float(mask) + 0.0)})"


class Systems(NamedTuple):
    """What a name stands for: a method with any mask or none, with any mask, or with one mask."""

    method: str
    masked: bool
    mask: float | Literal["auto"] | None
    """The mask, if the name tells it."""
    title: str | None = None
    """The method's own title, if that is what the name is."""

    def include(self, method: str, mask: float | Literal["auto"] | None) -> bool:
        """Whether this method with this mask is meant."""
        asked = mask is not None and self.mask in (None, mask)
        return method == self.method and (asked or not self.masked)


def systems_named(
    name: str, methods: Iterable[str], own_titles: Iterable[tuple[str, str]] = ()
) -> list[Systems]:
    """What a name stands for among `methods`; nothing if it is none of their names.

    `own_titles` are (method, title), for methods that choose a title themselves.

    Any name that remask prints or takes will do, in capitals or not: `derpp` and `DER++` are the
    method whatever its mask, `msderpp` and `MSDER++` are it with a mask, `MSDER++(-1)` with that.
    """
    wanted = name.strip().casefold()
    system, mask = _split_mask(wanted)
    candidates: list[tuple[str, str | None, set[str]]] = [
        *((method, None, {method.casefold(), title_of(method).casefold()}) for method in methods),
        *((method, title, {title.casefold()}) for method, title in own_titles),
    ]
    found = []
    for method, title, own_names in candidates:
        if wanted in own_names:
            found.append(Systems(method, masked=False, mask=None, title=title))
        elif system in {f"ms{own}" for own in own_names}:
            found.append(Systems(method, masked=True, mask=mask, title=title))
    return found


def unknown_method(
    kind: str, name: str, methods: Iterable[str], own_titles: Iterable[str] = ()
) -> UnknownNameError:
    """The error for a name that `systems_named` finds nothing for."""
    known = list(methods)
    titles = [*(title_of(method) for method in known), *own_titles]
    masked = [f"MS{own}" for own in (*titles, *known)]
    return UnknownNameError(unknown(kind, name, known, [*titles, *masked]))


_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def _split_mask(name: str) -> tuple[str, float | Literal["auto"] | None]:
    """`mser(-1)` as (`mser`, -1.0); also as figures print it, with `−∞` and `−10⁹`."""
    parts = re.fullmatch(r"(.+?)\s*\(([^()]+)\)", name)
    if parts is None:
        return name, None
    system, text = parts.groups()
    text = text.strip().replace("\N{MINUS SIGN}", "-").replace("\N{INFINITY}", "inf")
    if text == "auto":
        return system, "auto"
    if power := re.fullmatch(r"-10([⁰¹²³⁴⁵⁶⁷⁸⁹]+)", text):
        text = f"-1e{power[1].translate(_RAISED)}"
    try:
        mask = float(text)
    except ValueError:
        return name, None
    return (system, mask) if mask < math.inf else (name, None)


def short_number(number: float) -> str:
    """`-1`, `-0.5`, `-1e9`: the shortest form that reads back as the same number."""
    plain = repr(number).removesuffix(".0")
    if not math.isfinite(number):
        return plain
    digits, _, exponent = f"{number:e}".partition("e")
    scientific = f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"
    return min(plain, scientific, key=len) if float(scientific) == number else plain
