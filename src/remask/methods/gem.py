"""GEM: gradient episodic memory (Lopez-Paz and Ranzato 2017)."""

from collections.abc import Sequence
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
from remask.nets import Gradients, LossGradients
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

    def adjust_gradients(self, step: Step, gradients: LossGradients) -> Gradients:
        """Turn the gradient until no past task's loss rises, or more, as gamma says."""
        sizes = [size for size in self.memory.sizes if size]
        if not sizes:
            return gradients
        past = self.engine.gradients(self.memory.rows(), sizes)
        linear = torch.stack([gradients.inner(one) for one in past], dim=1)
        if bool((linear < 0).any()):
            shares = _shares(_gram(past), linear, self.gamma).to(linear)
            for one, share in zip(past, shares.unbind(1), strict=True):
                gradients.add(one, share)
        return gradients

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


def _gram(gradients: Sequence[LossGradients]) -> Tensor:
    """All inner products of each trial's gradients: [S, k, k]."""
    products = {
        (i, j): one.inner(other)
        for i, one in enumerate(gradients)
        for j, other in enumerate(gradients[: i + 1])
    }
    places = range(len(gradients))
    rows = [torch.stack([products[max(i, j), min(i, j)] for j in places], 1) for i in places]
    return torch.stack(rows, dim=1)


def _shares(gram: Tensor, linear: Tensor, gamma: Tensor) -> Tensor:
    """What is added of each past gradient, v: [S, k]; nothing where none rises."""
    shares = np.zeros(linear.shape)
    known = zip(*(values.double().cpu().numpy() for values in (gram, linear, gamma)), strict=True)
    for trial, (products, own, least) in enumerate(known):
        diverged = not (np.isfinite(products).all() and np.isfinite(own).all())
        if (own < 0).any() and not diverged:
            shares[trial] = solve(products, own, least)
    return torch.from_numpy(shares)
