"""The losses of a stack while it learns: means over a few steps each, by the names of their terms.

Values stay on the device until a point is due or the stack is saved, so no step waits for them.
What was gathered is state: a run that was stopped and goes on has the same points.
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
"""How the names of its tensors begin in the state of a stack."""
TOTAL = "loss"
"""The name of the loss that is descended; all others are terms that a method notes."""
_POINTS_PER_TASK, _MOST_PER_TASK = 50, 1000
_FEWEST_STEPS = 10  # of a point, unless asked for: points cost more than steps
_STEPS_BETWEEN_LOOKS = 500
_KEPT_POINTS = 200  # of a trial, in its result
_DIGITS = 6


class LossPoint(NamedTuple):
    """The losses at one moment: means over the steps since the point before."""

    step: int
    """How many steps of the whole stream had been taken."""
    task: int
    """How many tasks had been learnt."""
    values: _Array
    """[S, names]; NaN where a term was not noted. Later points may have more names."""


class _Due(NamedTuple):
    """A point whose values have not been fetched yet."""

    step: int
    task: int
    counts: list[int]
    """How many values of each name it ends after, of those that came since the latest look."""


class LossLog:
    """Gathers the loss of every trial of a stack and the terms that its method notes.

    `every` is how many steps a point spans; 0 means that a task has up to 50 points of 10
    steps or more. It is raised where a task would have more than 1,000.
    """

    def __init__(self, every: int = 0) -> None:
        self.noted: dict[str, list[Tensor]] = {TOTAL: []}
        """What has come since the latest look, [S] each; `Context.note` appends."""
        self._points: list[LossPoint] = []
        self._asked = every
        self._due: list[_Due] = []
        self._seen: dict[str, _Array] = {}  # [steps, S], fetched, and not part of a point yet
        self._task, self._begin, self._every = 0, 0, 1

    @property
    def names(self) -> list[str]:
        """The total first, then the terms in the order in which they were first noted."""
        return list(self.noted)

    @property
    def points(self) -> list[LossPoint]:
        """All points so far."""
        self._look()
        return self._points

    def begin_task(self, task: int, begin: int, length: int) -> None:
        """Come to a task that begins after so many steps and has at most so many."""
        self._task, self._begin = task, begin
        wanted = self._asked or max(_FEWEST_STEPS, -(-length // _POINTS_PER_TASK))
        self._every = max(wanted, -(-length // _MOST_PER_TASK))

    def after_step(self, loss: Tensor, taken: int) -> None:
        """Take the losses [S] of a step, the one after which so many of the task are taken."""
        self.noted[TOTAL].append(loss)
        if taken % self._every == 0:
            self.close(taken)
        if len(self.noted[TOTAL]) == _STEPS_BETWEEN_LOOKS:
            self._look()

    def close(self, taken: int) -> None:
        """Make a point of what came since the last one, after so many steps of the task."""
        counts = [len(values) for values in self.noted.values()]
        before = self._due[-1].counts[0] if self._due else -len(self._seen.get(TOTAL, ()))
        if counts[0] > before:
            self._due.append(_Due(self._begin + taken, self._task, counts))

    def state(self) -> dict[str, Tensor]:
        """What must be saved, by name; copies."""
        points, names = self.points, self.names
        trials = next((len(point.values) for point in points), 0)
        values = [_widened(point.values, len(names)) for point in points]
        waiting = [self._seen[name] for name in names if name in self._seen]
        empty = [np.empty((0, trials))]
        return {
            "names": torch.tensor(list("\n".join(names).encode()), dtype=torch.uint8),
            "where": torch.tensor([point[:2] for point in points], dtype=torch.int64).view(-1, 2),
            "values": torch.from_numpy(np.stack(values))
            if values
            else torch.empty((0, trials, len(names)), dtype=torch.float64),
            "counts": torch.tensor([len(self._seen.get(name, ())) for name in names]),
            "waiting": torch.from_numpy(np.concatenate(waiting or empty)),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a saved state; an empty one is that of a stack that did not log."""
        self.noted.clear()
        self.noted[TOTAL] = []
        self._points, self._due, self._seen = [], [], {}
        if not state:
            return
        names = bytes(state["names"].tolist()).decode().split("\n")
        self.noted.update({name: [] for name in names})
        pairs = zip(state["where"].tolist(), state["values"].numpy().copy(), strict=True)
        self._points = [LossPoint(step, task, values) for (step, task), values in pairs]
        parts = torch.split(state["waiting"], state["counts"].tolist())
        self._seen = {n: p.numpy().copy() for n, p in zip(names, parts, strict=True) if len(p)}

    def of_trials(
        self, nets: Callable[[int], Sequence[int]], number: Callable[[int], int]
    ) -> list[Losses]:
        """The points of each trial, thinned out.

        `nets` says which network stood for each trial in the task after so many others, and
        `number` is that task's number.
        """
        steps, tasks, values = self._thinned()
        chosen = [values[point, list(nets(task))] for point, task in enumerate(tasks)]
        learning = [number(task) for task in tasks]
        if not chosen:  # nothing has been learnt yet
            return []
        of_trial = np.stack(chosen, axis=1)  # [S, points, names]
        return [
            Losses(names=self.names, steps=steps, learning=learning, values=_rounded(own))
            for own in of_trial
        ]

    def _thinned(self) -> tuple[list[int], list[int], _Array]:
        """Steps, tasks and values [points, S, names], neighbours of a task taken together."""
        steps: list[int] = []
        tasks: list[int] = []
        values: list[_Array] = []
        most = max(1, _KEPT_POINTS // len({point.task for point in self.points} or {0}))
        before = 0
        for task, group in groupby(self.points, key=lambda point: point.task):
            own = list(group)
            together = -(-len(own) // most)
            for first in range(0, len(own), together):
                some = own[first : first + together]
                ends = [point.step for point in some]
                spans = np.diff([before, *ends])
                wide = [_widened(point.values, len(self.noted)) for point in some]
                values.append(_mean(np.stack(wide), spans))
                steps.append(ends[-1])
                tasks.append(task)
                before = ends[-1]
        return steps, tasks, np.array(values)

    def _look(self) -> None:
        """Fetch what was noted since the last look, all at once, and make the points of it.

        A point may be due with nothing new: its values were fetched when the stack was saved.
        """
        found = [value for values in self.noted.values() for value in values]
        if not found and not self._due:
            return
        fetched = torch.stack(found).cpu().double().numpy() if found else self._seen[TOTAL][:0]
        came, used, begin = dict[str, _Array](), dict[str, int](), 0
        for name, values in self.noted.items():
            own = fetched[begin : begin + len(values)]
            begin += len(values)
            came[name] = np.concatenate([self._seen[name], own]) if name in self._seen else own
            values.clear()
        earlier = {name: len(rows) for name, rows in self._seen.items()}
        for step, task, counts in self._due:
            means = []
            for name, count in zip(came, counts, strict=False):
                end = earlier.get(name, 0) + count
                means.append(_mean_over_steps(came[name][used.get(name, 0) : end]))
                used[name] = end
            self._points.append(LossPoint(step, task, np.stack(means, axis=1)))
        self._due.clear()
        left = {name: rows[used.get(name, 0) :] for name, rows in came.items()}
        self._seen = {name: rows.copy() for name, rows in left.items() if len(rows)}


def _mean_over_steps(rows: _Array) -> _Array:
    """The mean of [steps, S], summed in order: a trial has the same alone and in company."""
    if not len(rows):
        return np.full(rows.shape[1:], np.nan)
    return np.asarray(rows.cumsum(axis=0)[-1] / len(rows))


def _widened(values: _Array, names: int) -> _Array:
    """With a column for every name, also for those that came later."""
    missing = names - values.shape[1]
    return np.pad(values, ((0, 0), (0, missing)), constant_values=np.nan) if missing else values


def _mean(values: _Array, spans: _Array) -> _Array:
    """The mean over points [n, S, names], each by its steps, leaving out what was not noted."""
    weights = np.where(np.isnan(values), 0.0, spans.reshape(-1, 1, 1))
    total = weights.sum(0)
    summed = (weights * np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)).sum(0)
    missing = np.full_like(summed, np.nan)
    return np.asarray(np.divide(summed, total, out=missing, where=total > 0))


def _rounded(values: _Array) -> list[list[float]]:
    """Numbers that are short when they are written down; what is not finite is NaN."""
    return [
        [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else np.nan for value in row]
        for row in values
    ]
