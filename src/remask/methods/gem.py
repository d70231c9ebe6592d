"""GEM: gradient episodic memory (Lopez-Paz and Ranzato 2017)."""

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.machine import require_room_for_scipy
from remask.memory import KeptRows, choose_rows
from remask.methods.base import Method
from remask.methods.errors import MethodError
from remask.methods.step import Step, Term
from remask.nets import Gradients
from remask.streams import Task

_RIDGE = 1e-3


class GEM(Method):
    """g <- g + G'v, where the rows of G are the gradients of CE on each past task's memory.

    If g points against one of them, v = argmin_v v'(GG' + 0.001 I)v / 2 + (Gg)'v with v >= gamma;
    otherwise v = 0. The memory has floor(buffer / tasks) places for every task.
    """

    name = "gem"
    title = "GEM"
    weights: ClassVar = {"gamma": 0.5}
    works_on_host = "its quadratic program is solved there"
    own_memory = "whole"
    needs_task_count = "divides its memory among all tasks ahead"
    gamma: Tensor
    memory: KeptRows

    @classmethod
    def least_buffer(cls, num_tasks: int, num_classes: int) -> int:
        """Every task has a place."""
        return num_tasks

    def prepare(self) -> None:
        """The memory is empty."""
        solver()
        tasks = self.engine.num_tasks
        self.quota = self.engine.capacity // tasks
        self.memory = self.engine.keeps(self.quota, groups=tasks, apart=True)

    def terms(self, step: Step) -> list[Term]:
        """The cross-entropy."""
        return step.stream_terms()

    def adjust_gradients(self, step: Step, gradients: Gradients) -> Gradients:
        """Turn the gradient until no past task's loss rises, or more, as gamma says."""
        sizes = [size for size in self.memory.sizes if size]
        if not sizes:
            return gradients
        past = self.engine.gradients(self.memory.rows(), sizes)
        own = self.engine.net.flatten(gradients)
        for gradient, memory, gamma in zip(own, past, self.gamma.tolist(), strict=True):
            _turn(gradient, memory, gamma)
        return self.engine.net.unflatten(own)

    def end_task(self, task: Task) -> None:
        """Keep a random sample of the task."""
        chosen = choose_rows(self.engine.generators("memory"), task.rows, self.quota)
        self.memory.put(chosen, task.number)


def solve(
    gram: NDArray[np.float64], linear: NDArray[np.float64], least: float
) -> NDArray[np.float64]:
    """Minimise v'(gram + ridge I)v / 2 + linear'v over v >= least: [k].

    With gram + ridge I = A'A and v = u + least it is the non-negative least squares problem
    |Au + A'^-1 (linear + A'A least)|, u >= 0.
    """
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    # Rounding may leave the smallest below zero, by more than the ridge where gradients are large.
    quadratic = values.clip(min=0) + _RIDGE
    root = np.sqrt(quadratic)[:, None] * vectors.T
    slope = linear + vectors @ (quadratic * vectors.sum(0)) * least
    positive, _ = solver()(root, -(vectors.T @ slope) / np.sqrt(quadratic))
    return np.asarray(positive, dtype=np.float64) + least


def solver() -> Any:
    """SciPy's solver, or a message that says how to get it."""
    require_room_for_scipy("GEM")
    try:
        from scipy.optimize import nnls  # type: ignore[import-untyped]
    except ImportError as error:
        raise MethodError('GEM needs SciPy: pip install "remask[gem]"') from error
    return nnls


def _turn(own: Tensor, past: Tensor, gamma: float) -> None:
    """Turn one trial's gradient [P] by those of its memory [k, P]."""
    products = past @ own
    if not (products < 0).any():
        return
    gram, linear = (part.double().cpu().numpy() for part in (past @ past.T, products))
    if np.isfinite(gram).all() and np.isfinite(linear).all():  # else it has diverged
        shares = torch.from_numpy(solve(gram, linear, gamma))
        own.addmv_(past.T, shares.to(own))
