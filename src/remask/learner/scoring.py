"""Scores of the known classes, and predicting with the current state of a learner."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.data.tasks import Normalise
from remask.engine import TrialStack
from remask.engine.saved_nets import METHOD, NET, assemble
from remask.errors import RemaskError
from remask.learner.manifest import DataNote, Manifest, Normalisation
from remask.learner.model import Features, Model, is_own_net, linear
from remask.learner.samples import HEAD_BIAS, HEAD_WEIGHT, HeldOut
from remask.learner.settings import LearnerError

_MISFITS = (ValueError, RuntimeError, LookupError, TypeError, ArithmeticError, AssertionError)


class MergedOutputs(nn.Module):
    """From scores of outputs to scores of classes; a merged class has several outputs.

    In the softmax of the result, the probabilities of the outputs of a class add up.
    """

    outputs: Tensor
    """int64 [C, n]: the outputs of each class."""
    padding: Tensor
    """[C, n]: 0, and -inf where a class has fewer than n outputs."""

    def __init__(self, columns: Sequence[int]) -> None:
        """`columns[k]` is the class of output k, or -1 if that was forgotten."""
        super().__init__()
        own: list[list[int]] = [[] for _ in range(max(columns) + 1)]
        for output, column in enumerate(columns):
            if column >= 0:
                own[column].append(output)
        most = max(map(len, own))
        padded = [[*outputs, *[outputs[0]] * (most - len(outputs))] for outputs in own]
        absent = [[0.0] * len(outputs) + [-torch.inf] * (most - len(outputs)) for outputs in own]
        self.register_buffer("outputs", torch.tensor(padded, dtype=torch.int64))
        self.register_buffer("padding", torch.tensor(absent))

    def forward(self, scores: Tensor) -> Tensor:
        """[..., outputs] -> [..., C]."""
        found = scores.index_select(-1, self.outputs.flatten())
        if self.outputs.shape[1] == 1:
            return found
        return (found.view(*scores.shape[:-1], *self.outputs.shape) + self.padding).logsumexp(-1)


class Scorer(nn.Module):
    """From inputs to scores over the known classes, whose softmax are probabilities.

    If there is an encoder, `features` is applied first. `normalise` is applied to features only.
    """

    def __init__(
        self,
        net: nn.Module,
        columns: Sequence[int],
        temperature: float,
        features: Features | None,
        normalise: Normalise | None,
    ) -> None:
        super().__init__()
        self.net, self.features, self.temperature = net, features, temperature
        self.normalise = normalise
        self.by_class = MergedOutputs(columns)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute scores: [B, *shape] -> [B, C]."""
        return self.of_kept(inputs if self.features is None else self.features(inputs))

    def of_kept(self, inputs: Tensor) -> Tensor:
        """Compute scores of samples in the memory: features, or inputs as the net takes them."""
        if self.normalise is not None:
            inputs = self.normalise(inputs)
        scores: Tensor = self.by_class(self.net(inputs) / self.temperature)
        return scores

    def with_features(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Compute scores as `of_kept` does, and the features that they are computed from.

        Without an encoder, features are the inputs of the last linear layer, scaled to length 1.
        Raises LearnerError if the net has no such layer.
        """
        if self.normalise is not None:
            return self.of_kept(inputs), inputs
        entering: list[Tensor] = []
        hooks = [
            layer.register_forward_pre_hook(lambda _, given: entering.append(given[0]))
            for layer in self.net.modules()
            if isinstance(layer, nn.Linear)
        ]
        try:
            scores = self.of_kept(inputs)
        finally:
            for hook in hooks:
                hook.remove()
        if not entering:
            raise LearnerError("unknown samples cannot be found: the net has no nn.Linear layer")
        return scores, F.normalize(entering[-1].flatten(1), dim=1)

    @torch.no_grad()
    def score(
        self, batches: Iterable[Tensor], data: DataNote, *, features: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Compute scores [n, C] of samples as they are kept, and if asked their features [n, D].

        See `with_features`. Both are on the CPU.
        """
        device = self.by_class.outputs.device
        normalise = Normalise(data.seen, data.kept.shape).to(device)
        scores, found = [], [torch.zeros(0)]
        for batch in batches:
            inputs = normalise(batch.to(device))
            if inputs.ndim == 4:  # normalising is slower channels last
                inputs = inputs.contiguous(memory_format=torch.channels_last)
            if features:
                own, entering = self.with_features(inputs)
                found.append(entering.cpu())
            else:
                own = self.of_kept(inputs)
            scores.append(own.cpu())
        return torch.cat(scores), torch.cat(found[1:] or found)


def make_scorer(
    manifest: Manifest,
    tensors: Mapping[str, Tensor],
    model: Model,
    temperature: float | None = None,
) -> Scorer:
    """Build the module that predicts with a saved state. Raises LearnerError if it does not fit."""
    data, how = manifest.data_note, Normalisation()
    if manifest.head == "net":
        net, how = _trained_net(manifest, tensors, model), data.features_seen or how
    else:
        net = linear(data.kept.shape, manifest.outputs)
        with torch.no_grad():
            for parameter, name in zip(net.parameters(), (HEAD_WEIGHT, HEAD_BIAS), strict=True):
                parameter.copy_(tensors[name])
    if temperature is None:
        temperature = manifest.calibration.temperature if manifest.calibration else 1.0
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):  # fastest on a CPU
            layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    normalise = None if data.features is None else Normalise(how, data.kept.shape)
    scorer = Scorer(net, manifest.columns, temperature, model.features(data), normalise)
    return scorer.to(model.device).eval()


def _trained_net(manifest: Manifest, tensors: Mapping[str, Tensor], model: Model) -> nn.Module:
    data, method = manifest.data_note, model.trained_by
    own = tuple(f"{METHOD}{name}" for name in method.predicts_with)
    # A net of remask is only filled with its tensors, and needs no random weights.
    with nullcontext() if is_own_net(data.net) else torch.device("meta"):
        net = model.net_builder(data.net)(data.kept.shape, manifest.outputs)
    ours = {n: tensor[0] for n, tensor in tensors.items() if n.startswith((NET, *own))}
    try:
        return assemble(method, net, ours)
    except (*_MISFITS, RemaskError) as error:
        raise LearnerError(
            f"the net {data.net!r} is not the one that the learner has: {type(error).__name__}: "
            f"{str(error)[:300]}"
        ) from error


class Rated(NamedTuple):
    """Scores of held-out samples, and their classes."""

    scores: Tensor
    """[n, C]."""
    truth: Tensor
    """int64 [n]: columns of the scores."""

    @property
    def right(self) -> Tensor:
        """Bool [n]: whether the class with the highest score is the true one."""
        return self.scores.argmax(1) == self.truth


def rate(held: HeldOut, manifest: Manifest, tensors: Mapping[str, Tensor], model: Model) -> Rated:
    """Compute uncalibrated scores of the held-out samples of known classes."""
    scorer = make_scorer(manifest, tensors, model, temperature=1.0)
    held = held.known_to(manifest)
    return Rated(scorer.score(held.batches(), manifest.data_note)[0], held.truth(manifest))


@torch.no_grad()
def stack_log_probabilities(
    stack: TrialStack, held: HeldOut, manifest: Manifest, device: torch.device
) -> Tensor:
    """Compute the log-probabilities [S, n, C] of held-out samples by each trial of a stack."""
    data, by_class = manifest.data_note, MergedOutputs(manifest.columns)
    normalise = Normalise(data.kept_seen, data.kept.shape).to(device)
    parts = [torch.zeros(len(stack.configs), 0, len(manifest.known), dtype=torch.float64)]
    for batch in held.batches():
        scores = stack.scores(normalise(batch.to(device)), stack.position.task)
        parts.append(by_class(scores.cpu().double()).log_softmax(-1))
    return torch.cat(parts, dim=1)


def class_weights(truth: Tensor) -> Tensor:
    """Return weights [n] that sum to 1, and to the same for each class."""
    counts = torch.bincount(truth).double()
    return 1 / (counts[truth] * int((counts > 0).sum()))
