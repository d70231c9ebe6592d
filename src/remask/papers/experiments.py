"""The cells of the paper's tables, figures and beyond it, and the paper's statements about them.

Some statements contradict the paper's own tables; they are stated as the paper states them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from remask.errors import UnknownNameError, unknown
from remask.names import system_name
from remask.papers.published import Claim, claims
from remask.setting_types import MaskValue, Protocol

ABLATION_MASKS = (-math.inf, -1e9, -1e6, -1e3, -10.0, -5.0, -2.0, -1.0, 0.0)
_OWN_RUNS = "paper-dagger"
_IN_THE_PAPER = (_OWN_RUNS, "buzzega2020")
_BUFFERS = (200, 500, 5120)
_System = tuple[str, float | None]
_GAP_SYSTEMS: tuple[_System, ...] = (
    ("er", None),
    ("er", -math.inf),
    ("derpp", None),
    ("derpp", -1.0),
    ("er_ema", 0.0),
)
_ONLINE_SYSTEMS: tuple[_System, ...] = (
    *((method, None) for method in ("er", "derpp", "er_ace")),
    *(("er", mask) for mask in (-math.inf, -1.0)),
    *(("derpp", mask) for mask in (-math.inf, -1.0)),
    ("er_ema", 0.0),
)
_MORE_ONLINE: tuple[_System, ...] = (("er", 0.0), ("mir", None), ("ss_il", None))
_NOT_AUGMENTED: tuple[_System, ...] = (
    *((method, None) for method in ("er", "er_ace", "mir", "icarl", "agem")),
    ("er", -math.inf),
)


@dataclass(frozen=True)
class PaperCell:
    """A method with a mask and a buffer on a benchmark, under some conditions."""

    benchmark: str
    method: str
    mask: MaskValue
    buffer: int  # 0 for a method without memory
    evaluate_every: int = 0
    """Steps between evaluations within tasks, which do not change results; 0: none."""
    protocol: Protocol = "paper"
    augment: bool = True
    share: float = 1.0
    """Of each class's training data."""

    @property
    def label(self) -> str:
        """The system's name in tables, with its conditions unless they are the paper's."""
        parts = [system_name(self.method, self.mask)]
        parts += [] if self.protocol == "paper" else [self.protocol]
        parts += [] if self.augment else ["not augmented"]
        parts += [] if self.share == 1 else [f"{100 * self.share:g} % of the data"]
        return ", ".join(parts)


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


def _online(benchmark: str) -> list[PaperCell]:
    """The protocol of the ER-ACE paper, with and without augmentation."""
    if benchmark != "split-cifar10":
        return []
    return [
        PaperCell(benchmark, *system, buffer, protocol="online", augment=augment)
        for buffer in (200, 1000)
        for augment, systems in (
            (True, (*_ONLINE_SYSTEMS, *_MORE_ONLINE)),
            (False, _NOT_AUGMENTED),
        )
        for system in systems
    ]


def _online_small(benchmark: str) -> list[PaperCell]:
    """The same with a part of the data, as in an appendix of that paper."""
    if benchmark != "split-cifar10":
        return []
    return [
        PaperCell(benchmark, *system, 200, protocol="online", share=share)
        for share in (0.05, 0.1, 0.25, 0.5)
        for system in _ONLINE_SYSTEMS
    ]


_EXPERIMENTS: dict[str, Callable[[str], list[PaperCell]]] = {
    "main": _main,
    "low-buffer": _low_buffer,
    "ablation": _ablation,
    "confidence": _confidence,
    "appendix": _appendix,
}
_BEYOND: dict[str, Callable[[str], list[PaperCell]]] = {
    "gap": _gap,
    "online": _online,
    "online-small": _online_small,
}
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
    return PaperCell(
        *(claim.benchmark, claim.method, claim.mask, claim.buffer),
        protocol=claim.protocol,
        augment=claim.augment,
    )


Quantifier = Literal["every", "most", "some"]
_Pairs = Sequence[tuple[_System, _System]]

_ER: _System = ("er", None)
_MSER: _System = ("er", -math.inf)
_DERPP: _System = ("derpp", None)
_MSDERPP: _System = ("derpp", -math.inf)
_MSDERPP_1: _System = ("derpp", -1.0)
_MASKED = ((_MSER, _ER), (_MSDERPP, _DERPP), (_MSDERPP_1, _DERPP))
_UNMASKED = tuple((plain, masked) for masked, plain in _MASKED)
_MAIN, _LOW = (200, 500, 5120), (10, 50, 100)


@dataclass(frozen=True)
class Expectation:
    """One comparison: the measure is expected to be higher in `higher` than in `lower`."""

    measure: str
    """A metric, `class_il_A_T`, or the confidence in a task's classes, `confidence_first_task`."""
    higher: PaperCell
    lower: PaperCell


@dataclass(frozen=True)
class Statement:
    """One sentence of the paper, restated."""

    text: str
    section: str
    quantifier: Quantifier  # how many of its comparisons must hold
    expectations: tuple[Expectation, ...]


@dataclass(frozen=True)
class _Section:
    """A section of the paper, and the benchmark that its statements are about."""

    title: str
    benchmark: str

    def state(
        self,
        text: str,
        quantifier: Quantifier,
        pairs: _Pairs,
        buffers: Sequence[int],
        measures: Sequence[str] = ("class_il_A_T",),
    ) -> Statement:
        """A statement that every first of `pairs` is higher than the second."""
        expectations = tuple(
            Expectation(
                measure,
                PaperCell(self.benchmark, *higher, buffer),
                PaperCell(self.benchmark, *lower, buffer),
            )
            for measure in measures
            for buffer in buffers
            for higher, lower in pairs
        )
        return Statement(text, self.title, quantifier, expectations)


def statements(benchmark: str) -> list[Statement]:
    """The paper's statements about a benchmark that its experiments can decide."""
    if benchmark not in published_benchmarks():
        return []
    found = [*_on_benchmarks(benchmark)]
    if experiment_cells("low-buffer", benchmark):
        found += _on_low_buffers(benchmark)
    if experiment_cells("confidence", benchmark):
        found += _on_confidence(benchmark)
    if experiment_cells("ablation", benchmark):
        found += _on_ablation(benchmark)
    return found


def _on_benchmarks(benchmark: str) -> Iterator[Statement]:
    state = _Section("Continual Learning Benchmarks", benchmark).state
    text = "Masking lowers forgetting in every cell."
    yield state(text, "every", _UNMASKED, _MAIN, ["class_il_F_T"])
    text = "In Task-IL, masked replay is better in every cell."
    yield state(text, "every", _MASKED, _MAIN, ["task_il_A_T"])
    text = "In Class-IL, masked replay is better in most cells."
    yield state(text, "most", _MASKED, _MAIN)
    dangerous = _Section("Distillation with Masked Softmax is Dangerous", benchmark)
    text = "With distillation, m = -inf is worse than no mask in most cells (Class-IL)."
    yield dangerous.state(text, "most", [(_DERPP, _MSDERPP)], _MAIN)
    adjusted = _Section("Control Model Stability by Masking Value Adjustment", benchmark)
    text = "With distillation, m = -1 is better than m = -inf in most cells (Class-IL)."
    yield adjusted.state(text, "most", [(_MSDERPP_1, _MSDERPP)], _MAIN)
    text = "MSDER++(-1) beats DER++ at buffer 200 (Class-IL)."
    yield state(text, "every", [(_MSDERPP_1, _DERPP)], [200])


def _on_low_buffers(benchmark: str) -> Iterator[Statement]:
    state = _Section("Continual Learning in Low Buffer Size", benchmark).state
    for measure, setting in (("class_il_A_T", "Class-IL"), ("task_il_A_T", "Task-IL")):
        text = f"With 10, 50 and 100 samples in memory, m = -inf beats no mask ({setting})."
        yield state(text, "every", [(_MSDERPP, _DERPP)], _LOW, [measure])
    if benchmark == "split-mnist":
        text = "MSDER++(-1) beats DER++ and MSDER++(-inf) at buffers 10 and 50 (Class-IL)."
        pairs = [(_MSDERPP_1, _DERPP), (_MSDERPP_1, _MSDERPP)]
        yield state(text, "every", pairs, [10, 50])
    else:
        text = "MSDER++(-inf) beats DER++ and MSDER++(-1) at every low buffer (Class-IL)."
        yield state(text, "every", [(_MSDERPP, _DERPP), (_MSDERPP, _MSDERPP_1)], _LOW)


def _on_confidence(benchmark: str) -> Iterator[Statement]:
    state = _Section(
        "Change in Confidence and Task-wise Average Accuracy of Model", benchmark
    ).state
    with_er = benchmark == "split-mnist"
    masked, unmasked = (pairs[:2] if with_er else pairs[1:2] for pairs in (_MASKED, _UNMASKED))
    text = "m = -inf keeps the confidence in the first task's classes higher at the end."
    yield state(text, "every", masked, [200], ["confidence_first_task"])
    text = "m = -inf leaves the confidence in the last task's classes lower."
    yield state(text, "every", unmasked, [200], ["confidence_last_task"])
    text = "With m = -inf a task is learnt less well at first (plasticity)."
    yield state(text, "every", unmasked, [200], ["class_il_plasticity"])
    if with_er:
        text = "MSER(-inf) beats ER at buffer 200, in Class-IL and in Task-IL."
        yield state(text, "every", [(_MSER, _ER)], [200], ["class_il_A_T", "task_il_A_T"])


def _on_ablation(benchmark: str) -> Iterator[Statement]:
    state = _Section("Ablation Study for Masking Values", benchmark).state
    swept = [(("derpp", mask), _DERPP) for mask in ABLATION_MASKS]
    some = "At buffer {}, DER++ is beaten with some masking value."
    if benchmark == "split-cifar10":
        text = "At buffer 200, DER++ is beaten with every masking value."
        yield state(text, "every", swept, [200])
        yield state(some.format(500), "some", swept, [500])
        yield state(some.format(5120), "some", swept, [5120])
        return
    yield state(some.format(200), "some", swept, [200])
    text = "At buffers 500 and 5120, every masking value is worse than DER++."
    yield state(text, "every", [(plain, masked) for masked, plain in swept], [500, 5120])
    text = "Even there, accuracy rises as m goes from -inf to 0."
    yield state(text, "every", [(("derpp", 0.0), _MSDERPP)], [500, 5120])
