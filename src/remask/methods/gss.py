"""GSS: gradient-based sample selection, the greedy variant (Aljundi et al. 2019)."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from remask.errors import MethodError
from remask.memory import KeptRows, challenge
from remask.memory.kept import Floats
from remask.methods.base import Method
from remask.methods.step import Step, Term

_FIRST_SCORE = 0.1
_TINY = 1e-12


class GSS(Method):
    """loss = mean CE over the samples of stream and replay together, as in ER.

    The memory prefers samples with diverse gradients: a sample's score is 1 + its largest cosine
    with some samples in memory. Once the memory is full, a batch whose mean gradient opposes all of
    them may replace samples with high scores.
    """

    name = "gss"
    title = "GSS"
    weights: ClassVar = {"probes": 10.0}
    works_on_host = "samples are replaced there, one by one"
    own_memory = "drawn"
    remembers = ("ratings",)
    probes: Tensor
    memory: KeptRows

    def prepare(self) -> None:
        context = self.context
        counts = set(self.probes.tolist())
        if len(counts) > 1 or min(counts) < 1:
            raise MethodError("GSS needs the same `probes >= 1` in all trials of a run")
        self.memory = context.keeps(context.capacity)
        self.ratings = torch.zeros((context.trials, context.capacity), dtype=torch.float64)

    def begin_step(self, step: Step) -> None:
        if filled := self.memory.filled:
            slots = self.context.draw(filled, self.context.replay_batch)
            step.replay(self.context.batch(self.memory.at(slots)))

    def terms(self, step: Step) -> list[Term]:
        sizes = [batch.labels.shape[1] for batch in (step.stream, *step.replays)]
        weights = [size / sum(sizes) for size in sizes]
        replayed = zip(step.replays, weights[1:], strict=True)
        return [*step.stream_terms(weights[0]), *(Term(batch, own) for batch, own in replayed)]

    def after_step(self, step: Step) -> None:
        """Store everything while there is room, then replace samples with high scores."""
        filled, arrived = self.memory.filled, step.rows.shape[1]
        room = min(self.context.capacity - filled, arrived)
        if filled == 0:
            batch_scores = np.full(self.context.trials, _FIRST_SCORE)
            sample_scores = np.full((self.context.trials, arrived), _FIRST_SCORE)
        else:
            batch_scores, sample_scores = self._score(step.rows, filled)
        if room:
            self.memory.put(step.rows[:, :room])
            self.ratings[:, filled : filled + room] = torch.from_numpy(batch_scores).unsqueeze(1)
        if filled and room < arrived:
            for trial, random in enumerate(self.context.generators("replace")):
                if batch_scores[trial] < 1:
                    ratings = self.ratings[trial].numpy()  # shares its memory
                    late = sample_scores[trial, room:]
                    challenge(self.memory, ratings, trial, random, step.rows[trial, room:], late)

    def _score(self, rows: Tensor, filled: int) -> tuple[Floats, Floats]:
        """Return 1 + the largest cosine with the probes: of the mean [S], of each sample [S, B]."""
        slots = self.context.draw(filled, int(self.probes[0]))
        probes = slots.shape[1]
        shown = [self.context.batch(own, augment=False) for own in (self.memory.at(slots), rows)]
        gradients = self.context.net.sample_gradients(
            torch.cat([batch.inputs for batch in shown], dim=1),
            torch.cat([batch.labels for batch in shown], dim=1),
        )
        products = gradients.inner(gradients)
        lengths = products.diagonal(dim1=1, dim2=2).clamp(min=_TINY).sqrt()
        of_batch = products[:, probes:, probes:].mean((1, 2)).clamp(min=_TINY).sqrt()
        shared = products[:, probes:, :probes] / lengths[:, :probes].unsqueeze(1)
        single = shared / lengths[:, probes:].unsqueeze(2)
        whole = shared.mean(1) / of_batch.unsqueeze(1)
        return (1 + whole.amax(1)).cpu().numpy(), (1 + single.amax(2)).cpu().numpy()
