"""Stacks of multilayer perceptrons, as batched matmuls.

The backward of a step never writes the weight gradient of a forward to memory: it keeps the two
factors of it, and the descent adds their product to the weights in one batched matmul. For small
nets that is most of the time saved. What a loss computes from the parameters in any other way (a
penalty, a forward with parameters of its own) reaches them as ordinary gradients, and is added.
"""

import copy
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn
from typing_extensions import override

from remask.engine.factored_gradients import FactoredGradients, FactoredSamples
from remask.engine.linear_chain import (
    Chain,
    Layers,
    Tape,
    out_of_place,
    parameters_of,
    run_back,
    run_chain,
)
from remask.losses import cross_entropy_and_slope, mse_and_slope
from remask.nets import Factors, LossGradients, StackedNet, State, Trace, stacked_state

_FEW = 32  # samples: with more, the inner products of their gradients cost more than these


class LinearStack(StackedNet):
    """A stack of multilayer perceptrons."""

    couples_samples = False
    traces = True
    samples_at_once = 512  # in factors

    def __init__(
        self,
        nets: Sequence[nn.Module],
        layers: list[tuple[str, nn.Module]],
        device: torch.device | str,
    ) -> None:
        self.parameters, self.buffers = stacked_state(nets, device)
        self.module = copy.deepcopy(nets[0])
        self._layers = [(name, out_of_place(layer)) for name, layer in layers]
        self._head = max(
            (place for place, (_, layer) in enumerate(layers) if isinstance(layer, nn.Linear)),
            default=-1,
        )
        self._tape = Tape()

    @override
    def __call__(self, inputs: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        if parameters is not None:
            return run_chain(
                self._layers, inputs.flatten(2), parameters_of(self._layers, parameters)
            )[1]
        return self._forward(self._layers, inputs.flatten(2))

    @override
    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        return self._forward(self._layers, inputs.flatten(1).expand(self._trials, -1, -1))

    @override
    @torch.no_grad()
    def evaluate(self, inputs: Tensor, state: State | None = None) -> Tensor:
        own = self.parameters if state is None else state
        return run_chain(self._layers, inputs.flatten(2), parameters_of(self._layers, own))[1]

    @override
    def features(self, inputs: Tensor, *, training: bool) -> Tensor:
        with torch.set_grad_enabled(training and torch.is_grad_enabled()):
            return self._forward(self._layers[: self._head], inputs.flatten(2))

    @override
    def head(self, features: Tensor) -> Tensor:
        return self._forward(self._layers[self._head :], features)

    def _forward(self, layers: Layers, inputs: Tensor) -> Tensor:
        parameters = parameters_of(layers, self.parameters)
        if not (parameters and torch.is_grad_enabled()):
            return run_chain(layers, inputs, parameters)[1]
        outputs: Tensor = Chain.apply(layers, self._tape, inputs, *parameters)  # type: ignore[no-untyped-call]
        return outputs

    @override
    @torch.no_grad()
    def gradients_of_change(
        self, inputs: Tensor, gradients: LossGradients, lr: Tensor, weight: Tensor
    ) -> LossGradients:
        if not isinstance(gradients, FactoredGradients):
            return super().gradients_of_change(inputs, gradients, lr, weight)
        trace = self.trace(inputs)
        after = self._after(trace, gradients, lr)
        _, slope = mse_and_slope(trace.logits, after, weight)
        return self.factored(self.factors(trace, slope))

    def _after(self, trace: Trace, gradients: FactoredGradients, lr: Tensor) -> Tensor:
        """What a forward would say after a step along the gradients, without taking it."""
        rates, before = lr.view(-1, 1, 1), [*trace.hidden, trace.logits]
        outputs = before[0]
        for place, layer in enumerate(self._layers):
            inputs = outputs
            if outputs is before[place]:  # nothing has changed on the way here
                outputs = before[place + 1]
            else:
                outputs = run_chain([layer], inputs, parameters_of([layer], self.parameters))[1]
            if isinstance(layer[1], nn.Linear):
                for along in gradients.outputs(layer[0], inputs):
                    outputs = outputs - rates * along
        return outputs

    @override
    def name_draws(self, *key: int) -> None:
        """Its layers draw nothing."""

    @override
    def gradients(self, loss: Tensor) -> FactoredGradients:
        with self._tape.recording() as factors:
            # One backward through all trials: the gradient of each loss by itself is 1.
            others: tuple[Tensor | None, ...] = torch.autograd.grad(
                loss, list(self.parameters.values()), torch.ones_like(loss), allow_unused=True
            )
        named = zip(self.parameters, others, strict=True)
        beside = {name: other for name, other in named if other is not None}
        return FactoredGradients(factors, beside, self.parameters)

    @override
    def trace(self, inputs: Tensor) -> Trace:
        return Trace(
            *run_chain(
                self._layers, inputs.flatten(2), parameters_of(self._layers, self.parameters)
            )
        )

    @override
    def factors(self, trace: Trace, slope: Tensor) -> Factors:
        weights = parameters_of(self._layers, self.parameters)[0::2]
        return run_back(self._layers, trace.hidden, weights, slope)[0]

    @override
    def factored(self, factors: Factors) -> FactoredGradients:
        return FactoredGradients(factors, {}, self.parameters)

    @override
    def move(self, gradients: Mapping[str, Tensor], lr: Tensor) -> None:
        if isinstance(gradients, FactoredGradients):
            gradients = gradients.move(self.parameters, lr)
        if gradients:
            super().move(gradients, lr)

    @override
    @torch.no_grad()
    def batch_gradients(
        self, inputs: Tensor, labels: Tensor, sizes: Sequence[int]
    ) -> list[LossGradients]:
        trace = self.trace(inputs)
        batches = [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]
        slopes = [
            cross_entropy_and_slope(trace.logits[:, own], labels[:, own], None, None, 1.0)[1]
            for own in batches
        ]
        factors = self.factors(trace, torch.cat(slopes, dim=1))
        found: list[LossGradients] = []
        for own, size in zip(batches, sizes, strict=True):
            gradients = self.factored([(n, g[:, own], seen[:, own]) for n, g, seen in factors])
            found.append(gradients if size <= _FEW else gradients.formed())
        return found

    @override
    @torch.no_grad()
    def sample_gradients(self, inputs: Tensor, labels: Tensor) -> FactoredSamples:
        trace = self.trace(inputs)
        # As if all samples had one sum for a loss: they do not meet in it.
        _, slope = cross_entropy_and_slope(trace.logits, labels, None, None, float(labels.shape[1]))
        return FactoredSamples(self.factors(trace, slope))

    @property
    def _trials(self) -> int:
        return len(next(iter(self.parameters.values())))
