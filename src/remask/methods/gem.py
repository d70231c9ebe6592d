"""A-GEM (Chaudhry et al. 2019) and GEM (Lopez-Paz and Ranzato 2017): gradient episodic memories."""

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.data.tasks import Task
from remask.memory import KeptRows, choose_rows
from remask.methods.sgd import SGD
from remask.methods.step import Step
from remask.nets.stacked import Gradients, LossGradients


class AGEM(SGD):
    """g <- g - min(0, <g, r>) / <r, r> * r, where r is the gradient of CE on a draw from memory.

    The memory holds floor(buffer / tasks) samples per task, chosen when the task ends.
    """

    name = "agem"
    title = "A-GEM"
    own_memory: ClassVar[Literal["drawn", "whole"]] = "drawn"
    needs_task_count = "divides its memory among all tasks"
    least_per = "task"
    ridge = 0.0
    gamma: Any = 0.0
    memory: KeptRows

    def prepare(self) -> None:
        tasks = self.context.num_tasks
        self.quota = self.context.capacity // tasks
        self.memory = self.context.keeps(self.quota * tasks, groups=tasks)

    def references(self) -> tuple[Tensor, list[int]]:
        """Return slots of the memory [S, n], and how many of them are of each batch."""
        slots = self.context.draw(self.memory.filled, self.context.replay_batch)
        return slots, [slots.shape[1]]

    def adjust_gradients(self, step: Step, gradients: LossGradients) -> Gradients:
        """Remove the component that opposes the memory's gradient."""
        if not self.memory.filled:
            return gradients
        slots, sizes = self.references()
        (reference,) = self.context.gradients(self.memory.at(slots), sizes)
        against = gradients.inner(reference).clamp(max=0)
        length = reference.inner(reference).clamp(min=torch.finfo(against.dtype).tiny)
        gradients.add(reference, -against / length)
        return gradients

    def end_task(self, task: Task) -> None:
        chosen = choose_rows(self.context.generators("memory"), task.rows, self.quota)
        self.memory.put(chosen, task.number)


_ROUNDING, _MOST_PIVOTS = 1e-13, 1000


class GEM(AGEM):
    """g <- g + G'v, where the rows of G are the gradients of CE on each past task's memory.

    If g opposes one of them, v = argmin_v v'(GG' + 0.001 I)v / 2 + (Gg)'v with v >= gamma;
    otherwise v = 0. The memory is that of A-GEM.
    """

    name = "gem"
    title = "GEM"
    weights: ClassVar = {"gamma": 0.5}
    works_on_host = "its quadratic program is solved there"
    own_memory = "whole"
    ridge = 1e-3
    gamma: Tensor

    def references(self) -> tuple[Tensor, list[int]]:
        """Return all slots, by task."""
        sizes = [size for size in self.memory.sizes if size]
        return torch.arange(sum(sizes)).expand(self.context.trials, -1), sizes

    def adjust_gradients(self, step: Step, gradients: LossGradients) -> Gradients:
        """Rotate the gradient so that, to first order, no past task's loss rises."""
        if not self.memory.filled:
            return gradients
        _, sizes = self.references()
        references = self.context.gradients(self.memory.rows(), sizes)
        turned = [
            _turned(
                _flat(gradients, trial),
                torch.stack([_flat(reference, trial) for reference in references]),
                gamma,
                self.ridge,
            )
            for trial, gamma in enumerate(self.gamma.tolist())
        ]
        return _unflat(torch.stack(turned), gradients)


def solve(
    gram: NDArray[np.float64], products: NDArray[np.float64], least: float, ridge: float
) -> NDArray[np.float64]:
    """Minimise v'(gram + ridge I)v / 2 + products'v over v >= least: [k].

    Principal pivots of the first negative entry solve this linear complementarity problem (Murty
    1974). The kernel compiles this function, hence the loops.
    """
    count = len(products)
    table, slopes, free = gram.copy(), products.copy(), np.zeros(count, np.bool_)
    for i in range(count):
        # Rounding may make an eigenvalue negative by more than the ridge if gradients are large.
        table[i, i] += ridge + _ROUNDING * gram[i, i]
        slopes[i] += table[i].sum() * least
    for _ in range(_MOST_PIVOTS):
        if not (slopes < 0).any():
            break
        own = np.argmax(slopes < 0)
        scale, column, row = 1 / table[own, own], table[:, own].copy(), table[own].copy()
        slope = slopes[own] * scale
        for i in range(count):
            table[i] -= column[i] * scale * row
        slopes -= column * slope
        table[own], table[:, own] = -row * scale, column * scale
        table[own, own], slopes[own], free[own] = scale, -slope, not free[own]
    for i in range(count):
        slopes[i] = least + (max(slopes[i], 0) if free[i] else 0)
    return slopes


def _turned(own: Tensor, memory: Tensor, gamma: float, ridge: float) -> Tensor:
    """Return one trial's gradient [P], rotated by those of its memory [k, P]."""
    products = torch.stack([(own * past).sum() for past in memory])
    if not (products < 0).any():
        return own
    wide = memory.double()
    gram, linear = (wide @ wide.T).cpu().numpy(), products.double().cpu().numpy()
    if np.isfinite(gram).all() and np.isfinite(linear).all():  # otherwise the trial has diverged
        for share, past in zip(solve(gram, linear, gamma, ridge).tolist(), memory, strict=True):
            own.add_(past, alpha=share)
    return own


def _flat(gradients: Gradients, trial: int) -> Tensor:
    """Return one trial's gradient as a vector; a single trial fits in the cache."""
    return torch.cat([gradient[trial].flatten() for gradient in gradients.values()])


def _unflat(flat: Tensor, like: Gradients) -> Gradients:
    parts = torch.split(flat, [gradient[0].numel() for gradient in like.values()], dim=1)
    return {n: part.view_as(like[n]) for n, part in zip(like, parts, strict=True)}
