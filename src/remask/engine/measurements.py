"""Measurements of a stack's trials: divergence, accuracies, and the resulting records."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.data.tasks import StreamError, Task
from remask.engine.choosing import Choosing
from remask.engine.evaluation import measured_steps
from remask.engine.loss_log import LossLog, LossPoint
from remask.engine.stream import Stream
from remask.machine import provenance
from remask.methods import Method
from remask.names import title_of
from remask.record import Curve, MaskChoice, TrialRecord

POINTS = "metrics/curve_points"
GROWING = ("metrics/test", "metrics/validation", "metrics/curve")
"""The prefixes of the names of tensors that grow with the tasks and points measured."""
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
        # The first step, from 0, at which the loss was not finite; -1: it has always been finite.
        self._diverged_at = torch.full((method.context.trials,), -1, dtype=torch.int64)
        self._losses: list[Tensor] = []  # [n, S] each, of the latest steps
        self._due: list[int] = []  # steps of the task after which the curve has a point
        self._points = torch.zeros((0, 2), dtype=torch.int64)  # of the curve: step, task
        self._started = datetime.now(UTC)

    def begin_task(self, steps: int) -> None:
        """Start the next task, of at most `steps` steps."""
        index, every = self._stream.position.task, self._configs[0].evaluate_every
        self._due = measured_steps(steps, every, index + 1)[:-1] if every else []
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
        if taken in self._due:
            self._measure_curve(task)

    def after_last_step(self) -> None:
        """Complete the records of a task's steps."""
        self._look()
        if self._log is not None:
            before = self._stream.steps_before(self._stream.position.task)
            self._log.close(self._stream.steps_done - before)

    def end_task(self, task: Task) -> None:
        """Measure the last point of a task's curve, after the method has ended the task."""
        if "curve" in self._stream.evaluators:
            self._measure_curve(task)

    def evaluate(self) -> None:
        """Measure all tasks so far that have test data, after the latest task learnt."""
        stream, method = self._stream, self._method
        learnt = stream.position.task
        latest, keep = stream.number(learnt - 1), learnt == len(stream.tasks)
        for name, scores in (("test", method.scores), ("validation", method.own_scores)):
            if name in stream.evaluators:
                stream.evaluators[name].measure(scores, latest, class_il=method.class_il, keep=keep)

    def _measure_curve(self, task: Task) -> None:
        point = torch.tensor([[self._stream.steps_done, task.number]])
        self._points = torch.cat([self._points, point])
        self._stream.evaluators["curve"].measure(
            self._method.scores,
            task.number,
            row=len(self._points) - 1,
            class_il=self._method.class_il,
        )

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
        number, test = self._stream.number(index), self._stream.evaluators["test"]
        test.grow(number + 1, number + 1)
        rows = test.accuracy[self._networks_in(index), :, number]  # [S, 2, T]
        step = self._stream.steps_before(index + 1)
        return TaskPoint(step, number, rows[:, 0].tolist(), rows[:, 1].tolist())

    def running_accuracy(self) -> float:
        """The mean Class-IL accuracy over networks and tasks after the latest task; or NaN."""
        rows = self._stream.evaluators["test"].accuracy[:, 0].nanmean(dim=(0, 2))
        measured = rows[~rows.isnan()]
        return float(measured[-1]) if len(measured) else float("nan")

    def results(self, engine: str) -> list[TrialRecord]:
        """The record of each trial so far; `engine` is what took the steps."""
        stream, method, learnt = self._stream, self._method, self._stream.position.task
        tasks = stream.classes_of_tasks(learnt)
        if not tasks:
            raise StreamError("nothing has been learnt yet: call learn() first")
        for name, evaluator in stream.evaluators.items():
            evaluator.grow(len(self._points) if name == "curve" else len(tasks), len(tasks))
        losses = [] if self._log is None else self._log.of_trials(self._networks_in, stream.number)
        answers = None
        if learnt == len(stream.tasks) and (method.class_il or method.confidence):
            answers = stream.evaluators["test"].answers(
                method.scores, class_il=method.class_il, confidence=method.confidence
            )
        unanswered = None, [torch.nan] * stream.data.num_classes
        diverged_at, choices, title = self.diverged_at, self.choices, str(method.title)
        seconds = (datetime.now(UTC) - self._started).total_seconds()
        origin = provenance()
        origin["machine"] |= {"engine": engine}
        records = []
        for trial, (config, net) in enumerate(zip(self._configs, self.networks, strict=True)):
            answered, confidence = unanswered if answers is None else answers[net]
            record = TrialRecord(
                config=config,
                title=None if title == title_of(config.method) else title,
                status="finished" if diverged_at[trial] is None else "diverged",
                diverged_at=diverged_at[trial],
                **self._accuracies(net),
                confidence=confidence,
                answers=answered,
                memory_bytes=self._memory_bytes(),
                losses=losses[trial] if losses else None,
                choices=choices[trial],
                tasks=tasks,
                class_names=stream.data.class_names,
                started=self._started,
                seconds=seconds / len(self._configs),
                **origin,
            )
            records.append(record)
        return records

    def _accuracies(self, net: int) -> dict[str, Any]:
        """The fields of a record with the accuracies of one network."""
        fields: dict[str, Any] = {}
        for name, evaluator in self._stream.evaluators.items():
            prefix = "validation_" if name == "validation" else ""
            class_il, task_il = evaluator.accuracy[net].tolist()
            found = {f"{prefix}class_il": class_il, f"{prefix}task_il": task_il}
            if name == "curve":
                steps, learning = self._points.T.tolist()
                found = {"curve": Curve(steps=steps, learning=learning, **found)}
            fields |= found
        return fields

    def _memory_bytes(self) -> int:
        """The size of what each trial stores between tasks beside its net.

        Samples, logits and copies of nets; rows of a benchmark count as the samples they refer to.
        """
        stream, method, reservoir = self._stream, self._method, self._method.context.reservoir
        stores = [method.state(), {} if reservoir is None else reservoir.state()]
        kept = sum(tensor.nbytes for store in stores for tensor in store.values())
        kept //= len(self._configs)
        inputs = stream.samples.inputs
        if method.memory is None or stream.open or not isinstance(inputs, Tensor):
            return kept
        return kept + method.memory.filled * inputs[:1].nbytes

    def state(self) -> dict[str, Tensor]:
        """The tensors to save and restore; the live ones, not copies."""
        self._look()
        named = {name: own.accuracy for name, own in self._stream.evaluators.items()}
        if "curve" in named:
            named["curve_points"] = self._points
        return {"diverged_at": self._diverged_at, **named}
