"""What figures are drawn of: cells that belong together, and their means over trials."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remask.config import TrialConfig
from remask.names import system_name
from remask.results import Cell, TrialRecord, group_alike

Array = NDArray[np.float64]
MINUS = "\N{MINUS SIGN}"

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

_CONTRASTED = (-math.inf, -1.0)
"""The masks that the paper proposes; figures with room for few show these."""


@dataclass(frozen=True)
class Family:
    """Cells whose configs are equal but for the mask, and that have learnt the same tasks."""

    plain: Cell | None
    """The one without a mask."""
    masked: tuple[Cell, ...]
    """The others, by mask, -inf first."""

    @property
    def config(self) -> TrialConfig:
        """What they have in common; its mask and its seed mean nothing."""
        return self.cells[0].config

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All of them."""
        return self.masked if self.plain is None else (self.plain, *self.masked)

    @property
    def contrasted(self) -> tuple[Cell, ...]:
        """The cell without a mask, then those with -inf and -1, or else with the lowest mask.

        Nothing if there is no cell without a mask or none with one.
        """
        if self.plain is None or not self.masked:
            return ()
        chosen = [cell for cell in self.masked if cell.config.mask in _CONTRASTED]
        return (self.plain, *(chosen or self.masked[:1]))

    @property
    def settings(self) -> str:
        """What sets it apart from families of the same method and buffer: `lr=0.1`, or nothing."""
        return max((cell.label.partition(", ")[2] for cell in self.cells), key=len)


def families(cells: Sequence[Cell]) -> list[Family]:
    """Group the cells with a Class-IL accuracy at the end, in the order of the cells."""
    groups: dict[TrialConfig, list[Cell]] = {}
    for cell in cells:
        if not math.isnan(cell.spreads["class_il_A_T"].mean):
            no_mask = {"mask": None, "positive_mask": False, "seed": 0}
            shared = cell.config.model_copy(update=no_mask)
            groups.setdefault(shared, []).append(cell)
    return [
        _family({cell.config.mask: cell for cell in alike})
        for group in groups.values()
        for alike in group_alike(group, lambda cell: cell.learnt)
    ]


def _family(by_mask: dict[float | None, Cell]) -> Family:
    masks = sorted(mask for mask in by_mask if mask is not None)
    return Family(by_mask.get(None), tuple(by_mask[mask] for mask in masks))


def matrices(cell: Cell, setting: str = "class_il") -> Array:
    """The accuracy matrices of the finished trials, [S, T, T] in percent."""
    return np.array([getattr(record, setting) for record in cell.finished], dtype=np.float64)


def mean_of_seen(accuracy: Array) -> Array:
    """The mean accuracy on the tasks seen by then, after each task: [S, T, T] -> [S, T]."""
    tasks = accuracy.shape[-1]
    seen = np.where(np.tri(tasks, dtype=bool), accuracy, 0.0)
    return np.asarray(seen.sum(axis=-1) / np.arange(1, tasks + 1))


def confidences(cell: Cell) -> Array:
    """The confidence in each class by its label, [S, K] in percent."""
    return 100 * np.array([record.confidence for record in cell.finished], dtype=np.float64)


def has_confidence(cell: Cell) -> bool:
    """Whether any was measured: some methods give no probabilities."""

    def measured(record: TrialRecord) -> bool:
        return not all(math.isnan(value) for value in record.confidence)

    return all(measured(record) for record in cell.finished)


def mean_and_std(values: Array) -> tuple[Array, Array]:
    """Over trials, with the population's standard deviation: [S, ...] -> twice [...]."""
    return np.asarray(values.mean(axis=0)), np.asarray(values.std(axis=0))


def mask_name(mask: float) -> str:
    """A mask as print shows it: `−∞`, `−10⁹`, `−2`."""
    if math.isinf(mask):
        return f"{MINUS}∞"
    exponent = round(math.log10(-mask)) if mask < 0 else 0
    if exponent >= 3 and -mask == 10.0**exponent:
        return f"{MINUS}10{str(exponent).translate(_RAISED)}"
    return f"{mask + 0.0:g}".replace("-", MINUS)  # + 0.0 takes the sign off a zero


def system_title(cell: Cell) -> str:
    """A system's name as print shows it: `ER`, `MSER(−∞)`."""
    return name_with_mask(cell, cell.config.mask)


def name_with_mask(cell: Cell, mask: float | None) -> str:
    """The name that a cell's system has with this mask."""
    name = system_name(cell.config.method, mask, cell.title)
    return name if mask is None else f"{name.rpartition('(')[0]}({mask_name(mask)})"


def in_common(cells: Sequence[Cell], what: str) -> str:
    """A figure's title: `split-mnist, buffer 200: mean ± std over 10 trials`."""
    buffers = {cell.config.buffer for cell in cells}
    shared = f", buffer {buffers.pop()}" if len(buffers) == 1 else ""
    if all(cell.trials == 1 for cell in cells):  # one trial has no spread
        what = what.replace(" ± std", "")
    return f"{cells[0].config.benchmark}{shared}: {what} over {_trials(cells)}"


def own_trials(cells: Sequence[Cell], drawn: Sequence[Cell]) -> str:
    """` (9 trials)`, for after the name of these cells; nothing if all that is drawn agrees."""
    return f" ({_trials(cells)})" if len({cell.trials for cell in drawn}) > 1 else ""


def _trials(cells: Sequence[Cell]) -> str:
    counts = sorted({cell.trials for cell in cells})
    trials = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{trials} trial{'' if counts[-1] == 1 else 's'}"
