"""The cells that each of the paper's tables and figures consists of, and what goes beyond it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from remask.names import UnknownNameError, unknown
from remask.papers.published import Claim, claims
from remask.setting_types import MaskValue

ABLATION_MASKS = (-math.inf, -1e9, -1e6, -1e3, -10.0, -5.0, -2.0, -1.0, 0.0)
_PAPERS_OWN = "paper-dagger"
_IN_THE_PAPER = (_PAPERS_OWN, "buzzega2020")
_SMALLEST_MAIN_BUFFER = 200
_BUFFERS = (200, 500, 5120)


@dataclass(frozen=True)
class PaperCell:
    """A method with its mask on a benchmark, with a memory of so many samples."""

    benchmark: str
    method: str
    mask: MaskValue
    buffer: int
    """0 for a method without memory."""
    evaluate_every: int = 0
    """Whether it is measured within tasks as well, which changes no result, and how often."""


def _main(benchmark: str) -> list[PaperCell]:
    return _claimed(benchmark, lambda buffer, own: own and buffer >= _SMALLEST_MAIN_BUFFER)


def _low_buffer(benchmark: str) -> list[PaperCell]:
    return _claimed(benchmark, lambda buffer, own: own and buffer < _SMALLEST_MAIN_BUFFER)


def _appendix(benchmark: str) -> list[PaperCell]:
    return _claimed(benchmark, lambda buffer, _: not 0 < buffer < _SMALLEST_MAIN_BUFFER)


def _ablation(benchmark: str) -> list[PaperCell]:
    """With DER++ without a mask, which is the figure's dotted line."""
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


_GAP_SYSTEMS: tuple[tuple[str, float | None], ...] = (
    ("er", None),
    ("er", -math.inf),
    ("derpp", None),
    ("derpp", -1.0),
    ("er_ema", 0.0),
)
_GAP_BUFFERS, _GAP_EVERY = (200, 500), 10


def _gap(benchmark: str) -> list[PaperCell]:
    """The stability gap: what happens to old tasks right after a switch. The paper has none."""
    if benchmark != "split-mnist":
        return []
    return [
        PaperCell(benchmark, method, mask, buffer, evaluate_every=_GAP_EVERY)
        for buffer in _GAP_BUFFERS
        for method, mask in _GAP_SYSTEMS
    ]


_EXPERIMENTS: dict[str, Callable[[str], list[PaperCell]]] = {
    "main": _main,
    "low-buffer": _low_buffer,
    "ablation": _ablation,
    "confidence": _confidence,
    "appendix": _appendix,
}
_BEYOND_THE_PAPER = {"gap": _gap}
EXPERIMENTS = (*_EXPERIMENTS, "all", *_BEYOND_THE_PAPER)
"""The names that `experiment_cells` knows."""


def experiment_cells(name: str, benchmark: str) -> list[PaperCell]:
    """The cells of an experiment on a benchmark, in the paper's order; `all` is all of these."""
    if name not in EXPERIMENTS:
        raise UnknownNameError(unknown("experiment", name, EXPERIMENTS))
    known = {**_EXPERIMENTS, **_BEYOND_THE_PAPER}
    chosen = _EXPERIMENTS.values() if name == "all" else [known[name]]
    return list(dict.fromkeys(cell for cells in chosen for cell in cells(benchmark)))


def experiments_of(cell: PaperCell) -> list[str]:
    """The experiments that a cell is part of."""
    return [name for name, cells in _EXPERIMENTS.items() if cell in cells(cell.benchmark)]


def published_benchmarks() -> list[str]:
    """The benchmarks that the paper has figures for."""
    return list(dict.fromkeys(claim.benchmark for claim in claims()))


def published_figures(cell: PaperCell) -> dict[str, Claim]:
    """What is published of a cell, by measure, `class_il_A_T` and so on.

    The paper's own runs come before those that it quotes.
    """
    return _figures().get(replace(cell, evaluate_every=0), {})


@cache
def _figures() -> dict[PaperCell, dict[str, Claim]]:
    found: dict[PaperCell, dict[str, Claim]] = {}
    for claim in sorted(claims(), key=lambda claim: claim.source != _PAPERS_OWN):
        measure = f"{claim.setting.replace('-', '_')}_{claim.metric}"
        found.setdefault(_cell_of(claim), {}).setdefault(measure, claim)
    return found


def _cell_of(claim: Claim) -> PaperCell:
    return PaperCell(claim.benchmark, claim.method, claim.mask, claim.buffer or 0)


def _claimed(benchmark: str, wanted: Callable[[int, bool], bool]) -> list[PaperCell]:
    return list(
        dict.fromkeys(
            _cell_of(claim)
            for claim in claims()
            if claim.benchmark == benchmark
            and claim.source in _IN_THE_PAPER
            and wanted(claim.buffer or 0, claim.source == _PAPERS_OWN)
        )
    )
