"""The cells of the paper's tables, figures and beyond it, and the paper's statements about them.

Some statements contradict the paper's own tables; `statements.json` has them as the paper does.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from remask.config import CONDITIONS, MaskValue, Protocol
from remask.errors import UnknownNameError, unknown
from remask.names import system_name
from remask.papers.published import Claim, claims, read_data

ABLATION_MASKS = (-math.inf, -1e9, -1e6, -1e3, -10.0, -5.0, -2.0, -1.0, 0.0)
_OWN_RUNS = "paper-dagger"
_IN_THE_PAPER = (_OWN_RUNS, "buzzega2020")
_BUFFERS = (200, 500, 5120)
_System = tuple[str, MaskValue]
_ER: _System = ("er", None)
_MSER: _System = ("er", -math.inf)
_DERPP: _System = ("derpp", None)
_MSDERPP: _System = ("derpp", -math.inf)
_MSDERPP_1: _System = ("derpp", -1.0)
_ER_ACE: _System = ("er_ace", None)
_ER_EMA: _System = ("er_ema", 0.0)
_ABLATED: tuple[_System, ...] = tuple(("derpp", mask) for mask in ABLATION_MASKS)
_ONLINE: tuple[_System, ...] = (
    *(_ER, _DERPP, _ER_ACE, _MSER, ("er", -1.0), _MSDERPP, _MSDERPP_1, _ER_EMA),
)
_FASHION: tuple[_System, ...] = (
    *(_ER, _MSER, ("er", -1.0), ("er", "auto"), _ER_EMA, ("icarl", None)),
)
_NOT_AUGMENTED: tuple[_System, ...] = (
    *((method, None) for method in ("er", "er_ace", "mir", "icarl", "agem")),
    _MSER,
)


@dataclass(frozen=True)
class PaperCell:
    """A method with a mask and a buffer on a benchmark, under some conditions."""

    benchmark: str
    method: str
    mask: MaskValue
    buffer: int  # 0 for a method without memory
    evaluate_every: int = 0  # steps between evaluations within tasks, which do not change results
    protocol: Protocol = "paper"
    augment: bool = True
    share: float = 1.0  # of each class's training data

    @property
    def label(self) -> str:
        """The system's name in tables, with its conditions unless they are the paper's."""
        parts = [system_name(self.method, self.mask)]
        parts += [] if self.protocol == "paper" else [self.protocol]
        parts += [] if self.augment else ["not augmented"]
        parts += [] if self.share == 1 else [f"{100 * self.share:g} % of the data"]
        return ", ".join(parts)


EXPERIMENTS = {
    "main": "ER and DER++ with and without masks, three buffers",
    "low-buffer": "the same at buffers of 10, 50 and 100",
    "ablation": "nine masking values",
    "confidence": "the mean probability of each class",
    "appendix": "every system of the paper's tables",
    "all": "everything above",
    "gap": "how far old tasks fall right after a switch; not in the paper",
    "online": "photographs in one pass, beside the figures of the ER-ACE paper",
    "online-small": "the same with a part of the data",
    "fashion": "Split-Fashion-MNIST, beside the figures of Rethinking experience replay",
}
"""The names that `experiment_cells` accepts, and what each measures."""
_PAPER = ("main", "low-buffer", "ablation", "confidence", "appendix")
_ELSEWHERE = ("online", "online-small", "fashion")  # with figures that others published


def experiment_cells(name: str, benchmark: str) -> list[PaperCell]:
    """The cells of an experiment on a benchmark, in the paper's order; `all` is the whole paper."""
    if name not in EXPERIMENTS:
        raise UnknownNameError(unknown("experiment", name, EXPERIMENTS))
    chosen = _PAPER if name == "all" else (name,)
    return list(dict.fromkeys(cell for each in chosen for cell in _cells(each, benchmark)))


def _cells(name: str, benchmark: str) -> list[PaperCell]:
    claimed = [c for c in claims() if c.benchmark == benchmark and c.source in _IN_THE_PAPER]
    own = [claim for claim in claimed if claim.source == _OWN_RUNS]
    match name, benchmark:
        case "main", _:
            return [_cell_of(claim) for claim in own if claim.buffer >= min(_BUFFERS)]
        case "low-buffer", _:
            return [_cell_of(claim) for claim in own if claim.buffer < min(_BUFFERS)]
        case "appendix", _:
            return [_cell_of(claim) for claim in claimed if not 0 < claim.buffer < min(_BUFFERS)]
        case "ablation", "split-mnist" | "split-cifar10":  # without a mask: the dotted line
            systems = (_DERPP, *_ABLATED)
            return [PaperCell(benchmark, *s, buffer) for buffer in _BUFFERS for s in systems]
        case "confidence", "split-mnist":
            return [PaperCell(benchmark, *s, 200) for s in (_ER, _MSER, _DERPP, _MSDERPP)]
        case "confidence", "split-cifar10":
            return [PaperCell(benchmark, *s, 200) for s in (_DERPP, _MSDERPP)]
        case "gap", "split-mnist":  # the accuracy on old tasks right after a switch
            systems = (_ER, _MSER, _DERPP, _MSDERPP_1, _ER_EMA)
            cells = [PaperCell(benchmark, *s, buffer) for buffer in (200, 500) for s in systems]
            return [replace(cell, evaluate_every=10) for cell in cells]
        case "online", "split-cifar10":  # the protocol of the ER-ACE paper
            augmented = (*_ONLINE, ("er", 0.0), ("mir", None), ("ss_il", None))
            return [
                PaperCell(benchmark, *system, buffer, protocol="online", augment=augment)
                for buffer in (50, 200, 1000)
                for augment, systems in ((True, augmented), (False, _NOT_AUGMENTED))
                for system in systems
            ]
        case "online-small", "split-cifar10":  # as in an appendix of that paper
            published = (_ER, _DERPP, _ER_ACE)
            return [
                PaperCell(benchmark, *system, 200, protocol="online", augment=augment, share=share)
                for share in (0.05, 0.1, 0.25, 0.5)
                for augment, systems in ((True, _ONLINE), (False, published))
                for system in systems
            ]
        case "fashion", "split-fashion-mnist":
            joint = PaperCell(benchmark, "joint", None, 0, protocol="rethinking")
            return [
                *(
                    replace(joint, method=method, mask=mask, buffer=buffer)
                    for method, mask in _FASHION
                    for buffer in (200, 500, 1000)
                ),
                joint,
            ]
    return []


def experiments_of(cell: PaperCell) -> list[str]:
    """The names of the paper's experiments that contain a cell."""
    return _experiments().get(cell, [])


@cache
def _experiments() -> dict[PaperCell, list[str]]:
    found: dict[PaperCell, list[str]] = {}
    for benchmark in published_benchmarks():
        for name in (*_PAPER, *_ELSEWHERE):
            for cell in experiment_cells(name, benchmark):
                found.setdefault(cell, []).append(name)
    return found


def published_benchmarks() -> list[str]:
    """The benchmarks with published figures."""
    return list(dict.fromkeys(claim.benchmark for claim in claims()))


def published_figures(cell: PaperCell) -> dict[str, Claim]:
    """The published figures of a cell by measure, such as `class_il_A_T`.

    The paper's own runs take precedence over those that it quotes.
    """
    return _figures().get(replace(cell, evaluate_every=0), {})


@cache
def _figures() -> dict[PaperCell, dict[str, Claim]]:
    found: dict[PaperCell, dict[str, Claim]] = {}
    for claim in sorted(claims(), key=lambda claim: claim.source != _OWN_RUNS):
        measure = f"{claim.setting.replace('-', '_')}_{claim.metric}"
        found.setdefault(_cell_of(claim), {}).setdefault(measure, claim)
    return found


def _cell_of(claim: Claim) -> PaperCell:
    system = (claim.benchmark, claim.method, claim.mask, claim.buffer)
    conditions = {name: getattr(claim, name) for name in CONDITIONS}
    return PaperCell(*system, **conditions)


Quantifier = Literal["every", "most", "some"]


@dataclass(frozen=True)
class Expectation:
    """One comparison: the measure is expected to be higher in `higher` than in `lower`."""

    measure: str  # a metric, `class_il_A_T`, or a confidence, `confidence_first_task`
    higher: PaperCell
    lower: PaperCell


@dataclass(frozen=True)
class Statement:
    """One sentence of the paper, restated."""

    text: str
    section: str
    quantifier: Quantifier  # how many of its comparisons must hold
    expectations: tuple[Expectation, ...]


def statements(benchmark: str) -> list[Statement]:
    """The paper's statements about a benchmark that its experiments can decide."""
    return [
        Statement(
            entry["text"],
            entry["section"],
            entry["quantifier"],
            tuple(
                Expectation(measure, *(_cell(benchmark, system, buffer) for system in pair))
                for measure in entry["measures"]
                for buffer in entry["buffers"]
                for pair in entry["pairs"]
            ),
        )
        for entry in read_data("statements.json")
        if benchmark in entry["benchmarks"]
    ]


def _cell(benchmark: str, system: tuple[str, float | str | None], buffer: int) -> PaperCell:
    method, mask = system
    return PaperCell(benchmark, method, None if mask is None else float(mask), buffer)
