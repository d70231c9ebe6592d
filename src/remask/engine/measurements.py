"""Measurements of a stack's trials: losses, divergence, accuracies, and the resulting records."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.config import TrialConfig
from remask.data.tasks import StreamError, Task
from remask.engine.choosing import Choosing
from remask.engine.evaluation import StackAnswers
from remask.engine.stream import Stream
from remask.machine import provenance
from remask.methods import Method
from remask.names import title_of
from remask.record import Losses, MaskChoice, TrialRecord

_Array = NDArray[np.float64]

LOG = "log/"
"""The prefix of its tensors in the state of a stack."""
TOTAL = "loss"
"""The name of the loss that is minimised; all others are terms that a method notes."""
_POINTS_PER_TASK, _MOST_PER_TASK = 50, 1000
_FEWEST_STEPS = 10  # per point by default: points cost more than steps
_KEPT_POINTS = 200  # of a trial, in its record
_DIGITS = 6
_STEPS_BETWEEN_LOOKS = 100


@dataclass(frozen=True)
class TaskPoint:
    """The accuracies of the trials of a stack after a task."""

    step: int
    """The steps of the whole stream taken so far."""
    task: int
    """The number of the task."""
    class_il: list[list[float]]
    """Percent, [S, T]; NaN where not measured."""
    task_il: list[list[float]]


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


class Measurements:
    """Losses, divergence and accuracies of the networks that learn a stream.

    There is one network per trial, or there are several candidates, of which one was chosen after
    every task and represents the trial.
    """

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        stream: Stream,
        method: Method,
        choosing: Choosing | None,
        log: LossLog | None,
    ) -> None:
        """`configs` are those of the trials, not of the candidates."""
        self._configs, self._stream, self._method = configs, stream, method
        self._choosing, self._log = choosing, log
        networks = method.context.trials
        # The first step, from 0, at which the loss was not finite; -1: it has always been finite.
        self._diverged_at = torch.full((networks,), -1, dtype=torch.int64)
        self._losses: list[Tensor] = []  # [n, S] each, of the latest steps
        every_class = (networks, stream.data.num_classes)
        self._confidence = torch.full(every_class, torch.nan, dtype=torch.float64)
        self._due: dict[int, int] = {}  # points of the curves, by the steps of the task before them
        self._due_at_end: int | None = None
        self._answers: StackAnswers | None = None  # not state: it follows from the rest
        self._started = datetime.now(UTC)

    def begin_task(self, steps: int) -> None:
        """Start the next task, of at most `steps` steps."""
        index = self._stream.position.task
        self._due = self._stream.points_due()
        self._due_at_end = self._due.pop(steps, None)
        if self._log is not None:
            self._log.begin_task(index, self._stream.steps_before(index), steps)

    def next_look(self, taken: int) -> int:
        """The number of steps of the task, more than `taken`, before the next measurement."""
        due = [step for step in self._due if step > taken]
        if self._log is not None:
            due.append(self._log.next_point(taken))
        return min(due, default=sys.maxsize)

    def after_steps(self, task: Task, losses: Tensor | None, taken: int) -> None:
        """Record the losses [n, S] of steps, if there are any, after `taken` steps of the task."""
        if losses is not None:
            self._losses.append(losses)
            if len(self._losses) == _STEPS_BETWEEN_LOOKS:
                self._look()
            if self._log is not None:
                self._log.after_steps(losses, taken)
        self._measure_curves(task, self._due.get(taken))

    def after_last_step(self) -> None:
        """Complete the records of a task's steps."""
        self._look()
        if self._log is not None:
            before = self._stream.steps_before(self._stream.position.task)
            self._log.close(self._stream.steps_done - before)

    def end_task(self, task: Task) -> None:
        """Measure the last point of a task's curve, after the method has ended the task."""
        self._measure_curves(task, self._due_at_end)

    def evaluate(self) -> None:
        """Measure all tasks so far that have test data, after the latest task learnt."""
        stream, method = self._stream, self._method
        learnt, class_il = stream.position.task, method.class_il
        latest = stream.number(learnt - 1)
        stream.test.grow(latest + 1, latest + 1)
        stream.test.measure(method.scores, latest, latest, class_il=class_il)
        if stream.validation is not None:
            stream.validation.grow(latest + 1, latest + 1)
            stream.validation.measure(method.own_scores, latest, latest, class_il=class_il)
        if learnt == len(stream.tasks):
            self._answers = self._final_answers()
            if self._answers is not None and method.confidence:
                self._confidence.copy_(self._answers.confidence())

    def restore(self, logged: Mapping[str, Tensor]) -> None:
        """Restore logged losses, if there is a log, and forget what follows from earlier state."""
        if self._log is not None:
            self._log.restore(logged)
        self._answers = None

    def _final_answers(self) -> StackAnswers | None:
        method = self._method
        if not (method.class_il or method.confidence):
            return None
        return self._stream.test.answers(
            method.scores, class_il=method.class_il, confidence=method.confidence
        )

    def _measure_curves(self, task: Task, point: int | None) -> None:
        """Fill a point of the curves, if one is due."""
        if self._stream.curves is not None and point is not None:
            scores, class_il = self._method.scores, self._method.class_il
            curves = self._stream.curves.evaluator
            curves.measure(scores, point, task.number, class_il=class_il)

    def _look(self) -> None:
        """Look at the losses since the last look. This waits for the device, hence not often."""
        if not self._losses:
            return
        broken = ~torch.cat(self._losses).isfinite().cpu()  # [steps, S]
        first_step = self._stream.steps_done - len(broken)
        found = broken.any(0) & (self._diverged_at < 0)
        self._diverged_at[found] = first_step + broken.int().argmax(0)[found]
        self._losses.clear()

    @property
    def diverged(self) -> Tensor:
        """Which networks had a loss that was not finite, bool, up to the last look."""
        return self._diverged_at >= 0

    @property
    def diverged_at(self) -> list[int | None]:
        """The step, from 0, at which the loss of each trial was not finite; None: none so far."""
        self._look()
        steps = self._diverged_at.tolist()
        return [None if steps[net] < 0 else steps[net] for net in self.networks]

    @property
    def networks(self) -> list[int]:
        """The network that represents each trial now."""
        return self._networks_in(self._stream.position.task)

    def _networks_in(self, index: int) -> list[int]:
        """The network that represents each trial in the task after `index` others.

        It is the one that was chosen after the task; until then, the one chosen last.
        """
        if self._choosing is None:
            return list(range(len(self._configs)))
        return self._choosing.networks(min(index + 1, self._stream.position.task))

    @property
    def choices(self) -> list[tuple[MaskChoice, ...]]:
        """Each trial's choice after every task so far; empty without candidates."""
        if self._choosing is None:
            return [()] * len(self._configs)
        return self._choosing.choices(self._stream.position.task)

    @property
    def loss_names(self) -> list[str]:
        """The names of the values of loss points."""
        return [] if self._log is None else self._log.names

    def loss_points(self, since: int = 0) -> list[LossPoint]:
        """The losses of each trial so far, except the first `since` points; needs a log.

        With candidates, they are those of the one chosen after the task, and missing until then.
        """
        if self._log is None:
            raise StreamError("this stack does not log its losses: make it with log=LossLog()")
        points = self._log.points[since:]
        if self._choosing is None:
            return points
        return [
            point._replace(values=point.values[self._networks_in(point.task)])
            for point in points
            if point.task < self._stream.position.task
        ]

    def task_points(self, since: int = 0) -> list[TaskPoint]:
        """The accuracies after each task, except the first `since`."""
        return [self._task_point(index) for index in range(since, self._stream.position.task)]

    def _task_point(self, index: int) -> TaskPoint:
        number, test = self._stream.number(index), self._stream.test
        networks, step = self._networks_in(index), self._stream.steps_before(index + 1)
        rows = test.class_il[networks, number], test.task_il[networks, number]
        return TaskPoint(step, number, *(row.tolist() for row in rows))

    def running_accuracy(self) -> float:
        """The mean Class-IL accuracy over networks and tasks after the latest task; or NaN."""
        rows = self._stream.test.class_il.nanmean(dim=(0, 2))
        measured = rows[~rows.isnan()]
        return float(measured[-1]) if len(measured) else float("nan")

    def results(self) -> list[TrialRecord]:
        """The record of each trial so far."""
        stream, learnt = self._stream, self._stream.position.task
        test, held_out = stream.test, stream.validation
        tasks = stream.classes_of_tasks(learnt)
        if not tasks:
            raise StreamError("nothing has been learnt yet: call learn() first")
        test.grow(len(tasks), len(tasks))
        if held_out is not None:
            held_out.grow(len(tasks), len(tasks))
        curves = stream.trial_curves()
        losses = None
        if self._log is not None:
            losses = self._log.of_trials(self._networks_in, stream.number)
        diverged_at = self.diverged_at
        title = str(self._method.title)
        if self._answers is None and 0 < len(stream.tasks) == learnt:
            self._answers = self._final_answers()  # of a run that was stopped just before its end
        answers = self._answers
        seconds = (datetime.now(UTC) - self._started).total_seconds()
        return [
            TrialRecord(
                config=config,
                title=None if title == title_of(config.method) else title,
                status="finished" if diverged_at[trial] is None else "diverged",
                diverged_at=diverged_at[trial],
                class_il=test.class_il[net].tolist(),
                task_il=test.task_il[net].tolist(),
                validation_class_il=held_out.class_il[net].tolist() if held_out else (),
                validation_task_il=held_out.task_il[net].tolist() if held_out else (),
                confidence=self._confidence[net].tolist(),
                answers=answers.of_trial(net) if answers else None,
                memory_bytes=self.memory_bytes,
                curve=curves[net] if curves else None,
                losses=losses[trial] if losses else None,
                choices=chosen,
                tasks=tasks,
                class_names=stream.data.class_names,
                started=self._started,
                seconds=seconds / len(self._configs),
                **provenance(),
            )
            for trial, (config, net, chosen) in enumerate(
                zip(self._configs, self.networks, self.choices, strict=True)
            )
        ]

    @property
    def memory_bytes(self) -> int:
        """The size of what each trial stores between tasks beside its net.

        Samples, logits and copies of nets; rows of a benchmark count as the samples they refer to.
        """
        stream, method, reservoir = self._stream, self._method, self._method.context.reservoir
        stores = [method.state(), {} if reservoir is None else reservoir.state()]
        kept = sum(tensor.nbytes for store in stores for tensor in store.values())
        kept //= len(self._configs)
        if method.memory is None or stream.open:
            return kept
        inputs = stream.samples.inputs
        row_bytes = inputs[:1].nbytes if isinstance(inputs, Tensor) else 0
        return kept + method.memory.filled * row_bytes

    def state(self) -> dict[str, dict[str, Tensor]]:
        """All its tensors, by part and name; the live ones, not copies."""
        self._look()
        held_out, curves = self._stream.validation, self._stream.curves
        parts = {
            "metrics": {
                **self._stream.test.state(),
                "confidence": self._confidence,
                "diverged_at": self._diverged_at,
                **(curves.evaluator.state("curve_") if curves is not None else {}),
            }
        }
        if held_out is not None:
            parts["validation"] = held_out.state()
        if self._log is not None:
            parts["log"] = self._log.state()
        return parts
