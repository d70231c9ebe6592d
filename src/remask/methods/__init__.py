"""The methods by name. A new one is a file here, an entry in METHODS, and two in `remask.names`."""

from remask.data.tasks import Task
from remask.errors import MethodError, UnknownNameError, unknown
from remask.methods.base import Context, Method
from remask.methods.closed_form import NCM, SLDA, Ridge
from remask.methods.der import DER, DERpp
from remask.methods.er import ER, ERACE, ERLAS
from remask.methods.fdr import FDR
from remask.methods.gem import AGEM, GEM
from remask.methods.gss import GSS
from remask.methods.hal import HAL
from remask.methods.icarl import DarkICaRL, ICaRL
from remask.methods.lode import LODE
from remask.methods.lwf import LwF
from remask.methods.mir import MIR
from remask.methods.penalties import OEWC, SI
from remask.methods.pnn import PNN, IndependentPNN
from remask.methods.sgd import SGD, Joint
from remask.methods.slow_copies import CLSER, EREMA
from remask.methods.ss_il import SSIL
from remask.methods.step import Batch, Step, Term
from remask.names import MASKED_NAMES, systems_named
from remask.nets.stacked import Gradients, LossGradients, SampleGradients, StackedNet
from remask.own_code import OwnCodeError, import_own, names_own_code

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        SGD, Joint, OEWC, SI, LwF, PNN, IndependentPNN,
        ER, GEM, AGEM, ICaRL, DarkICaRL, FDR, GSS, HAL, DER, DERpp, ERACE, MIR, SSIL,
        ERLAS, LODE, CLSER, EREMA, NCM, SLDA, Ridge,
    )
}  # fmt: skip


def find_method(name: str) -> type[Method]:
    """The method of that name, or the user's own if it is `module:Class`.

    Raises UnknownNameError, suggesting the nearest name, and OwnCodeError.
    """
    if name in METHODS:
        return METHODS[name]
    if name in MASKED_NAMES:
        method, mask = MASKED_NAMES[name]
        raise UnknownNameError(
            f"{name!r} is the method {method!r} with the mask {mask:g}; use "
            f"`--method {method} --mask {mask:g}`"
        )
    if named := systems_named(name, METHODS):
        also = ", with a mask" * named[0].masked
        raise UnknownNameError(f"unknown method {name!r}; use {named[0].method!r}{also}")
    if not names_own_code(name):
        known = [*METHODS, *MASKED_NAMES]
        raise UnknownNameError(
            unknown("method", name, known) + "; for your own method, use module:Class"
        )
    own = import_own("method", name)
    if not (isinstance(own, type) and issubclass(own, Method)):
        raise OwnCodeError(f"the method {name!r} must be a class derived from remask.Method")
    if own.trains_net and own.loss is Method.loss and own.terms is Method.terms:
        raise OwnCodeError(f"the method {name!r} must define loss")
    return own


__all__ = [
    "ER",
    "MASKED_NAMES",
    "METHODS",
    "Batch",
    "Context",
    "DERpp",
    "Gradients",
    "LossGradients",
    "Method",
    "MethodError",
    "SampleGradients",
    "StackedNet",
    "Step",
    "Task",
    "Term",
    "find_method",
]
