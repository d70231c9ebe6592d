"""Examining: what nets say of the samples that are held out."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.engine import TrialStack
from remask.learner.architecture import Architecture
from remask.learner.calibration import class_weights
from remask.learner.heldout import HeldOut
from remask.learner.manifest import Manifest
from remask.learner.prediction import MergedOutputs, as_seen, columns_of, kept_scores, scorer
from remask.learner.training import Measured
from remask.memory import JoinedRows
from remask.methods import Method


@dataclass(frozen=True, eq=False)
class Examiner:
    """Asks nets about the samples that are held out, all of which are among `rows`."""

    held: HeldOut
    rows: JoinedRows
    architecture: Architecture
    method: type[Method]
    device: torch.device

    @torch.no_grad()
    def rated(self, stack: TrialStack, manifest: Manifest) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the classes for the held-out samples, and their true columns.

        [S, n, C] and [n].
        """
        assert manifest.data is not None
        by_class = MergedOutputs(manifest.columns)
        parts = [torch.zeros(len(stack.configs), 0, len(manifest.known), dtype=torch.float64)]
        for inputs in self.held.inputs(self.rows):
            seen = as_seen(inputs, manifest.data.kept_seen, self.device)
            scores = stack.scores(seen, stack.position.task).cpu().double()
            parts.append(by_class(scores).log_softmax(-1))
        return torch.cat(parts, dim=1), columns_of(self.held.labels, manifest)

    def measured(self, stack: TrialStack, manifest: Manifest) -> Measured:
        """How good the first trial is now, every class weighing the same."""
        if not len(self.held):
            return Measured(0.0, 0.0)
        rated, truth = self.rated(stack, manifest)
        logs = rated[0]
        weights, likelihood = class_weights(truth), logs.gather(1, truth.unsqueeze(1)).squeeze(1)
        return Measured(
            float((weights * (logs.argmax(1) == truth)).sum()), float((weights * likelihood).sum())
        )

    def scored(self, manifest: Manifest, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """What a state says of the samples of classes that it knows, uncalibrated; and the truth.

        Scores [n, C], and the true columns [n].
        """
        assert manifest.data is not None
        module = scorer(manifest, tensors, self.method, self.architecture, temperature=1.0)
        used = [number for number, name in enumerate(manifest.classes) if name is not None]
        held = self.held.of_labels(torch.tensor(used))
        seen, device = manifest.data.kept_seen, self.device
        scores = kept_scores(module.to(device), held.inputs(self.rows), seen, device)
        return scores, columns_of(held.labels, manifest)
