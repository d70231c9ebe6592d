"""oEWC, SI: parameters that matter to old tasks are pulled back to their values after them.

A penalty touches every parameter in every step, so its time goes into passes over memory.
`squared_norm` is a term of a loss like any other, with its gradient written by hand. `add_pull` is
that gradient alone: as a term of the loss it makes a step of oEWC or SI a quarter slower.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from remask.data.tasks import Task
from remask.methods.sgd import SGD
from remask.methods.step import Step
from remask.nets.stacked import Gradients, State, per_trial


def squared_norm(parameters: Mapping[str, Tensor]) -> Tensor:
    """The sum of all parameters squared, per trial: [S]."""
    total: Tensor = _SquaredNorm.apply(*parameters.values())  # type: ignore[no-untyped-call]
    return total


def add_pull(
    gradients: Gradients,
    parameters: Mapping[str, Tensor],
    towards: Mapping[str, Tensor],
    importance: Mapping[str, Tensor],
    strength: Tensor,
) -> None:
    """Add the gradient of strength * sum importance * (parameter - towards)^2, strength [S]."""
    for name, gradient in gradients.items():
        pull = importance[name] * per_trial(2 * strength, gradient)
        gradient.addcmul_(pull, parameters[name].detach() - towards[name])


class _SquaredNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(*parameters)
        flat = [parameter.flatten(1) for parameter in parameters]
        return torch.stack([torch.linalg.vecdot(own, own) for own in flat]).sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        (gradient,) = gradients
        return tuple(own * per_trial(2 * gradient, own) for own in ctx.saved_tensors)


class OEWC(SGD):
    """loss = CE(stream) + penalty * sum_i importance_i (theta_i - anchor_i)^2.

    (Kirkpatrick et al. 2017; Schwarz et al. 2018)

    After a task, importance <- gamma * importance + sum over its samples of p(y|x) (grad log
    p(y|x))^2 / (batches * batch size), and anchor <- theta.
    """

    name = "oewc"
    title = "oEWC"
    weights: ClassVar = {"penalty": 10.0, "gamma": 1.0}
    remembers = ("importance", "anchor")
    penalty: torch.Tensor
    gamma: torch.Tensor

    def prepare(self) -> None:
        parameters = self.context.net.parameters
        self.importance: State = {n: torch.zeros_like(p.detach()) for n, p in parameters.items()}
        self.anchor: State = {n: p.detach().clone() for n, p in parameters.items()}

    def adjust_gradients(self, step: Step, gradients: Gradients) -> Gradients:
        parameters = self.context.net.parameters
        add_pull(gradients, parameters, self.anchor, self.importance, self.penalty)
        return gradients

    def end_task(self, task: Task) -> None:
        """Add the Fisher information of the task's samples to the importance."""
        context = self.context
        batches = -(-len(task.rows) // context.batch_size)
        share = 1 / (batches * context.batch_size)
        for value in self.importance.values():
            value.mul_(per_trial(self.gamma, value))
        for rows in torch.split(task.rows, context.net.samples_at_once):
            batch = context.batch(rows.expand(context.trials, -1))
            logits = context.net.evaluate(batch.inputs)
            certainty = logits.softmax(2).gather(2, batch.labels.unsqueeze(2)).squeeze(2)
            gradients = context.net.sample_gradients(batch.inputs, batch.labels)
            for name, squares in gradients.squares(certainty * share).items():
                self.importance[name].add_(squares)
        for name, parameter in context.net.parameters.items():
            self.anchor[name].copy_(parameter.detach())


class SI(SGD):
    """loss = CE(stream) + c * sum_i importance_i (theta_i - anchor_i)^2.

    (Zenke et al. 2017) Every step adds lr * g_i^2 to a path; after a task, importance_i grows by
    path_i / ((theta_i - anchor_i)^2 + xi). The gradients g are clipped to [-1, 1].
    """

    name = "si"
    title = "SI"
    weights: ClassVar = {"c": 1.0, "xi": 1.0}
    remembers = ("importance", "anchor", "path")
    c: torch.Tensor
    xi: torch.Tensor

    def prepare(self) -> None:
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
