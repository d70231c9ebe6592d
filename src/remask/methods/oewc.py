"""oEWC: online elastic weight consolidation (Kirkpatrick et al. 2017; Schwarz et al. 2018)."""

from typing import ClassVar

import torch

from remask.data.tasks import Task
from remask.methods.penalties import add_pull
from remask.methods.sgd import SGD
from remask.methods.step import Step
from remask.nets.stacked import Gradients, State, per_trial


class OEWC(SGD):
    """loss = CE(stream) + penalty * sum_i importance_i (theta_i - anchor_i)^2.

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
        """Start with zero importance."""
        parameters = self.context.net.parameters
        self.importance: State = {n: torch.zeros_like(p.detach()) for n, p in parameters.items()}
        self.anchor: State = {n: p.detach().clone() for n, p in parameters.items()}

    def adjust_gradients(self, step: Step, gradients: Gradients) -> Gradients:
        """Add the penalty's gradient."""
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
