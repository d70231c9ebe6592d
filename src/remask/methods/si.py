"""SI: synaptic intelligence (Zenke et al. 2017)."""

from typing import ClassVar

import torch

from remask.data.tasks import Task
from remask.methods.penalties import add_pull
from remask.methods.sgd import SGD
from remask.methods.step import Step
from remask.nets.stacked import Gradients, State, per_trial


class SI(SGD):
    """loss = CE(stream) + c * sum_i importance_i (theta_i - anchor_i)^2.

    Every step adds lr * g_i^2 to a path; after a task, importance_i grows by
    path_i / ((theta_i - anchor_i)^2 + xi). The gradients g are clipped to [-1, 1].
    """

    name = "si"
    title = "SI"
    weights: ClassVar = {"c": 1.0, "xi": 1.0}
    remembers = ("importance", "anchor", "path")
    c: torch.Tensor
    xi: torch.Tensor

    def prepare(self) -> None:
        """Start with zero importance."""
        parameters = {n: p.detach() for n, p in self.context.net.parameters.items()}
        self.importance: State = {n: torch.zeros_like(p) for n, p in parameters.items()}
        self.path: State = {n: torch.zeros_like(p) for n, p in parameters.items()}
        self.anchor: State = {n: p.clone() for n, p in parameters.items()}

    @torch.no_grad()
    def adjust_gradients(self, step: Step, gradients: Gradients) -> Gradients:
        """Add the penalty's gradient, clip, and extend the path."""
        add_pull(gradients, self.context.net.parameters, self.anchor, self.importance, self.c)
        for name, gradient in gradients.items():
            gradient.clamp_(-1, 1)
            self.path[name].addcmul_(gradient.square(), per_trial(self.context.lr, gradient))
        return gradients

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        """Convert paths to importance."""
        for name, parameter in self.context.net.parameters.items():
            moved = (parameter - self.anchor[name]).square()
            self.importance[name].add_(self.path[name] / (moved + per_trial(self.xi, moved)))
            self.anchor[name].copy_(parameter)
            self.path[name].zero_()
