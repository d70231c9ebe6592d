"""GSS: gradient-based sample selection, the greedy variant (Aljundi et al. 2019)."""

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.methods.base import Method, MethodError
from remask.methods.step import Step
from remask.nets import SampleGradients

Floats = NDArray[np.floating[Any]]

_FIRST_SCORE = 0.1
_TINY = 1e-12


class GSS(Method):
    """loss = mean CE over the samples of stream and replay together, as in ER.

    The memory prefers samples whose gradients point away from those of others: a sample's score is
    1 + its largest cosine with some samples in memory. Once the memory is full, a batch whose mean
    gradient opposes all of them may replace samples that have high scores.
    """

    name = "gss"
    title = "GSS"
    summary = "replay from a memory of samples whose gradients differ"
    weights: ClassVar = {"probes": 10.0}
    works_on_host = "samples challenge those in memory there, one by one"
    own_memory = "drawn"
    remembers = ("rows", "ratings", "filled")
    probes: Tensor

    def prepare(self) -> None:
        """The memory is empty."""
        engine = self.engine
        counts = set(self.probes.tolist())
        if len(counts) > 1 or min(counts) < 1:
            raise MethodError("GSS needs one number of probes, at least 1, for all trials of a run")
        shape = (engine.trials, engine.capacity)
        self.rows = torch.zeros(shape, dtype=torch.int64, device=engine.device)
        self.ratings = torch.zeros(shape, dtype=torch.float64)
        self.filled = torch.zeros(engine.trials, dtype=torch.int64)

    def loss(self, step: Step) -> Tensor:
        """Stream and replay weigh as many samples as they have."""
        filled = int(self.filled[0])
        if not filled:
            return step.stream_loss()
        slots = self.engine.draw(filled, self.engine.replay_batch)
        replay = self.engine.batch(self.rows.gather(1, slots))
        arrived, recalled = step.rows.shape[1], slots.shape[1]
        together = self.engine.net(torch.cat([step.stream.inputs, replay.inputs], dim=1))
        step.stream.logits, replay.logits = together[:, :arrived], together[:, arrived:]
        weighed = arrived * step.stream_loss() + recalled * step.cross_entropy(replay)
        return weighed / (arrived + recalled)

    def after_step(self, step: Step) -> None:
        """Keep everything while there is room, then what is unlike the rest."""
        filled, arrived = int(self.filled[0]), step.rows.shape[1]
        room = min(self.engine.capacity - filled, arrived)
        if filled == 0:
            batch_scores = np.full(self.engine.trials, _FIRST_SCORE)
            sample_scores = np.full((self.engine.trials, arrived), _FIRST_SCORE)
        else:
            batch_scores, sample_scores = self._score(step.rows, filled)
        if room:
            self.rows[:, filled : filled + room] = step.rows[:, :room]
            self.ratings[:, filled : filled + room] = torch.from_numpy(batch_scores).unsqueeze(1)
            self.filled += room
        if filled and room < arrived:
            for trial, random in enumerate(self.engine.generators("replace")):
                if batch_scores[trial] < 1:
                    self._replace(trial, random, step.rows[trial, room:], sample_scores[trial])

    def _score(self, rows: Tensor, filled: int) -> tuple[Floats, Floats]:
        """1 + the largest cosine with the probes: of the mean gradient, [S], of each, [S, B]."""
        slots = self.engine.draw(filled, int(self.probes[0]))
        probes = self._gradients(self.rows.gather(1, slots))
        samples = self._gradients(rows)
        products, own, lengths = samples.inner(probes), samples.inner(samples), probes.inner(probes)
        of_probes = lengths.diagonal(dim1=1, dim2=2).clamp(min=_TINY).sqrt()
        of_samples = own.diagonal(dim1=1, dim2=2).clamp(min=_TINY).sqrt()
        of_batch = own.mean((1, 2)).clamp(min=_TINY).sqrt()
        single = products / (of_samples.unsqueeze(2) * of_probes.unsqueeze(1))
        whole = products.mean(1) / (of_batch.unsqueeze(1) * of_probes)
        return (1 + whole.amax(1)).cpu().numpy(), (1 + single.amax(2)).cpu().numpy()

    def _gradients(self, rows: Tensor) -> SampleGradients:
        batch = self.engine.batch(rows, augment=False)
        return self.engine.net.sample_gradients(batch.inputs, batch.labels)

    def _replace(
        self, trial: int, random: np.random.Generator, rows: Tensor, scores: Floats
    ) -> None:
        """Let each sample challenge one in memory, chosen by its score."""
        ratings = self.ratings[trial].numpy()  # shares its memory
        late = scores[len(scores) - len(rows) :]
        for row, score in zip(rows, late, strict=True):
            if not (np.isfinite(score) and np.isfinite(ratings).all()):
                return  # the trial has diverged
            shares = np.maximum(ratings, _TINY)
            victim = int(random.choice(len(shares), p=shares / shares.sum()))
            if random.random() < ratings[victim] / max(ratings[victim] + score, _TINY):
                self.rows[trial, victim] = row
                ratings[victim] = score
