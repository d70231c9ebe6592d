"""The losses of a stack on the way: means over several steps, for loggers and records."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.record import Losses

_Array = NDArray[np.float64]

LOG = "log/"
"""The prefix of its tensors in the state of a stack."""
TOTAL = "loss"
"""The name of the loss that is minimised; all others are terms that a method notes."""
_POINTS_PER_TASK, _MOST_PER_TASK = 50, 1000
_FEWEST_STEPS = 10  # per point by default: points cost more than steps
_KEPT_POINTS = 200  # of a trial, in its record
_DIGITS = 6


class LossPoint(NamedTuple):
    """The mean losses over the steps since the previous point."""

    step: int
    """The number of steps of the whole stream taken."""
    task: int
    """The number of tasks learnt."""
    values: _Array
    """[S, names]; NaN where a term was not noted. Later points may have more names."""


class LossLog:
    """Collects the loss of every trial of a stack and the terms that its method notes.

    `every` is the number of steps per point. By default a task has up to 50 points of at least 10
    steps. It is raised where a task would have more than 1,000 points.
    """

    def __init__(self, every: int = 0) -> None:
        self.noted: dict[str, list[Tensor]] = {TOTAL: []}
        """The latest values, [S] each; `Context.note` appends."""
        self._sums: dict[str, tuple[Tensor, int]] = {}  # of values since the last point, [S]
        self._points: list[tuple[int, int, Tensor]] = []  # as LossPoint, on the device
        self._asked = every
        self._task, self._begin, self._every = 0, 0, 1

    @property
    def names(self) -> list[str]:
        """The total first, then the terms in the order in which they were first noted."""
        return list(self.noted)

    @property
    def points(self) -> list[LossPoint]:
        """All points so far."""
        self._points = [(step, task, values.cpu()) for step, task, values in self._points]
        return [LossPoint(step, task, values.numpy()) for step, task, values in self._points]

    def begin_task(self, task: int, begin: int, length: int) -> None:
        """Start a task of at most `length` steps, after `begin` steps of the stream."""
        self._task, self._begin = task, begin
        wanted = self._asked or max(_FEWEST_STEPS, -(-length // _POINTS_PER_TASK))
        self._every = max(wanted, -(-length // _MOST_PER_TASK))

    def next_point(self, taken: int) -> int:
        """The number of steps of the task, more than `taken`, before the next point."""
        return (taken // self._every + 1) * self._every

    def after_steps(self, losses: Tensor, taken: int) -> None:
        """Record the losses [n, S] of steps, up to the `taken`-th of the task."""
        self.noted[TOTAL].extend(losses)
        if taken % self._every == 0:
            self.close(taken)

    def close(self, taken: int) -> None:
        """Make a point of the values since the last one, after `taken` steps of the task."""
        self._add_up()
        if TOTAL in self._sums:
            loss, _ = self._sums[TOTAL]
            absent = torch.full_like(loss, torch.nan), 1
            found = (self._sums.get(name, absent) for name in self.noted)
            means = torch.stack([total.to(loss.device) / count for total, count in found], dim=1)
            self._points.append((self._begin + taken, self._task, means))
            self._sums.clear()

    def _add_up(self) -> None:
        """Add the latest values to the sums, in order: a trial has the same bits in any stack."""
        for name, values in self.noted.items():
            if values:
                total, count = self._sums.get(name, (values[0].new_zeros(len(values[0])), 0))
                rows = [total.to(values[0].device), *values]
                summed = torch.stack([row.double() for row in rows]).cumsum(0)[-1]
                self._sums[name] = summed, count + len(values)
                values.clear()

    def state(self) -> dict[str, Tensor]:
        """The tensors to save, by name; copies."""
        self._add_up()
        points, sums = self.points, [self._sums.get(name) for name in self.noted]
        known = [total.cpu() for total, _ in self._sums.values()]
        absent = torch.zeros_like(known[0]) if known else torch.zeros(0, dtype=torch.float64)
        return {
            "names": torch.tensor(list("\n".join(self.names).encode()), dtype=torch.uint8),
            "where": torch.tensor([point[:2] for point in points], dtype=torch.int64).view(-1, 2),
            "values": torch.from_numpy(self._values() if points else np.zeros((0, 0, 0))),
            "sums": torch.stack([absent if own is None else own[0].cpu() for own in sums]),
            "counts": torch.tensor([0 if own is None else own[1] for own in sums]),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a saved state; an empty one is that of a stack that did not log."""
        names = bytes(state["names"].tolist()).decode().split("\n") if state else [TOTAL]
        self.noted.clear()
        self.noted.update({name: [] for name in names})
        self._sums, self._points = {}, []
        if state:
            sums = zip(names, state["sums"].clone(), state["counts"].tolist(), strict=True)
            self._sums = {name: (total, count) for name, total, count in sums if count}
            points = zip(state["where"].tolist(), state["values"].clone(), strict=True)
            self._points = [(step, task, values) for (step, task), values in points]

    def _values(self) -> _Array:
        """The values of all points, [points, S, names]."""
        rows = [point.values for point in self.points]
        more = ((0, 0), (0, len(self.noted)))
        padded = [np.pad(row, more, constant_values=np.nan)[:, : len(self.noted)] for row in rows]
        return np.array(padded)

    def of_trials(
        self, nets: Callable[[int], Sequence[int]], number: Callable[[int], int]
    ) -> list[Losses]:
        """The points of each trial; where they are many, neighbours of a task are averaged.

        `nets` returns the network of each trial in the task after a number of others, and `number`
        that task's number.
        """
        points = self.points
        if not points:
            return []
        tasks = np.array([point.task for point in points])
        steps = np.array([point.step for point in points])
        each, of_task = np.unique(tasks, return_inverse=True)
        most = max(1, _KEPT_POINTS // len(each))
        groups = [np.flatnonzero(of_task == task) for task in range(len(each))]
        firsts = np.concatenate([own[:: -(-len(own) // most)] for own in groups])
        values, spans = self._values(), np.diff(steps, prepend=0).reshape(-1, 1, 1)
        weights = np.where(np.isnan(values), 0.0, spans)
        known = np.where(np.isnan(values), 0.0, values)
        with np.errstate(invalid="ignore"):  # infinite losses
            sums, totals = (np.add.reduceat(own, firsts) for own in (weights * known, weights))
        means = np.divide(sums, totals, out=np.full_like(sums, np.nan), where=totals > 0)
        lasts = [*(firsts[1:] - 1), len(points) - 1]
        chosen = [own[list(nets(task))] for own, task in zip(means, tasks[firsts], strict=True)]
        return [
            Losses(
                names=self.names,
                steps=steps[lasts].tolist(),
                learning=[number(task) for task in tasks[firsts].tolist()],
                values=_rounded(own),
            )
            for own in np.stack(chosen, axis=1)  # [S, points, names]
        ]


def _rounded(values: _Array) -> list[list[float]]:
    """Short decimals; NaN for what is not finite."""
    return [
        [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else np.nan for value in row]
        for row in values
    ]
