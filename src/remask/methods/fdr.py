"""FDR: function distance regularisation (Benjamin et al. 2019)."""

import torch
from torch import Tensor

from remask.methods.base import Method, Step
from remask.methods.workbench import Task


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
        bench = self.bench
        shape = (bench.trials, bench.capacity)
        self.rows = torch.zeros(shape, dtype=torch.int64, device=bench.device)
        self.logits = torch.zeros((*shape, bench.num_classes), device=bench.device)
        self.sizes = torch.zeros((bench.trials, bench.num_tasks), dtype=torch.int64)

    def loss(self, step: Step) -> Tensor:
        """The cross-entropy."""
        return step.stream_loss()

    def after_step(self, step: Step) -> None:
        """Descend once more, on what the memory says."""
        filled = int(self.sizes[0].sum())
        if not filled:
            return
        slots = self.bench.draw(filled, self.bench.replay_batch)
        memory = self.bench.batch(self.rows.gather(1, slots))
        places = slots.unsqueeze(2).expand(-1, -1, self.bench.num_classes)
        stored = self.logits.gather(1, places).softmax(2)
        distance = torch.linalg.vector_norm(memory.logits.softmax(2) - stored, dim=2)
        self.bench.net.descend(distance.mean(1), self.bench.lr)

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        """Make room in every earlier task, and keep the first samples of another pass."""
        quota = self.bench.capacity // (task.number + 1)
        rows, logits = self._trimmed(quota)
        self.sizes.clamp_(max=quota)
        left = min(quota, len(task.rows))
        for arriving in self.bench.shuffled(task, "memory"):
            if not left:
                break
            batch = self.bench.batch(arriving)
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
