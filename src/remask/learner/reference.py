"""Held-out samples and statistics that predictions are compared with, from a learner's files."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.heads import ClassStatistics
from remask.learner.errors import LearnerError
from remask.learner.folder import LearnerFolder
from remask.learner.heldout import HeldOut
from remask.learner.novelty import Novelty
from remask.learner.prediction import Scorer, as_seen, columns_of
from remask.learner.segments import joined, open_segments
from remask.learner.state import MEMORY_LABELS, MEMORY_SOURCES
from remask.learner.statistics import POOLED, ClassFiles, pooled_of
from remask.memory import EMPTY, JoinedRows

_ROWS_AT_ONCE = 64


class NoHeldOutError(LearnerError):
    """Raised if a learner has no held-out samples."""


@dataclass(frozen=True, eq=False)
class Reference:
    """The current state of a learner, with the samples that it has on disk."""

    folder: LearnerFolder
    tensors: Mapping[str, Tensor]
    module: Scorer
    device: torch.device

    def held_out(self) -> tuple[Tensor, Tensor]:
        """Calibrated scores [n, C] of the held-out samples, and their true columns [n].

        Raises LearnerError if there are none.
        """
        held, rows = self._held_out()
        scores, _ = self._computed(rows, held.sources, features=False)
        return scores, columns_of(held.labels, self.folder.manifest)

    def novelty(self) -> tuple[Novelty, Tensor]:
        """What measures distances from known classes, and those of the held-out samples [n].

        Raises LearnerError if the learner has nothing to compute them from.
        """
        held, rows = self._held_out()
        found = Novelty(self._statistics())
        _, features = self._computed(rows, held.sources, features=True)
        assert features is not None
        return found, found.distances(features)

    def _held_out(self) -> tuple[HeldOut, JoinedRows]:
        """Held-out samples of known classes; without a memory, samples drawn like them."""
        manifest = self.folder.manifest
        held, rows = HeldOut.of(self.tensors), joined(open_segments(self.folder))
        if manifest.settings.memory == 0 and manifest.exact:
            files = ClassFiles(self.folder, manifest)
            drawn = files.held_out(manifest.statistics, manifest.settings.seed)
            numbers = torch.arange(len(drawn.labels))
            held, rows = HeldOut(numbers, drawn.labels, numbers), JoinedRows([drawn.features])
        used = [number for number, name in enumerate(manifest.classes) if name is not None]
        held = held.of_labels(torch.tensor(used))
        if rows is None or not len(held):
            raise NoHeldOutError(
                "the learner has no held-out samples, which `abstain`, `unknown` and the confusion "
                "matrix are measured on: classes need at least two samples each, and a memory"
            )
        return held, rows

    def _statistics(self) -> ClassStatistics:
        """Statistics of features: those that are stored, or of the samples in the memory."""
        if any(name.startswith(POOLED) for name in self.tensors):
            return pooled_of(self.tensors)
        manifest, rows = self.folder.manifest, joined(open_segments(self.folder))
        labels = self.tensors.get(MEMORY_LABELS, torch.zeros(0, dtype=torch.int64))
        filled = labels != EMPTY
        if rows is None or not bool(filled.any()):
            raise LearnerError(
                f"unknown samples cannot be found: the method {manifest.settings.method!r} keeps "
                f"neither statistics of features nor samples in the memory"
            )
        _, features = self._computed(rows, self.tensors[MEMORY_SOURCES][filled], features=True)
        assert features is not None
        stats = ClassStatistics.empty(manifest.outputs, features.shape[1])
        stats.add(features, labels[filled])
        return stats

    @torch.no_grad()
    def _computed(
        self, rows: JoinedRows, sources: Tensor, *, features: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Scores of samples on disk, and their features if wanted."""
        data = self.folder.manifest.data
        assert data is not None
        scores, found = [], []
        for numbers in torch.split(sources, _ROWS_AT_ONCE):
            kept = as_seen(rows.take(numbers), data.seen, self.device)
            if features:
                both = self.module.with_features(kept)
                scores.append(both[0].cpu())
                found.append(both[1].cpu())
            else:
                scores.append(self.module.of_kept(kept).cpu())
        return torch.cat(scores), torch.cat(found) if features else None
