"""The methods by name. A new one is one file here and one entry in METHODS."""

from remask.methods.base import Batch, Method, Step
from remask.methods.der import DER
from remask.methods.derpp import DERpp
from remask.methods.er import ER
from remask.methods.joint import Joint
from remask.methods.sgd import SGD
from remask.names import UnknownNameError, unknown

METHODS: dict[str, type[Method]] = {method.name: method for method in (SGD, Joint, ER, DER, DERpp)}

MASKED_NAMES: dict[str, tuple[str, float]] = {
    "mser": ("er", float("-inf")),
    "msderpp": ("derpp", -1.0),
}
"""Names for a method with a mask: (the method, the mask it wears unless told otherwise)."""


def find_method(name: str) -> type[Method]:
    """The method of that name; raises UnknownNameError, suggesting the nearest."""
    if name not in METHODS:
        raise UnknownNameError(unknown("method", name, [*METHODS, *MASKED_NAMES]))
    return METHODS[name]


__all__ = [
    "DER",
    "ER",
    "MASKED_NAMES",
    "METHODS",
    "SGD",
    "Batch",
    "DERpp",
    "Joint",
    "Method",
    "Step",
    "find_method",
]
