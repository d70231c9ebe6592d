"""NCM, SLDA and ridge: linear heads computed from sums over the inputs; the net is not used."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from remask.data.tasks import Task
from remask.errors import MethodError
from remask.heads import ClassStatistics, LinearHead, accumulate, ncm, ridge, slda
from remask.methods.base import Method
from remask.methods.step import Step

_MOST_FEATURES = 4096


class ClosedForm(Method):
    """A head that is a function of sums over all samples so far, so it forgets nothing.

    The inputs, flattened, are the features. The order of samples and tasks does not matter.
    """

    trains_net = False
    confidence = False
    unmaskable = "it has no softmax loss"
    second_moments: ClassVar[bool] = True
    """Whether it needs the sum of x x^T."""
    remembers = ("counts", "sums", "gram", "weight", "bias")
    predicts_with = ("counts", "weight", "bias")

    @classmethod
    def uses_tasks(cls) -> bool:
        """The head is refitted before every evaluation; no boundary of a task is needed."""
        return False

    def prepare(self) -> None:
        """Start with sums of 0."""
        context = self.context
        size = int(torch.Size(context.input_shape).numel())
        if self.second_moments and size > _MOST_FEATURES:
            raise MethodError(
                f"{self.title} supports at most {_MOST_FEATURES} inputs, got {size}; use ncm, or "
                f"the features of an encoder as inputs"
            )
        shape = (context.trials, context.num_classes)

        def zeros(*sizes: int, dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.zeros(sizes, dtype=dtype, device=context.device)

        self.counts, self.sums = zeros(*shape), zeros(*shape, size)
        side = size if self.second_moments else 0
        self.gram = zeros(context.trials, side, side)
        self.weight = zeros(*shape, size, dtype=torch.float32)
        self.bias = zeros(*shape, dtype=torch.float32)
        self._fitted = True

    def after_step(self, step: Step) -> None:
        """Add the samples of the step, as they are, to the sums."""
        batch = self.context.batch(step.rows, augment=False)
        features = batch.inputs.flatten(2).to(torch.float64)
        for trial, (own, labels) in enumerate(zip(features, batch.labels, strict=True)):
            gram = self.gram[trial] if self.second_moments else None
            accumulate(self.counts[trial], self.sums[trial], gram, own, labels)
        self._fitted = False

    def end_task(self, task: Task) -> None:
        """Compute the heads."""
        self._fit()

    @torch.no_grad()
    def _fit(self) -> None:
        for trial in range(self.context.trials):
            gram = self.gram[trial] if self.second_moments else None
            head = self.fit(ClassStatistics(self.counts[trial], self.sums[trial], gram), trial)
            self.weight[trial] = head.weight
            self.bias[trial] = head.bias.nan_to_num(neginf=0.0)
        self._fitted = True

    @abstractmethod
    def fit(self, stats: ClassStatistics, trial: int) -> LinearHead:
        """Compute the head of one trial."""

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """Return the scores of the linear heads; -inf for classes without samples."""
        return self.own_scores(inputs.expand(self.context.trials, *inputs.shape), task)

    def own_scores(self, inputs: Tensor, task: int) -> Tensor:
        """Return the same for inputs of each trial's own."""
        if not self._fitted:  # measured within a task
            self._fit()
        parts = zip(inputs.flatten(2), self.weight, self.bias, strict=True)
        rated = torch.stack([nn.functional.linear(own, *head) for own, *head in parts])
        return rated.masked_fill((self.counts == 0).unsqueeze(1), -torch.inf)

    @classmethod
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        """Return one linear layer on the flattened inputs."""
        weight, bias = own["weight"], own["bias"].masked_fill(own["counts"] == 0, -torch.inf)
        linear = nn.Linear(weight.shape[1], len(weight), device=weight.device)
        with torch.no_grad():
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        return nn.Sequential(nn.Flatten(), linear)


class NCM(ClosedForm):
    """score = -|x - mean of class c|^2 / 2."""

    name = "ncm"
    second_moments = False

    def fit(self, stats: ClassStatistics, trial: int) -> LinearHead:
        """Take the means."""
        return ncm(stats)


class SLDA(ClosedForm):
    """score = log N(x | mean of class c, S), with one covariance S, shrunk towards the identity."""

    name = "slda"
    weights: ClassVar = {"shrinkage": 0.0}  # 0: chosen
    confidence = True
    shrinkage: Tensor

    def fit(self, stats: ClassStatistics, trial: int) -> LinearHead:
        """Invert the covariance."""
        return slda(stats, float(self.shrinkage[trial]) or None)


class Ridge(ClosedForm):
    """score = w_c x + b_c, the least squares to one-hot targets with a penalty on |w|^2."""

    name = "ridge"
    title = "RIDGE"
    weights: ClassVar = {"penalty": 0.0}  # 0: chosen
    penalty: Tensor

    def fit(self, stats: ClassStatistics, trial: int) -> LinearHead:
        """Solve the normal equations."""
        return ridge(stats, float(self.penalty[trial]) or None)
