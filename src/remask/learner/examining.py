"""Measuring nets and heads on the samples that are held out."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.engine import TrialStack
from remask.learner.architecture import Parts
from remask.learner.calibration import class_weights
from remask.learner.heldout import HeldOut
from remask.learner.manifest import Manifest
from remask.learner.prediction import MergedOutputs, as_seen, columns_of, kept_scores, scorer
from remask.learner.statistics import ClassFiles, Updated
from remask.learner.training import Measured
from remask.memory import JoinedRows


@dataclass(frozen=True, eq=False)
class Examiner:
    """Scores the samples that are held out, all of which are among `rows`."""

    held: HeldOut
    rows: JoinedRows
    parts: Parts

    @torch.no_grad()
    def rated(self, stack: TrialStack, manifest: Manifest) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the classes for the held-out samples, and their true columns.

        [S, n, C] and [n].
        """
        assert manifest.data is not None
        by_class = MergedOutputs(manifest.columns)
        parts = [torch.zeros(len(stack.configs), 0, len(manifest.known), dtype=torch.float64)]
        for inputs in self.held.inputs(self.rows):
            seen = as_seen(inputs, manifest.data.kept_seen, self.parts.device)
            scores = stack.scores(seen, stack.position.task).cpu().double()
            parts.append(by_class(scores).log_softmax(-1))
        return torch.cat(parts, dim=1), columns_of(self.held.labels, manifest)

    def measured(self, stack: TrialStack, manifest: Manifest) -> Measured:
        """How good the best trial is now, every class weighing the same."""
        if not len(self.held):
            return Measured(0.0, 0.0)
        rated, truth = self.rated(stack, manifest)
        weights = class_weights(truth)
        right = (rated.argmax(2) == truth).double() @ weights
        likelihood = rated.gather(2, truth.expand(len(rated), -1).unsqueeze(2)).squeeze(2) @ weights
        likelihood = likelihood.nan_to_num(nan=-torch.inf, posinf=-torch.inf)
        return Measured(float(right.max()), float(likelihood.max()))

    def scored(self, manifest: Manifest, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Scores of the samples of known classes by a state, uncalibrated; and the truth.

        Scores [n, C], and the true columns [n].
        """
        assert manifest.data is not None
        module = scorer(manifest, tensors, self.parts, temperature=1.0)
        used = [number for number, name in enumerate(manifest.classes) if name is not None]
        held = self.held.of_labels(torch.tensor(used))
        device = self.parts.device
        seen = manifest.data.seen
        scores = kept_scores(module.to(device), held.inputs(self.rows), seen, device)
        return scores, columns_of(held.labels, manifest)


def drawn_examiner(files: ClassFiles, statistics: Updated, parts: Parts) -> Examiner:
    """Measures on samples that are drawn from the statistics of held-out ones."""
    drawn = files.held_out(statistics.notes, parts.settings.seed)
    numbers = torch.arange(len(drawn.labels))
    return Examiner(HeldOut(numbers, drawn.labels, numbers), JoinedRows([drawn.features]), parts)
