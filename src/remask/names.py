"""Names of methods and their masks."""

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Literal, NamedTuple

from remask.errors import UnknownNameError, unknown

_METHODS = {
    "sgd": ("SGD", "plain training on the stream, no memory: the lower bound"),
    "joint": ("JOINT", "training on all tasks at once, shuffled: the upper bound"),
    "oewc": (
        "oEWC",
        "penalises changes of weights important to earlier tasks; no memory of samples",
    ),
    "si": ("SI", "penalises changes of weights that lowered earlier losses; no memory of samples"),
    "lwf": ("LwF", "distils its earlier outputs on the new samples; no memory of samples"),
    "pnn": ("PNN", "a new network for every task, connected to the older ones; Task-IL only"),
    "pnn-independent": (
        "PNN without laterals",
        "a new network for every task, without connections; Task-IL only",
    ),
    "er": ("ER", "replays stored samples beside the stream; with a mask: MSER"),
    "gem": ("GEM", "rotates a step that would raise the loss on any past task's memory"),
    "agem": ("A-GEM", "rotates a step that would raise the loss on a draw from memory"),
    "icarl": (
        "iCaRL",
        "learns exemplars beside each task; predicts by the nearest mean of features",
    ),
    "icarl-dark": (
        "iCaRL with dark exemplars",
        "iCaRL with a published bug: exemplars are almost black in training",
    ),
    "fdr": ("FDR", "a second step per batch restores the outputs at the end of each task"),
    "gss": ("GSS", "replay from a memory of samples whose gradients differ"),
    "hal": ("HAL", "replay that also keeps the outputs at one synthetic anchor per class"),
    "der": ("DER", "distils stored logits"),
    "derpp": (
        "DER++",
        "distils stored logits, and replays stored labels in a second draw; with a mask: MSDER++",
    ),
    "er_ace": (
        "ER-ACE",
        "only a batch's own classes compete in the stream, all classes in the replay",
    ),
    "mir": ("MIR", "replays those samples of a draw that a step on the stream would harm most"),
    "ss_il": (
        "SS-IL",
        "new classes compete in the stream, old ones in the replay; distils past tasks",
    ),
    "er_las": ("ER-LAS", "ER with logits adjusted by the recent frequency of each class"),
    "lode": (
        "LODE",
        "ER that weighs new classes against old ones less than new ones against each other",
    ),
    "cls_er": (
        "CLS-ER",
        "ER distilled from two slow copies of the network; the slower one predicts",
    ),
    "er_ema": (
        "ER-EMA",
        "ER with a slow copy of the network that teaches the replay and predicts; masked: m = 0",
    ),
    "ncm": (
        "NCM",
        "the nearest class mean of the inputs, such as features; trains no net, no memory",
    ),
    "slda": (
        "SLDA",
        "streaming linear discriminant analysis of the inputs; trains no net, no memory",
    ),
    "ridge": (
        "RIDGE",
        "ridge regression from the inputs, in closed form; trains no net, no memory",
    ),
}
"""The title and the summary of each method; here so that they need no torch."""

TITLES = {name: title for name, (title, _) in _METHODS.items()}
"""The titles of remask's methods in tables, by name."""

MASKED_NAMES: dict[str, tuple[str, float]] = {
    "mser": ("er", float("-inf")),
    "msderpp": ("derpp", -1.0),
}
"""Names of methods with a mask: (the method, its default mask)."""

SUMMARIES = {name: summary for name, (_, summary) in _METHODS.items()} | {
    name: f"{base} with a mask, {mask:g} unless --mask is given"
    for name, (base, mask) in MASKED_NAMES.items()
}
"""A line about each name of a method."""


def title_of(method: str) -> str:
    """The title of a method in tables, such as `DER++`; for `module:Class`, the class."""
    _, colon, own = method.rpartition(":")
    return own if colon else TITLES.get(method, method.upper())


def system_name(method: str, mask: float | Literal["auto"] | None, title: str | None = None) -> str:
    """A method with its mask, as in tables: `ER`, `MSER(-inf)`, `MSDER++(-1)`, `MSER(auto)`.

    `title` is the title of a custom method, if it differs from the name of its class.
    """
    title = title or title_of(method)
    if mask is None:
        return title
    # + 0.0 turns -0.0 into 0.0
    return f"MS{title}({mask if isinstance(mask, str) else short_number(float(mask) + 0.0)})"


class Systems(NamedTuple):
    """What a name matches: a method with any mask or none, with any mask, or with one mask."""

    method: str
    masked: bool
    mask: float | Literal["auto"] | None
    """The mask, if the name contains it."""
    title: str | None = None
    """The method's own title, if the name matches it."""

    def include(self, method: str, mask: float | Literal["auto"] | None) -> bool:
        """Whether the name matches this method with this mask."""
        asked = mask is not None and self.mask in (None, mask)
        return method == self.method and (asked or not self.masked)


def systems_named(
    name: str, methods: Iterable[str], own_titles: Iterable[tuple[str, str]] = ()
) -> list[Systems]:
    """What a name matches among `methods` and the (method, title) pairs in `own_titles`.

    Case is ignored: `derpp` and `DER++` match the method with any mask or none, `msderpp` and
    `MSDER++` with any mask, `MSDER++(-1)` with that mask.
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
    """The error for a name without a match in `systems_named`."""
    known = list(methods)
    titles = [*(title_of(method) for method in known), *own_titles]
    masked = [f"MS{own}" for own in (*titles, *known)]
    return UnknownNameError(unknown(kind, name, known, [*titles, *masked]))


def _split_mask(name: str) -> tuple[str, float | Literal["auto"] | None]:
    """Split `mser(-1)` into (`mser`, -1.0)."""
    from remask.config import read_mask  # a list of methods needs no pydantic

    if parts := re.fullmatch(r"(.+?)\s*\(([^()]+)\)", name):
        with suppress(ValueError):
            if (mask := read_mask(parts[2])) is not None:
                return parts[1], mask
    return name, None


def short_number(number: float) -> str:
    """The shortest text that reads back as the same number: `-1`, `-0.5`, `-1e9`."""
    plain = repr(number).removesuffix(".0")
    if not math.isfinite(number):
        return plain
    digits, _, exponent = f"{number:e}".partition("e")
    scientific = f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"
    return min(plain, scientific, key=len) if float(scientific) == number else plain
