"""The cells of the paper's tables and figures, and of one experiment beyond it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from remask.errors import UnknownNameError, unknown
from remask.papers.published import Claim, claims
from remask.setting_types import MaskValue

ABLATION_MASKS = (-math.inf, -1e9, -1e6, -1e3, -10.0, -5.0, -2.0, -1.0, 0.0)
_OWN_RUNS = "paper-dagger"
_IN_THE_PAPER = (_OWN_RUNS, "buzzega2020")
_BUFFERS = (200, 500, 5120)
_GAP_SYSTEMS: tuple[tuple[str, float | None], ...] = (
    ("er", None),
    ("er", -math.inf),
    ("derpp", None),
    ("derpp", -1.0),
    ("er_ema", 0.0),
)


@dataclass(frozen=True)
class PaperCell:
    """A method with a mask and a buffer on a benchmark."""

    benchmark: str
    method: str
    mask: MaskValue
    buffer: int  # 0 for a method without memory
    evaluate_every: int = 0
    """Steps between evaluations within tasks, which do not change results; 0: none."""


def _claimed(benchmark: str, wanted: Callable[[Claim], bool]) -> list[PaperCell]:
    return [
        _cell_of(claim)
        for claim in claims()
        if claim.benchmark == benchmark and claim.source in _IN_THE_PAPER and wanted(claim)
    ]


def _main(benchmark: str) -> list[PaperCell]:
    return _claimed(benchmark, lambda c: c.source == _OWN_RUNS and c.buffer >= min(_BUFFERS))


def _low_buffer(benchmark: str) -> list[PaperCell]:
    return _claimed(benchmark, lambda c: c.source == _OWN_RUNS and c.buffer < min(_BUFFERS))


def _appendix(benchmark: str) -> list[PaperCell]:
    return _claimed(benchmark, lambda c: not 0 < c.buffer < min(_BUFFERS))


def _ablation(benchmark: str) -> list[PaperCell]:
    """MSDER++ with every mask, and DER++ without one: the figure's dotted line."""
    if benchmark not in ("split-mnist", "split-cifar10"):
        return []
    return [
        PaperCell(benchmark, "derpp", mask, buffer)
        for buffer in _BUFFERS
        for mask in (None, *ABLATION_MASKS)
    ]


def _confidence(benchmark: str) -> list[PaperCell]:
    methods = {"split-mnist": ("er", "derpp"), "split-cifar10": ("derpp",)}.get(benchmark, ())
    return [
        PaperCell(benchmark, method, mask, 200) for method in methods for mask in (None, -math.inf)
    ]


def _gap(benchmark: str) -> list[PaperCell]:
    """The stability gap: accuracy on old tasks right after a switch. Not in the paper."""
    if benchmark != "split-mnist":
        return []
    return [
        PaperCell(benchmark, method, mask, buffer, evaluate_every=10)
        for buffer in (200, 500)
        for method, mask in _GAP_SYSTEMS
    ]


_EXPERIMENTS: dict[str, Callable[[str], list[PaperCell]]] = {
    "main": _main,
    "low-buffer": _low_buffer,
    "ablation": _ablation,
    "confidence": _confidence,
    "appendix": _appendix,
}
EXPERIMENTS = (*_EXPERIMENTS, "all", "gap")
"""The names that `experiment_cells` accepts."""


def experiment_cells(name: str, benchmark: str) -> list[PaperCell]:
    """The cells of an experiment on a benchmark, in the paper's order; `all` is the whole paper."""
    if name not in EXPERIMENTS:
        raise UnknownNameError(unknown("experiment", name, EXPERIMENTS))
    chosen = _EXPERIMENTS.values() if name == "all" else [{**_EXPERIMENTS, "gap": _gap}[name]]
    return list(dict.fromkeys(cell for cells in chosen for cell in cells(benchmark)))


def experiments_of(cell: PaperCell) -> list[str]:
    """The names of the paper's experiments that contain a cell."""
    return _experiments().get(cell, [])


@cache
def _experiments() -> dict[PaperCell, list[str]]:
    found: dict[PaperCell, list[str]] = {}
    for benchmark in published_benchmarks():
        for name in _EXPERIMENTS:
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
    return PaperCell(claim.benchmark, claim.method, claim.mask, claim.buffer)
