"""Predicting with the current state of a learner, and measuring it on held-out samples."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from remask.data.readers import SampleReader
from remask.learner.calibration import Novelty, check_share, find_abstention, unknown_test
from remask.learner.folder import LearnerFolder, Tensors, memory_of
from remask.learner.manifest import DataNote
from remask.learner.model import AT_ONCE, Model
from remask.learner.predictions import Predictions
from remask.learner.samples import POOLED, HeldOut, measured_on, pooled_of
from remask.learner.scoring import Scorer, make_scorer, score
from remask.learner.settings import LearnerError, NoHeldOutError
from remask.methods.statistics import ClassStatistics

_TRIES = 5  # to read a learner that other processes change


class Predictor:
    """Predicts with the state of a learner, which is loaded when it is first needed."""

    def __init__(self, folder: LearnerFolder, model: Model) -> None:
        self._folder, self._model = folder, model
        self._scorer: tuple[int, Scorer] | None = None  # of a generation
        self._novelty: tuple[Scorer, Novelty, Tensor] | None = None  # distances of held-out samples

    def scorer(self) -> Scorer:
        """Return the module that predicts. Raises LearnerError.

        If another process has replaced the files meanwhile, it is that of the newest generation.
        """
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
        """Return what measures distances from known classes, and those of held-out samples [n].

        They are computed once for a generation.
        """
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
