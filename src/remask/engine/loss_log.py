"""The losses of a stack during training, as means over a few steps, by the names of their terms.

Values stay on the device until they are read or the stack is saved, so no step waits for them. They
are part of the state: a resumed run has the same points.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
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
        """The values since the last point, [S] each; `Context.note` appends."""
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

    def after_step(self, loss: Tensor, taken: int) -> None:
        """Record the losses [S] of a step, the `taken`-th of the task."""
        self.noted[TOTAL].append(loss)
        if taken % self._every == 0:
            self.close(taken)

    def close(self, taken: int) -> None:
        """Make a point of the values since the last one, after `taken` steps of the task."""
        if not self.noted[TOTAL]:
            return
        loss = self.noted[TOTAL][-1]
        absent = torch.full_like(loss, torch.nan, dtype=torch.float64)
        means = []
        for values in self.noted.values():
            # Summed in order: a trial has the same mean alone and in any stack.
            rows = [value.to(loss.device, torch.float64) for value in values]
            means.append(torch.stack(rows).cumsum(0)[-1] / len(rows) if rows else absent)
            values.clear()
        self._points.append((self._begin + taken, self._task, torch.stack(means, dim=1)))

    def state(self) -> dict[str, Tensor]:
        """The tensors to save, by name; copies."""
        points, names = self.points, self.names
        waiting = [value.cpu().double() for values in self.noted.values() for value in values]
        trials = len(points[0].values) if points else len(waiting[0]) if waiting else 0
        values = [_widened(point.values, len(names)) for point in points]
        return {
            "names": torch.tensor(list("\n".join(names).encode()), dtype=torch.uint8),
            "where": torch.tensor([point[:2] for point in points], dtype=torch.int64).view(-1, 2),
            "values": torch.from_numpy(np.reshape(values, (len(values), trials, len(names)))),
            "counts": torch.tensor([len(values) for values in self.noted.values()]),
            "waiting": torch.stack(waiting).view(-1, trials)
            if waiting
            else torch.empty((0, trials), dtype=torch.float64),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a saved state; an empty one is that of a stack that did not log."""
        self.noted.clear()
        self.noted[TOTAL] = []
        self._points = []
        if not state:
            return
        names = bytes(state["names"].tolist()).decode().split("\n")
        parts = torch.split(state["waiting"], state["counts"].tolist())
        self.noted.update({n: list(own) for n, own in zip(names, parts, strict=True)})
        pairs = zip(state["where"].tolist(), state["values"].clone(), strict=True)
        self._points = [(step, task, values) for (step, task), values in pairs]

    def of_trials(
        self, nets: Callable[[int], Sequence[int]], number: Callable[[int], int]
    ) -> list[Losses]:
        """The points of each trial, thinned out.

        `nets` returns the network of each trial in the task after a number of others, and `number`
        that task's number.
        """
        steps, tasks, values = self._thinned()
        chosen = [values[point, list(nets(task))] for point, task in enumerate(tasks)]
        if not chosen:
            return []
        learning = [number(task) for task in tasks]
        return [
            Losses(names=self.names, steps=steps, learning=learning, values=_rounded(own))
            for own in np.stack(chosen, axis=1)  # [S, points, names]
        ]

    def _thinned(self) -> tuple[list[int], list[int], _Array]:
        """Steps, tasks and values [points, S, names], with neighbours of a task averaged."""
        steps: list[int] = []
        tasks: list[int] = []
        values: list[_Array] = []
        points = self.points
        most = max(1, _KEPT_POINTS // len({point.task for point in points} or {0}))
        before = 0
        for task, group in groupby(points, key=lambda point: point.task):
            own = list(group)
            together = -(-len(own) // most)
            for first in range(0, len(own), together):
                some = own[first : first + together]
                ends = [point.step for point in some]
                wide = np.stack([_widened(point.values, len(self.noted)) for point in some])
                values.append(_mean(wide, np.diff([before, *ends])))
                steps.append(ends[-1])
                tasks.append(task)
                before = ends[-1]
        return steps, tasks, np.array(values)


def _widened(values: _Array, names: int) -> _Array:
    """Add columns for names that were noted later."""
    missing = names - values.shape[1]
    return np.pad(values, ((0, 0), (0, missing)), constant_values=np.nan)


def _mean(values: _Array, spans: _Array) -> _Array:
    """The mean over points [n, S, names], weighted by their steps, ignoring NaN."""
    weights = np.where(np.isnan(values), 0.0, spans.reshape(-1, 1, 1))
    total = weights.sum(0)
    summed = (weights * np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)).sum(0)
    missing = np.full_like(summed, np.nan)
    return np.asarray(np.divide(summed, total, out=missing, where=total > 0))


def _rounded(values: _Array) -> list[list[float]]:
    """Short decimals; NaN for what is not finite."""
    return [
        [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else np.nan for value in row]
        for row in values
    ]
