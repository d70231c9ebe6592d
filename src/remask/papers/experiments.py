"""The cells of the paper's tables, figures and beyond it, and the paper's statements about them.

Some statements contradict the paper's own tables; `statements.json` has them as the paper does.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from remask.config import MaskValue, Protocol
from remask.errors import UnknownNameError, unknown
from remask.names import system_name
from remask.papers.published import Claim, claims, read_data

ABLATION_MASKS = (-math.inf, -1e9, -1e6, -1e3, -10.0, -5.0, -2.0, -1.0, 0.0)
_OWN_RUNS = "paper-dagger"
_IN_THE_PAPER = (_OWN_RUNS, "buzzega2020")
_BUFFERS = (200, 500, 5120)
_System = tuple[str, float | None]
_ER: _System = ("er", None)
_MSER: _System = ("er", -math.inf)
_DERPP: _System = ("derpp", None)
_MSDERPP: _System = ("derpp", -math.inf)
_MSDERPP_1: _System = ("derpp", -1.0)
_ER_EMA: _System = ("er_ema", 0.0)
_ABLATED: tuple[_System, ...] = tuple(("derpp", mask) for mask in ABLATION_MASKS)
_ONLINE: tuple[_System, ...] = (
    *(_ER, _DERPP, ("er_ace", None), _MSER, ("er", -1.0), _MSDERPP, _MSDERPP_1, _ER_EMA),
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


def _claimed(wanted: Callable[[Claim], bool]) -> Callable[[str], list[PaperCell]]:
    """Returns the cells of a benchmark with such figures in the paper."""

    def cells(benchmark: str) -> list[PaperCell]:
        here = (c for c in claims() if c.benchmark == benchmark and c.source in _IN_THE_PAPER)
        return [_cell_of(claim) for claim in here if wanted(claim)]

    return cells


def _ablation(benchmark: str) -> list[PaperCell]:
    """MSDER++ with every mask, and DER++ without one: the figure's dotted line."""
    if benchmark not in ("split-mnist", "split-cifar10"):
        return []
    systems = (_DERPP, *_ABLATED)
    return [PaperCell(benchmark, *system, buffer) for buffer in _BUFFERS for system in systems]


def _confidence(benchmark: str) -> list[PaperCell]:
    derpp = (_DERPP, _MSDERPP)
    systems = {"split-mnist": (_ER, _MSER, *derpp), "split-cifar10": derpp}.get(benchmark, ())
    return [PaperCell(benchmark, *system, 200) for system in systems]


def _gap(benchmark: str) -> list[PaperCell]:
    """The stability gap: accuracy on old tasks right after a switch. Not in the paper."""
    if benchmark != "split-mnist":
        return []
    return [
        PaperCell(benchmark, *system, buffer, evaluate_every=10)
        for buffer in (200, 500)
        for system in (_ER, _MSER, _DERPP, _MSDERPP_1, _ER_EMA)
    ]


def _online(benchmark: str) -> list[PaperCell]:
    """The protocol of the ER-ACE paper, with and without augmentation."""
    if benchmark != "split-cifar10":
        return []
    augmented = (*_ONLINE, ("er", 0.0), ("mir", None), ("ss_il", None))
    return [
        PaperCell(benchmark, *system, buffer, protocol="online", augment=augment)
        for buffer in (200, 1000)
        for augment, systems in ((True, augmented), (False, _NOT_AUGMENTED))
        for system in systems
    ]


def _online_small(benchmark: str) -> list[PaperCell]:
    """The same with a part of the data, as in an appendix of that paper."""
    if benchmark != "split-cifar10":
        return []
    return [
        PaperCell(benchmark, *system, 200, protocol="online", share=share)
        for share in (0.05, 0.1, 0.25, 0.5)
        for system in _ONLINE
    ]


_EXPERIMENTS: dict[str, Callable[[str], list[PaperCell]]] = {
    "main": _claimed(lambda c: c.source == _OWN_RUNS and c.buffer >= min(_BUFFERS)),
    "low-buffer": _claimed(lambda c: c.source == _OWN_RUNS and c.buffer < min(_BUFFERS)),
    "ablation": _ablation,
    "confidence": _confidence,
    "appendix": _claimed(lambda c: not 0 < c.buffer < min(_BUFFERS)),
}
_BEYOND = {"gap": _gap, "online": _online, "online-small": _online_small}
EXPERIMENTS = (*_EXPERIMENTS, "all", *_BEYOND)
"""The names that `experiment_cells` accepts."""


def experiment_cells(name: str, benchmark: str) -> list[PaperCell]:
    """The cells of an experiment on a benchmark, in the paper's order; `all` is the whole paper."""
    if name not in EXPERIMENTS:
        raise UnknownNameError(unknown("experiment", name, EXPERIMENTS))
    chosen = _EXPERIMENTS.values() if name == "all" else [{**_EXPERIMENTS, **_BEYOND}[name]]
    return list(dict.fromkeys(cell for cells in chosen for cell in cells(benchmark)))


def experiments_of(cell: PaperCell) -> list[str]:
    """The names of the paper's experiments that contain a cell."""
    return _experiments().get(cell, [])


@cache
def _experiments() -> dict[PaperCell, list[str]]:
    found: dict[PaperCell, list[str]] = {}
    for benchmark in published_benchmarks():
        for name in (*_EXPERIMENTS, "online"):
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
    return PaperCell(*system, protocol=claim.protocol, augment=claim.augment)


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
    found = []
    for entry in read_data("statements.json"):
        if benchmark in entry["benchmarks"]:
            expectations = tuple(
                Expectation(
                    measure, _cell(benchmark, higher, buffer), _cell(benchmark, lower, buffer)
                )
                for measure in entry["measures"]
                for buffer in entry["buffers"]
                for higher, lower in entry["pairs"]
            )
            found.append(
                Statement(entry["text"], entry["section"], entry["quantifier"], expectations)
            )
    return found


def _cell(benchmark: str, system: tuple[str, float | str | None], buffer: int) -> PaperCell:
    method, mask = system
    return PaperCell(benchmark, method, None if mask is None else float(mask), buffer)
