"""Scores of the known classes, and predicting with the current state of a learner."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.data.readers import SampleReader
from remask.data.tasks import Normalise
from remask.engine import TrialStack
from remask.engine.saved_nets import METHOD, NET, assemble
from remask.errors import RemaskError
from remask.learner.calibration import Novelty, check_share, find_abstention, unknown_test
from remask.learner.folder import HEAD_BIAS, HEAD_WEIGHT, LearnerFolder, Tensors, memory_of
from remask.learner.manifest import DataNote, Manifest, Normalisation
from remask.learner.model import AT_ONCE, Features, Model, is_own_net, linear
from remask.learner.predictions import Predictions
from remask.learner.samples import POOLED, HeldOut, measured_on, pooled_of
from remask.learner.settings import MISFITS, RESTORE, LearnerError, NoHeldOutError
from remask.methods.statistics import ClassStatistics

_TRIES = 5  # to read a learner that other processes change


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
        features: Features | None = None,
        normalise: Normalise | None = None,
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


def make_scorer(
    manifest: Manifest,
    tensors: Mapping[str, Tensor],
    model: Model,
    temperature: float | None = None,
) -> Scorer:
    """Build the module that predicts with a saved state. Raises LearnerError if it does not fit."""
    assert manifest.data is not None
    data, how = manifest.data, Normalisation()
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
    assert manifest.data is not None
    data, method = manifest.data, model.method
    if method is None:
        raise LearnerError(f"the learner is damaged: it has no method to predict with. {RESTORE}")
    own = tuple(f"{METHOD}{name}" for name in method.predicts_with)
    built_in = not is_own_net(data.net)
    # A net of remask takes no memory before the shapes of its tensors are checked.
    with torch.device("meta") if built_in else nullcontext():
        net = model.net_builder(data.net)(data.kept.shape, manifest.outputs)
    try:
        ours = {n: tensor[0] for n, tensor in tensors.items() if n.startswith((NET, *own))}
        net = assemble(method, net, ours)
        with torch.no_grad():
            kind = torch.int64 if data.kept.dtype == "int64" else torch.float32
            device = next(iter(ours.values())).device
            scores = net(torch.zeros(1, *data.kept.shape, device=device, dtype=kind))
        if scores.shape[1] < len(manifest.classes):
            raise ValueError("it has fewer outputs than classes")
    except (*MISFITS, RemaskError) as error:
        reason = f"{type(error).__name__}: {str(error)[:300]}"
        if built_in:
            raise LearnerError(
                f"the learner is damaged: its state does not fit its net. {reason}. {RESTORE}"
            ) from error
        raise LearnerError(f"the net is not the one that the learner has: {reason}") from error
    return net


@torch.no_grad()
def score(
    module: Scorer, batches: Iterable[Tensor], data: DataNote, *, features: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute scores [n, C] of samples as they are kept, and if asked their features [n, D].

    See `Scorer.with_features`. Both are on the CPU.
    """
    device = module.by_class.outputs.device
    normalise = Normalise(data.seen, data.kept.shape).to(device)
    scores, found = [], [torch.zeros(0)]
    for batch in batches:
        inputs = normalise(batch.to(device))
        if inputs.ndim == 4:  # normalising is slower channels last
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if features:
            own, entering = module.with_features(inputs)
            found.append(entering.cpu())
        else:
            own = module.of_kept(inputs)
        scores.append(own.cpu())
    return torch.cat(scores), torch.cat(found[1:] or found)


def score_held_out(
    held: HeldOut, manifest: Manifest, tensors: Mapping[str, Tensor], model: Model
) -> tuple[Tensor, Tensor]:
    """Compute uncalibrated scores [n, C] of held-out samples of known classes; return the truth."""
    assert manifest.data is not None
    module = make_scorer(manifest, tensors, model, temperature=1.0)
    held = held.known_to(manifest)
    return score(module, held.batches(), manifest.data)[0], held.truth(manifest)


@torch.no_grad()
def stack_log_probabilities(
    stack: TrialStack, held: HeldOut, manifest: Manifest, device: torch.device
) -> Tensor:
    """Compute the log-probabilities [S, n, C] of held-out samples by each trial of a stack."""
    assert manifest.data is not None
    by_class = MergedOutputs(manifest.columns)
    normalise = Normalise(manifest.data.kept_seen, manifest.data.kept.shape).to(device)
    parts = [torch.zeros(len(stack.configs), 0, len(manifest.known), dtype=torch.float64)]
    for batch in held.batches():
        scores = stack.scores(normalise(batch.to(device)), stack.position.task)
        parts.append(by_class(scores.cpu().double()).log_softmax(-1))
    return torch.cat(parts, dim=1)


class Predictor:
    """Predicts with the state of a learner, which is loaded when it is first needed."""

    def __init__(self, folder: LearnerFolder, model: Model) -> None:
        self._folder, self._model = folder, model
        self._scorer: tuple[int, Scorer] | None = None  # of a generation
        self._novelty: tuple[Scorer, Novelty, Tensor] | None = None  # distances of held-out samples

    def scorer(self) -> Scorer:
        """Return the module that predicts; of the newest generation if files were replaced."""
        for attempt in range(_TRIES):
            generation = self._folder.manifest.generation
            if self._scorer is not None and self._scorer[0] == generation:
                break
            if not self._folder.manifest.known:
                raise LearnerError(
                    f"{self._folder.path} has not learnt anything yet: call learn() first, or run "
                    f"`remask learn`"
                )
            try:
                state = self._folder.read_state()
                self._scorer = generation, make_scorer(self._folder.manifest, state, self._model)
            except LearnerError:
                self._folder.refresh()
                if self._folder.manifest.generation == generation or attempt == _TRIES - 1:
                    raise
        assert self._scorer is not None
        return self._scorer[1]

    def predictions(
        self, source: SampleReader, top: int, abstain: float | None, unknown: float | None
    ) -> tuple[Predictions, Tensor, Tensor | None]:
        """Return predictions, scores [n, C], and if asked distances [n] from known classes."""
        check_share("abstain", abstain, "accuracy wanted", "0.9")
        check_share("unknown", unknown, "false-alarm rate", "0.05")
        module, data = self.scorer(), self._data
        abstention = test = distances = None
        batches = _batches(module, source, data)
        scores, features = score(module, batches, data, features=unknown is not None)
        if abstain is not None:
            abstention = find_abstention(*self.held_out_scores(), abstain)
        if unknown is not None:
            novelty, known = self._distances()
            test, distances = unknown_test(known, unknown), novelty.distances(features)
        names = tuple(self._folder.manifest.known)
        found = Predictions.of(scores, names, source.sources, top, abstention, test, distances)
        return found, scores, distances

    def held_out_scores(self) -> tuple[Tensor, Tensor]:
        """Return calibrated scores [n, C] of held-out samples, and their true columns [n]."""
        held, _ = self._held_out()
        scores, _ = score(self.scorer(), held.batches(), self._data)
        return scores, held.truth(self._folder.manifest)

    @property
    def _data(self) -> DataNote:
        assert self._folder.manifest.data is not None
        return self._folder.manifest.data

    def _held_out(self) -> tuple[HeldOut, Tensors]:
        """Return held-out samples of known classes, and the state. Raises NoHeldOutError."""
        self.scorer()
        manifest, state = self._folder.manifest, self._folder.read_state()
        held = HeldOut.of(state, self._folder.samples())
        held = measured_on(self._folder, manifest, manifest.statistics, held).known_to(manifest)
        if not len(held):
            raise NoHeldOutError(
                "the learner has no held-out samples, which `abstain`, `unknown` and the confusion "
                "matrix are measured on: classes need at least two samples each, and a memory"
            )
        return held, state

    def _distances(self) -> tuple[Novelty, Tensor]:
        """Return what measures distances, and those of held-out samples [n], once a generation."""
        module = self.scorer()
        if self._novelty is None or self._novelty[0] is not module:
            held, state = self._held_out()
            if any(name.startswith(POOLED) for name in state):
                stats = pooled_of(state)
            else:
                stats = self._memory_statistics(module, held, state)
            novelty = Novelty(stats)
            _, features = score(module, held.batches(), self._data, features=True)
            self._novelty = module, novelty, novelty.distances(features)
        return self._novelty[1:]

    def _memory_statistics(self, module: Scorer, held: HeldOut, state: Tensors) -> ClassStatistics:
        sources, labels = memory_of(state)
        manifest = self._folder.manifest
        if not len(labels):
            raise LearnerError(
                f"unknown samples cannot be found: the method {manifest.settings.method!r} keeps "
                f"neither statistics of features nor samples in the memory"
            )
        memory = HeldOut(held.rows, sources, labels, labels)
        _, features = score(module, memory.batches(), self._data, features=True)
        stats = ClassStatistics.empty(manifest.outputs, features.shape[1])
        stats.add(features, labels)
        return stats


def _batches(module: Scorer, source: SampleReader, data: DataNote) -> Iterator[Tensor]:
    """Yield samples that are read as they would be kept: features, or inputs."""
    samples = source.samples(data.inputs)
    while group := list(islice(samples, AT_ONCE)):
        if module.features is not None:
            yield module.features.encode(group)
        else:
            yield torch.from_numpy(np.stack(group))
