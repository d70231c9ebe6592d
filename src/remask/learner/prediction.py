"""Predicting: one module from inputs to scores of the known classes, and names from scores."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.engine.predictors import METHOD, NET, assemble
from remask.learner.architecture import Parts, linear
from remask.learner.errors import RESTORE, LearnerError
from remask.learner.features import Features
from remask.learner.manifest import Manifest, Seen
from remask.learner.results import Abstention, Prediction, Predictions, UnknownTest
from remask.learner.state import HEAD_BIAS, HEAD_WEIGHT, MISFITS
from remask.streams import Normaliser
from remask.user_data import SampleReader

_ROWS_AT_ONCE = 64  # more would leave the processor's cache


class MergedOutputs(nn.Module):
    """From scores of outputs to scores of classes, in whose softmax the outputs of a class add up.

    A class has several outputs if it was merged with another.
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
    """From inputs to scores over the classes that have been learnt.

    An encoder comes first, if there is one. The softmax of the scores is the learner's
    probabilities.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        net: nn.Module,
        columns: Sequence[int],
        temperature: float,
        features: Features | None = None,
        features_seen: Seen | None = None,
        *,
        on_features: bool = False,
    ) -> None:
        """With `on_features`, what is kept in memory are features."""
        super().__init__()
        self.net, self.features, self.temperature = net, features, temperature
        self.on_features = on_features
        self.by_class = MergedOutputs(columns)
        seen = features_seen or Seen(scale=1.0)
        self.register_buffer("mean", torch.tensor(seen.mean or (0.0,)))
        self.register_buffer("std", torch.tensor(seen.std or (1.0,)))

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute scores: [B, *shape] -> [B, C]."""
        return self.of_kept(inputs if self.features is None else self.features(inputs))

    def of_kept(self, inputs: Tensor) -> Tensor:
        """Compute scores of what is kept in memory: features, or inputs as the net sees them."""
        if self.on_features:
            inputs = (inputs - self.mean) / self.std
        scores: Tensor = self.by_class(self.net(inputs) / self.temperature)
        return scores

    def with_features(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Compute scores as `of_kept` does, and the features that they are computed from.

        These are what is kept in memory, or if those are inputs of a net, what goes into its last
        linear layer, scaled to length 1. Raises LearnerError if the net has no such layer.
        """
        if self.on_features:
            return self.of_kept(inputs), inputs
        entering: list[Tensor] = []

        def record(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            entering[:] = arguments[:1]

        layers = [layer for layer in self.net.modules() if isinstance(layer, nn.Linear)]
        hooks = [layer.register_forward_pre_hook(record) for layer in layers]
        try:
            scores = self.of_kept(inputs)
        finally:
            for hook in hooks:
                hook.remove()
        if not entering:
            raise LearnerError("unknown samples cannot be found: the net has no nn.Linear layer")
        return scores, F.normalize(entering[0].flatten(1), dim=1)


def scorer(
    manifest: Manifest,
    tensors: Mapping[str, Tensor],
    parts: Parts,
    temperature: float | None = None,
) -> Scorer:
    """The module that predicts as a saved state does. Raises LearnerError if they do not fit."""
    assert manifest.data is not None
    data, seen = manifest.data, None
    if manifest.head == "net":
        net, seen = _trained_net(manifest, tensors, parts), data.features_seen
    else:
        net = linear(data.kept.shape, manifest.outputs)
        with torch.no_grad():
            for parameter, name in zip(net.parameters(), (HEAD_WEIGHT, HEAD_BIAS), strict=True):
                parameter.copy_(tensors[name])
    if temperature is None:
        temperature = manifest.calibration.temperature if manifest.calibration else 1.0
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):  # as fast as it can be on a processor
            layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    on_features, features = data.features is not None, parts.features(data)
    return Scorer(
        net, manifest.columns, temperature, features, seen, on_features=on_features
    ).eval()


def _trained_net(manifest: Manifest, tensors: Mapping[str, Tensor], parts: Parts) -> nn.Module:
    assert manifest.data is not None
    shape, method = manifest.data.kept.shape, parts.method
    if method is None:
        raise LearnerError(f"the learner is damaged: it has no method to predict with. {RESTORE}")
    architecture = parts.architecture(manifest.data)
    own = tuple(f"{METHOD}{name}" for name in method.predicts_with)
    # Nothing is allocated for a net of remask before its tensors prove to have the right shapes.
    with torch.device("meta") if architecture.is_built_in else nullcontext():
        net = architecture.build(shape, manifest.outputs)
    try:
        ours = {
            name: tensor[0]
            for name, tensor in tensors.items()
            if name.startswith(NET) or (name.startswith(own) and own)
        }
        net = assemble(method, net, ours)
        with torch.no_grad():
            kind = torch.int64 if manifest.data.kept.dtype == "int64" else torch.float32
            probe = torch.zeros(1, *shape, device=next(iter(ours.values())).device, dtype=kind)
            if net(probe).shape[1] < len(manifest.classes):
                raise ValueError("it has fewer outputs than classes")
    except MISFITS as error:
        reason = f"{type(error).__name__}: {str(error)[:300]}"
        if architecture.is_built_in:
            raise LearnerError(
                f"the learner is damaged: its state does not fit its net. {reason}. {RESTORE}"
            ) from error
        raise LearnerError(f"the net is not the one that the learner has: {reason}") from error
    return net


def as_seen(inputs: Tensor, seen: Seen, device: torch.device | str) -> Tensor:
    """Inputs [n, *shape] as they are kept to what a net sees."""
    normalise = Normaliser(seen.scale, seen.mean, seen.std, inputs.shape[1:], device)
    return normalise(inputs.to(device))


def columns_of(labels: Tensor, manifest: Manifest) -> Tensor:
    """The columns of the scores that stand for outputs [n]."""
    return torch.tensor(manifest.columns)[labels]


@torch.no_grad()
def kept_scores(
    module: Scorer, groups: Iterable[Tensor], seen: Seen, device: torch.device | str
) -> Tensor:
    """Scores [n, C] of samples as they are kept, group by group, on the host."""
    parts = [module.of_kept(as_seen(group, seen, device)).cpu() for group in groups]
    return torch.cat(parts) if parts else torch.zeros(0, len(module.by_class.outputs))


@torch.no_grad()
def source_scores(
    module: Scorer,
    source: SampleReader,
    manifest: Manifest,
    device: torch.device | str,
    *,
    features: bool = False,
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Scores [n, C] of samples as they are read, group by group; and `features` [n, D] if wanted.

    See `Scorer.with_features`.
    """
    assert manifest.data is not None
    samples = source.samples(manifest.data.inputs)
    while group := list(islice(samples, _ROWS_AT_ONCE)):
        if module.features is not None:
            kept = module.features.encode(group)
        else:
            kept = torch.from_numpy(np.stack(group))
        kept = as_seen(kept, manifest.data.seen, device)
        if kept.ndim == 4:  # after `as_seen`, which is slower channels last
            kept = kept.contiguous(memory_format=torch.channels_last)
        if features:
            scores, found = module.with_features(kept)
            yield scores.cpu(), found.cpu()
        else:
            yield module.of_kept(kept).cpu(), None


def predictions(
    scores: Tensor,
    names: Sequence[str],
    sources: Sequence[str] | None,
    top: int,
    *,
    abstention: Abstention | None = None,
    unknown_test: UnknownTest | None = None,
    distances: Tensor | None = None,
) -> Predictions:
    """Turn scores [n, C] into names; `distances` [n] are what `unknown_test` compares."""
    shares, columns = scores.softmax(dim=1).topk(min(top, len(names)), dim=1)
    least = 0.0
    if abstention is not None:
        least = torch.inf if abstention.confidence is None else abstention.confidence
    unknown = [False] * len(scores)
    if unknown_test is not None and distances is not None:
        unknown = (distances > unknown_test.threshold).tolist()
    each = []
    for number, (own, chosen) in enumerate(zip(shares.tolist(), columns.tolist(), strict=True)):
        best = tuple((names[column], share) for column, share in zip(chosen, own, strict=True))
        sure = best[0][1] >= least and not unknown[number]
        source = None if sources is None else sources[number]
        name = best[0][0] if sure else None
        each.append(Prediction(name, best[0][1], best, source, unknown[number]))
    return Predictions(tuple(each), abstention, unknown_test)


def per_class(
    scores: Tensor, truth: Tensor, names: Sequence[str]
) -> tuple[dict[str, float], dict[str, int]]:
    """Percent right of each class that is there, and how many samples it has."""
    right = (scores.argmax(1) == truth).double()
    counts = torch.bincount(truth, minlength=len(names))
    sums = torch.bincount(truth, weights=right, minlength=len(names))
    there = [column for column, count in enumerate(counts.tolist()) if count]
    accuracy = {names[c]: 100 * float(sums[c]) / int(counts[c]) for c in there}
    return accuracy, {names[c]: int(counts[c]) for c in there}
