"""What the paper says in words, as comparisons that data can decide.

Each statement is one of the paper's sentences, restated, with the comparisons of cells that it
amounts to. Some of them the paper's own tables contradict; they are stated as they were made.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from remask.papers.experiments import (
    ABLATION_MASKS,
    PaperCell,
    experiment_cells,
    published_benchmarks,
)

Quantifier = Literal["every", "most", "some"]
Measure = Literal[
    "class_il_A_T",
    "class_il_F_T",
    "class_il_plasticity",
    "task_il_A_T",
    "task_il_F_T",
    "confidence_first_task",
    "confidence_last_task",
]


@dataclass(frozen=True)
class Expectation:
    """One comparison: a measure is said to be higher in one cell than in the other."""

    measure: Measure
    higher: PaperCell
    lower: PaperCell


@dataclass(frozen=True)
class Statement:
    """One sentence of the paper, restated."""

    text: str
    section: str
    quantifier: Quantifier
    """Of how many of its comparisons it says that they hold."""
    expectations: tuple[Expectation, ...]


def statements(benchmark: str) -> list[Statement]:
    """Everything that the paper says of a benchmark and that its experiments can decide."""
    if benchmark not in published_benchmarks():
        return []
    paper = _Cells(benchmark)
    found = [*_on_benchmarks(paper)]
    if experiment_cells("low-buffer", benchmark):
        found += _on_low_buffers(paper)
    if experiment_cells("confidence", benchmark):
        found += _on_confidence(paper)
    if experiment_cells("ablation", benchmark):
        found += _on_ablation(paper)
    return found


@dataclass(frozen=True)
class _Cells:
    """Short names for the cells of a benchmark."""

    benchmark: str

    def er(self, buffer: int) -> PaperCell:
        return PaperCell(self.benchmark, "er", None, buffer)

    def mser(self, buffer: int) -> PaperCell:
        return PaperCell(self.benchmark, "er", -math.inf, buffer)

    def derpp(self, buffer: int) -> PaperCell:
        return PaperCell(self.benchmark, "derpp", None, buffer)

    def msderpp(self, mask: float, buffer: int) -> PaperCell:
        return PaperCell(self.benchmark, "derpp", mask, buffer)

    def masked_and_not(self, buffers: Iterable[int]) -> list[tuple[PaperCell, PaperCell]]:
        """Every masked system of the main table with the one that it masks."""
        return [
            pair
            for buffer in buffers
            for pair in (
                (self.mser(buffer), self.er(buffer)),
                (self.msderpp(-math.inf, buffer), self.derpp(buffer)),
                (self.msderpp(-1.0, buffer), self.derpp(buffer)),
            )
        ]


_MAIN = (200, 500, 5120)
_LOW = (10, 50, 100)


def _on_benchmarks(paper: _Cells) -> list[Statement]:
    pairs = paper.masked_and_not(_MAIN)
    dangerous = "Distillation with Masked Softmax is Dangerous"
    return [
        Statement(
            "Masking lowers forgetting in every cell.",
            "Continual Learning Benchmarks",
            "every",
            tuple(Expectation("class_il_F_T", plain, masked) for masked, plain in pairs),
        ),
        Statement(
            "In Task-IL, masked replay is better in every cell.",
            "Continual Learning Benchmarks",
            "every",
            tuple(Expectation("task_il_A_T", masked, plain) for masked, plain in pairs),
        ),
        Statement(
            "In Class-IL, masked replay is better in most cells.",
            "Continual Learning Benchmarks",
            "most",
            tuple(Expectation("class_il_A_T", masked, plain) for masked, plain in pairs),
        ),
        Statement(
            "With distillation, m = -inf is worse than no mask in most cells (Class-IL).",
            dangerous,
            "most",
            tuple(
                Expectation("class_il_A_T", paper.derpp(buffer), paper.msderpp(-math.inf, buffer))
                for buffer in _MAIN
            ),
        ),
        Statement(
            "With distillation, m = -1 is better than m = -inf in most cells (Class-IL).",
            "Control Model Stability by Masking Value Adjustment",
            "most",
            tuple(
                Expectation(
                    "class_il_A_T", paper.msderpp(-1.0, buffer), paper.msderpp(-math.inf, buffer)
                )
                for buffer in _MAIN
            ),
        ),
        Statement(
            "MSDER++(-1) beats DER++ at buffer 200 (Class-IL).",
            "Continual Learning Benchmarks",
            "every",
            (Expectation("class_il_A_T", paper.msderpp(-1.0, 200), paper.derpp(200)),),
        ),
    ]


def _on_low_buffers(paper: _Cells) -> list[Statement]:
    section = "Continual Learning in Low Buffer Size"
    settings: tuple[tuple[Measure, str], ...]
    settings = (("class_il_A_T", "Class-IL"), ("task_il_A_T", "Task-IL"))
    found = [
        Statement(
            f"With 10, 50 and 100 samples in memory, m = -inf beats no mask ({setting}).",
            section,
            "every",
            tuple(
                Expectation(measure, paper.msderpp(-math.inf, buffer), paper.derpp(buffer))
                for buffer in _LOW
            ),
        )
        for measure, setting in settings
    ]
    if paper.benchmark == "split-mnist":
        found.append(
            Statement(
                "MSDER++(-1) beats DER++ and MSDER++(-inf) at buffers 10 and 50 (Class-IL).",
                section,
                "every",
                tuple(
                    Expectation("class_il_A_T", paper.msderpp(-1.0, buffer), other)
                    for buffer in (10, 50)
                    for other in (paper.derpp(buffer), paper.msderpp(-math.inf, buffer))
                ),
            )
        )
    else:
        found.append(
            Statement(
                "MSDER++(-inf) beats DER++ and MSDER++(-1) at every low buffer (Class-IL).",
                section,
                "every",
                tuple(
                    Expectation("class_il_A_T", paper.msderpp(-math.inf, buffer), other)
                    for buffer in _LOW
                    for other in (paper.derpp(buffer), paper.msderpp(-1.0, buffer))
                ),
            )
        )
    return found


def _on_confidence(paper: _Cells) -> list[Statement]:
    section = "Change in Confidence and Task-wise Average Accuracy of Model"
    distilling = (paper.msderpp(-math.inf, 200), paper.derpp(200))
    replaying = (paper.mser(200), paper.er(200))
    with_both = paper.benchmark == "split-mnist"
    pairs = [replaying, distilling] if with_both else [distilling]
    found = [
        Statement(
            "m = -inf keeps the confidence in the first task's classes higher at the end.",
            section,
            "every",
            tuple(Expectation("confidence_first_task", masked, plain) for masked, plain in pairs),
        ),
        Statement(
            "m = -inf leaves the confidence in the last task's classes lower.",
            section,
            "every",
            tuple(Expectation("confidence_last_task", plain, masked) for masked, plain in pairs),
        ),
        Statement(
            "With m = -inf a task is learnt less well at first (plasticity).",
            section,
            "every",
            tuple(Expectation("class_il_plasticity", plain, masked) for masked, plain in pairs),
        ),
    ]
    if with_both:
        found.append(
            Statement(
                "MSER(-inf) beats ER at buffer 200, in Class-IL and in Task-IL.",
                section,
                "every",
                (
                    Expectation("class_il_A_T", *replaying),
                    Expectation("task_il_A_T", *replaying),
                ),
            )
        )
    return found


def _on_ablation(paper: _Cells) -> list[Statement]:
    section = "Ablation Study for Masking Values"

    def beats(buffer: int) -> tuple[Expectation, ...]:
        return tuple(
            Expectation("class_il_A_T", paper.msderpp(mask, buffer), paper.derpp(buffer))
            for mask in ABLATION_MASKS
        )

    def loses(buffers: Iterable[int]) -> tuple[Expectation, ...]:
        return tuple(
            Expectation("class_il_A_T", pair.lower, pair.higher)
            for buffer in buffers
            for pair in beats(buffer)
        )

    def for_some(buffer: int) -> Statement:
        return Statement(
            f"At buffer {buffer}, DER++ is beaten with some masking value.",
            section,
            "some",
            beats(buffer),
        )

    if paper.benchmark == "split-cifar10":
        return [
            Statement(
                "At buffer 200, DER++ is beaten with every masking value.",
                section,
                "every",
                beats(200),
            ),
            for_some(500),
            for_some(5120),
        ]
    return [
        for_some(200),
        Statement(
            "At buffers 500 and 5120, every masking value is worse than DER++.",
            section,
            "every",
            loses((500, 5120)),
        ),
        Statement(
            "Even there, accuracy rises as m goes from -inf to 0.",
            section,
            "every",
            tuple(
                Expectation(
                    "class_il_A_T", paper.msderpp(0.0, buffer), paper.msderpp(-math.inf, buffer)
                )
                for buffer in (500, 5120)
            ),
        ),
    ]
