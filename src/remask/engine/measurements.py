"""What the trials of a stack have shown so far."""

from collections.abc import Sequence

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.engine.divergence import Divergence
from remask.engine.evaluation import Answers
from remask.engine.showing import Choice, TrialResult
from remask.engine.stream import Stream
from remask.methods import Method
from remask.names import title_of
from remask.streams import Task


class Measurements:
    """Accuracies, curves, confidence and divergence of S nets that learn a stream."""

    def __init__(self, stream: Stream, method: Method, nets: int) -> None:
        self.divergence = Divergence(nets)
        self._stream, self._method = stream, method
        every_class = (nets, stream.data.num_classes)
        self._confidence = torch.full(every_class, torch.nan, dtype=torch.float64)
        self._answers: Answers | None = None  # not state: it follows from the rest

    @torch.no_grad()
    def after_task(self, task: int) -> None:
        """Measure all tasks up to this one, which was learnt last, as far as they have data."""
        stream, method = self._stream, self._method
        latest = stream.number(task)
        stream.test.grow(latest + 1)
        stream.test.measure(method.scores, latest, class_il=method.class_il)
        if stream.validation is not None:
            stream.validation.grow(latest + 1)
            stream.validation.measure(method.own_scores, latest, class_il=method.class_il)
        if task + 1 == len(stream.tasks):
            self._answers = self._final_answers()
            if self._answers is not None and method.confidence:
                self._confidence.copy_(self._answers.confidence())

    @torch.no_grad()
    def _final_answers(self) -> Answers | None:
        method = self._method
        if not (method.class_il or method.confidence):
            return None
        return self._stream.test.answers(
            method.scores, class_il=method.class_il, confidence=method.confidence
        )

    @torch.no_grad()
    def within_task(self, task: Task, point: int | None) -> None:
        """Measure a point of the curves, if one is due."""
        if self._stream.curves is not None and point is not None:
            scores, class_il = self._method.scores, self._method.class_il
            self._stream.curves.measure(scores, task.number, point, class_il=class_il)

    def running_accuracy(self) -> float:
        """The mean Class-IL accuracy over nets and tasks after the latest task; NaN before."""
        rows = self._stream.test.class_il.nanmean(dim=(0, 2))
        measured = rows[~rows.isnan()]
        return float(measured[-1]) if len(measured) else float("nan")

    def results(
        self,
        configs: Sequence[TrialConfig],
        nets: Sequence[int],
        choices: Sequence[tuple[Choice, ...]],
        learnt: int,
        memory_bytes: int,
    ) -> list[TrialResult]:
        """What each trial has shown after so many tasks; `nets` are those that stand for them."""
        test, held_out = self._stream.test, self._stream.validation
        tasks = self._stream.classes_of_tasks(learnt)
        curves = self._stream.trial_curves()
        diverged_at = self.divergence.first_steps.tolist()
        title = str(self._method.title)
        if self._answers is None and 0 < len(self._stream.tasks) == learnt:
            self._answers = self._final_answers()  # a run that was stopped just before its end
        answers = self._answers
        return [
            TrialResult(
                config=config,
                class_il=test.class_il[net].tolist(),
                task_il=test.task_il[net].tolist(),
                validation_class_il=held_out.class_il[net].tolist() if held_out else [],
                validation_task_il=held_out.task_il[net].tolist() if held_out else [],
                confidence=self._confidence[net].tolist(),
                tasks=tasks,
                class_names=self._stream.data.class_names,
                diverged_at=None if diverged_at[net] < 0 else diverged_at[net],
                title=None if title == title_of(config.method) else title,
                answers=answers.of_trial(net) if answers else None,
                memory_bytes=memory_bytes,
                curve=curves[net] if curves else None,
                choices=chosen,
            )
            for config, net, chosen in zip(configs, nets, choices, strict=True)
        ]

    def state(self) -> dict[str, dict[str, Tensor]]:
        """All its tensors, by part and name; the live ones, not copies."""
        test, held_out, curves = self._stream.test, self._stream.validation, self._stream.curves
        parts = {
            "metrics": {
                "class_il": test.class_il,
                "task_il": test.task_il,
                "confidence": self._confidence,
                "diverged_at": self.divergence.first_steps,
                **(curves.state() if curves is not None else {}),
            }
        }
        if held_out is not None:
            parts["validation"] = {"class_il": held_out.class_il, "task_il": held_out.task_il}
        return parts
