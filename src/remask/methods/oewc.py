"""oEWC: online elastic weight consolidation (Kirkpatrick et al. 2017; Schwarz et al. 2018)."""

from typing import ClassVar

import torch

from remask.methods.base import Method
from remask.methods.penalties import add_pull
from remask.methods.step import Step, Term
from remask.methods.trialwise import per_trial
from remask.nets import Gradients, State
from remask.streams import Task


class OEWC(Method):
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
        """Nothing matters yet."""
        parameters = self.engine.net.parameters
        self.importance: State = {n: torch.zeros_like(p.detach()) for n, p in parameters.items()}
        self.anchor: State = {n: p.detach().clone() for n, p in parameters.items()}

    def terms(self, step: Step) -> list[Term]:
        """The cross-entropy; `adjust_gradients` adds the penalty's gradient, which is faster."""
        return step.stream_terms()

    def adjust_gradients(self, step: Step, gradients: Gradients) -> Gradients:
        """Add the penalty's gradient."""
        parameters = self.engine.net.parameters
        add_pull(gradients, parameters, self.anchor, self.importance, self.penalty)
        return gradients

    def end_task(self, task: Task) -> None:
        """Weigh every parameter by what the task's samples say of it."""
        engine = self.engine
        batches = -(-len(task.rows) // engine.batch_size)
        share = 1 / (batches * engine.batch_size)
        for value in self.importance.values():
            value.mul_(per_trial(self.gamma, value))
        for rows in torch.split(task.rows, engine.net.samples_at_once):
            batch = engine.batch(rows.expand(engine.trials, -1))
            logits = engine.net.evaluate(batch.inputs)
            certainty = logits.softmax(2).gather(2, batch.labels.unsqueeze(2)).squeeze(2)
            gradients = engine.net.sample_gradients(batch.inputs, batch.labels)
            for name, squares in gradients.squares(certainty * share).items():
                self.importance[name].add_(squares)
        for name, parameter in engine.net.parameters.items():
            self.anchor[name].copy_(parameter.detach())
