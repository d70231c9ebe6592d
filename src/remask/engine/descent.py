"""A step of gradient descent: what a method's loss does to the networks of a stack."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.engine.adamw import AdamW
from remask.methods import Method, MethodError, Step
from remask.nets import StackedNet

_LR_DROP = 0.1

Optimizer = Literal["sgd", "adamw"]


class Descent:
    """Follows the loss of a method, with the learning rates of the trials."""

    def __init__(
        self,
        net: StackedNet,
        method: Method,
        configs: Sequence[TrialConfig],
        device: torch.device,
        optimizer: Optimizer = "sgd",
    ) -> None:
        self.adamw = AdamW(net.parameters) if optimizer == "adamw" else None
        """What AdamW remembers; None: steps are along the gradients."""
        self._net = net
        self._method = method
        self._lr = per_trial_setting([config.lr for config in configs], device)
        self._drops = configs[0].lr_drops
        self._adjusts = type(method).adjust_gradients is not Method.adjust_gradients

    def rates(self, epoch: int) -> Tensor:
        """The trials' learning rates [S] in an epoch, counted from 0, of any task."""
        drops = sum(epoch >= drop for drop in self._drops)
        return self._lr * _LR_DROP**drops if drops else self._lr

    def step(self, step: Step, lr: Tensor) -> Tensor:
        """Update the networks; returns the losses, [S]."""
        loss = self._method.loss(step)
        if loss.shape != lr.shape:
            raise MethodError(
                f"the loss of {self._method.title} must have one entry per trial, "
                f"{list(lr.shape)}, not the shape {list(loss.shape)}"
            )
        if not loss.requires_grad:
            raise MethodError(
                f"the loss of {self._method.title} does not depend on the network: nothing would "
                f"be learnt"
            )
        if self._adjusts or self.adamw is not None:
            gradients = self._method.adjust_gradients(step, self._net.gradients(loss))
            if self.adamw is not None:
                gradients = self.adamw.directions(gradients)
            self._net.move(gradients, lr)
        else:  # the same, without ever writing the gradients down
            self._net.descend(loss, lr)
        return loss.detach()


def per_trial_setting(values: Sequence[float], device: torch.device) -> Tensor:
    """One setting of every trial, [S]."""
    return torch.tensor(values, dtype=torch.float32, device=device)
