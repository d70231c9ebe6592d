"""The terms of steps that have not been taken, for compiled steps."""

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from remask.data.tasks import DataDescription, Task
from remask.engine.compiling import CROSS_ENTROPY, STORED, TAUGHT
from remask.engine.steps import EpochPlan, Feed
from remask.methods.base import Method
from remask.methods.step import Batch, Joined, Step, Term
from remask.nets.stacked import StackedNet, State

Planned = tuple[Step, list[Term]]
"""A step without inputs and logits, and its terms."""


class _NeedsLogitsError(Exception):
    """The terms of a method depend on logits or inputs."""


class _NotYet(Joined):
    """The batches of a step that has not been taken."""

    def __init__(self) -> None:
        """Have neither inputs nor logits."""
        super().__init__(torch.empty(0), [], self.logits_of)

    @override
    def logits_of(self, number: object) -> Tensor:
        raise _NeedsLogitsError

    @override
    def inputs_of(self, number: int) -> Tensor:
        raise _NeedsLogitsError


class _PlannedReplay(Batch):
    """Samples of the memory in such a step; their logits are all 0."""

    def __init__(self, labels: Tensor, classes: int) -> None:
        zeros = torch.zeros(()).expand(*labels.shape, classes)
        super().__init__(labels, _NotYet(), recorded=zeros)
        self.by_teacher: Tensor = zeros.clone()

    @override
    def taught(self, net: StackedNet, state: State) -> Tensor:
        return self.by_teacher


class PlannedTerms:
    """Computes the terms of a method before its steps."""

    def __init__(self, method: Method, feed: Feed, data: DataDescription) -> None:
        self._method, self._feed, self._data = method, feed, data

    def possible(self, plan: EpochPlan, task: Task) -> bool:
        """Whether the method's terms can be computed before a step."""
        state = self._method.state().values()
        before = [tensor.clone() for tensor in state]
        step = self.step(plan, 0, None, task)
        try:
            return self.kinds(step, self._method.terms(step)) is not None
        except _NeedsLogitsError:
            return False
        finally:
            for tensor, old in zip(state, before, strict=True):
                tensor.copy_(old)

    def in_order(self, plan: EpochPlan, first: int, last: int, task: Task) -> dict[int, Planned]:
        """The terms of steps, by number, where they depend on the labels of the step."""
        memory, planned = self._feed.reservoir, {}
        labels = None if memory is None else memory.labels.clone()
        for number in range(first, last):
            self._method.context.name_draws(*plan.key, number)
            step = self.step(plan, number, labels, task)
            planned[number] = step, self._method.terms(step)
            kept = None if plan.reservoir is None else plan.reservoir.kept(number)
            if labels is not None and kept is not None:
                labels.index_copy_(0, kept[1], step.stream.labels.flatten()[kept[0]])
        return planned

    def step(self, plan: EpochPlan, number: int, labels: Tensor | None, task: Task) -> Step:
        """A step without inputs and logits; without the labels in memory, those are 0."""
        drawn = None if plan.reservoir is None else plan.reservoir.draws(number)
        batches = [Batch(plan.labels[:, plan.columns(number)], _NotYet())]
        if drawn is not None:
            past = torch.zeros_like(drawn) if labels is None else labels[drawn]
            for part in torch.split(past, draw_size(plan, number), dim=1):
                batches.append(_PlannedReplay(part, self._data.num_classes))
        return self._feed.step_of(plan, number, task, batches)

    def kinds(self, step: Step, terms: Sequence[Term]) -> list[tuple[int, int, str]]:
        """The kind, batch and name of each term."""
        batches, kinds = [step.stream, *step.replays], []
        for term in terms:
            known = [own is term.batch for own in batches]
            if not any(known):
                raise _NeedsLogitsError
            targets = {id(None): CROSS_ENTROPY}
            if isinstance(term.batch, _PlannedReplay):
                targets |= {id(term.batch.recorded): STORED, id(term.batch.by_teacher): TAUGHT}
            if id(term.stored) not in targets:
                raise _NeedsLogitsError
            kinds.append((targets[id(term.stored)], known.index(True), term.kind(step)))
        return kinds

    def field(self, planned: Sequence[Planned], name: str, missing: float, *shape: int) -> Tensor:
        """A field of all terms of the planned steps: [P, T, *shape]."""
        values = [[getattr(term, name) for term in terms] for _, terms in planned]
        kind = torch.bool if name == "active" else torch.float32
        filled = [
            torch.as_tensor(missing if value is None else value, dtype=kind).expand(shape)
            for own in values
            for value in own
        ]
        return torch.stack(filled).view(len(values), -1, *shape)


def draw_size(plan: EpochPlan, number: int) -> int:
    """The samples of each draw of a step."""
    return 0 if plan.reservoir is None else plan.reservoir.size(number)
