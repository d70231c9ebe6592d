"""FDR: function distance regularisation (Benjamin et al. 2019)."""

import torch
from torch import Tensor

from remask.methods.base import Method
from remask.methods.step import Step
from remask.streams import Task


class FDR(Method):
    """Two steps of descent: on CE(stream), then on the mean |softmax(f(x)) - softmax(stored)|.

    The norm is the Euclidean one, not squared, on a draw from memory. At the end of a task every
    task so far has as many places.
    """

    name = "fdr"
    title = "FDR"
    summary = "a second step a batch brings outputs back to what they were at each task's end"
    own_memory = "drawn"
    remembers = ("rows", "logits", "sizes")

    @classmethod
    def least_buffer(cls, num_tasks: int, num_classes: int) -> int:
        """Every task has a place."""
        return num_tasks

    def prepare(self) -> None:
        """The memory is empty."""
        engine = self.engine
        shape = (engine.trials, engine.capacity)
        self.rows = torch.zeros(shape, dtype=torch.int64, device=engine.device)
        self.logits = torch.zeros((*shape, engine.num_classes), device=engine.device)
        self.sizes = torch.zeros((engine.trials, engine.num_tasks), dtype=torch.int64)

    def loss(self, step: Step) -> Tensor:
        """The cross-entropy."""
        return step.stream_loss()

    def after_step(self, step: Step) -> None:
        """Descend once more, on what the memory says."""
        filled = int(self.sizes[0].sum())
        if not filled:
            return
        slots = self.engine.draw(filled, self.engine.replay_batch)
        memory = self.engine.batch(self.rows.gather(1, slots))
        places = slots.unsqueeze(2).expand(-1, -1, self.engine.num_classes)
        stored = self.logits.gather(1, places).softmax(2)
        distance = torch.linalg.vector_norm(memory.logits.softmax(2) - stored, dim=2)
        self.engine.net.descend(distance.mean(1), self.engine.lr)

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        """Make room in every earlier task, and keep the first samples of another pass."""
        quota = self.engine.capacity // (task.number + 1)
        rows, logits = self._trimmed(quota)
        self.sizes.clamp_(max=quota)
        left = min(quota, len(task.rows))
        for arriving in self.engine.shuffled(task, "memory"):
            if not left:
                break
            batch = self.engine.batch(arriving)
            rows.append(arriving[:, :left])
            logits.append(batch.logits[:, :left])
            self.sizes[:, task.number] += rows[-1].shape[1]
            left -= rows[-1].shape[1]
        filled = int(self.sizes[0].sum())
        if filled:
            self.rows[:, :filled] = torch.cat(rows, dim=1)
            self.logits[:, :filled] = torch.cat(logits, dim=1)

    def _trimmed(self, quota: int) -> tuple[list[Tensor], list[Tensor]]:
        """The first `quota` samples of every task in memory: rows and logits."""
        sizes = self.sizes[0].tolist()
        rows = torch.split(self.rows[:, : sum(sizes)].clone(), sizes, dim=1)
        logits = torch.split(self.logits[:, : sum(sizes)].clone(), sizes, dim=1)
        return [part[:, :quota] for part in rows], [part[:, :quota] for part in logits]
