"""Measurements of a stack's trials: losses, divergence, accuracies, and the resulting records."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.data.samples import StreamError
from remask.data.tasks import Task
from remask.engine.choosing import Choosing
from remask.engine.evaluation import StackAnswers
from remask.engine.loss_log import LossLog, LossPoint
from remask.engine.stream import Stream
from remask.machine import provenance
from remask.methods import Method
from remask.names import title_of
from remask.record import MaskChoice, TrialRecord

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


class Divergence:
    """Records the first step at which each trial's loss was not finite.

    Looking at a loss waits for the device, so it looks at many steps at once.
    """

    def __init__(self, trials: int) -> None:
        self.first_steps = torch.full((trials,), -1, dtype=torch.int64)
        """Counted from 0; -1 if its loss has always been finite. int64 [S]."""
        self._losses: list[Tensor] = []  # [S] each, of the latest steps

    def note(self, loss: Tensor) -> bool:
        """Note the losses [S] of a step; returns whether it is time to `look`."""
        self._losses.append(loss)
        return len(self._losses) == _STEPS_BETWEEN_LOOKS

    def look(self, steps_done: int) -> None:
        """Look at the losses of all steps since the last look."""
        if not self._losses:
            return
        broken = ~torch.stack(self._losses).isfinite().cpu()  # [steps, S]
        first_step = steps_done - len(self._losses)
        found = broken.any(0) & (self.first_steps < 0)
        self.first_steps[found] = first_step + broken.int().argmax(0)[found]
        self._losses.clear()


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
        self._divergence = Divergence(networks)
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

    def after_step(self, task: Task, loss: Tensor | None, taken: int) -> None:
        """Record the losses [S] of a step, if there are any, after `taken` steps of the task."""
        if loss is not None:
            if self._divergence.note(loss):
                self._look()
            if self._log is not None:
                self._log.after_step(loss, taken)
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

    def restored(self) -> None:
        """Forget what follows from the state before a restore."""
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
        self._divergence.look(self._stream.steps_done)

    @property
    def diverged(self) -> Tensor:
        """Which networks had a loss that was not finite, bool, up to the last look."""
        return self._divergence.first_steps >= 0

    @property
    def diverged_at(self) -> list[int | None]:
        """The step, from 0, at which the loss of each trial was not finite; None: none so far."""
        self._look()
        steps = self._divergence.first_steps.tolist()
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

    def loss_points(self, since: int) -> list[LossPoint]:
        """The losses of each trial so far, except the first `since` points."""
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

    def task_points(self, since: int) -> list[TaskPoint]:
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

    def results(self, memory_bytes: int) -> list[TrialRecord]:
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
                memory_bytes=memory_bytes,
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

    def state(self) -> dict[str, dict[str, Tensor]]:
        """All its tensors, by part and name; the live ones, not copies."""
        self._look()
        held_out, curves = self._stream.validation, self._stream.curves
        parts = {
            "metrics": {
                **self._stream.test.state(),
                "confidence": self._confidence,
                "diverged_at": self._divergence.first_steps,
                **(curves.evaluator.state("curve_") if curves is not None else {}),
            }
        }
        if held_out is not None:
            parts["validation"] = held_out.state()
        return parts
