"""A-GEM: averaged gradient episodic memory (Chaudhry et al. 2019)."""

import torch

from remask.memory import choose_rows
from remask.methods.base import Method, Step
from remask.methods.workbench import Gradients, Task, inner, spread


class AGEM(Method):
    """g <- g - min(0, <g, r>) / <r, r> * r, where r is the gradient of CE on a draw from memory.

    The memory has as many places for every task, floor(buffer / tasks), filled at its end.
    """

    name = "agem"
    title = "A-GEM"
    summary = "turns a step that would raise the loss on a draw from memory"
    own_memory = "drawn"
    remembers = ("rows", "filled")

    @classmethod
    def least_buffer(cls, num_tasks: int, num_classes: int) -> int:
        """Every task has a place."""
        return num_tasks

    def prepare(self) -> None:
        """The memory is empty."""
        bench = self.bench
        self.quota = bench.capacity // bench.num_tasks
        shape = (bench.trials, self.quota * bench.num_tasks)
        self.rows = torch.zeros(shape, dtype=torch.int64, device=bench.device)
        self.filled = torch.zeros(bench.trials, dtype=torch.int64)

    def loss(self, step: Step) -> torch.Tensor:
        """The cross-entropy."""
        return step.stream_loss()

    def bend(self, step: Step, gradients: Gradients) -> Gradients:
        """Take off what points against the memory's gradient."""
        filled = int(self.filled[0])
        if not filled:
            return gradients
        slots = self.bench.draw(filled, self.bench.replay_batch)
        memory = self.bench.batch(self.rows.gather(1, slots))
        reference = self.bench.net.gradients(step.cross_entropy(memory))
        against = inner(gradients, reference).clamp(max=0)
        share = against / inner(reference, reference).clamp(min=torch.finfo(against.dtype).tiny)
        return {n: g - spread(share, g) * reference[n] for n, g in gradients.items()}

    def end_task(self, task: Task) -> None:
        """Keep a random sample of the task."""
        chosen = choose_rows(self.bench.random("memory"), task.rows, self.quota)
        start = int(self.filled[0])
        self.rows[:, start : start + chosen.shape[1]] = chosen
        self.filled += chosen.shape[1]
