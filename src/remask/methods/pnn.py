"""PNN: progressive neural networks (Rusu et al. 2016). Only for tests that tell the task."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from remask.methods.base import Method
from remask.methods.step import Step
from remask.nets import NetBuilder
from remask.nets.progressive import Columns, IndependentColumns, ProgressiveColumns, ToldTask


class PNN(Method):
    """loss = CE(stream) of column t, which learns task t, sees older columns and never moves them.

    A test sample of task k is shown to column k.
    """

    name = "pnn"
    title = "PNN"
    class_il = False
    confidence = False
    needs_task_count = "has a column for every task from the beginning"

    @classmethod
    def uses_tasks(cls) -> bool:
        """Whoever chooses a column must know the task."""
        return True

    @classmethod
    def adapt_net(cls, build: NetBuilder, num_tasks: int) -> NetBuilder:
        """A column for every task, and lateral connections from old ones to new ones."""

        def build_columns(input_shape: tuple[int, ...], num_classes: int) -> Columns:
            nets = [build(input_shape, num_classes) for _ in range(num_tasks)]
            return ProgressiveColumns(nets, input_shape)

        return build_columns

    def loss(self, step: Step) -> torch.Tensor:
        """Cross-entropy on the stream, of the task's own column."""
        self._choose(step.task.number)
        return step.stream_loss()

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """The logits of the task's own column."""
        self._choose(task)
        return self.engine.net.predict(inputs)

    @classmethod
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        """A module that must be told the task, too."""
        assert isinstance(net, Columns)
        return ToldTask(net)

    def _choose(self, column: int) -> None:
        columns = self.engine.net.module
        assert isinstance(columns, Columns)
        columns.column = column


class IndependentPNN(PNN):
    """loss = CE(stream) of column t, a network of its own.

    In the code behind the published figures the connections between MLPs were never switched on:
    PNN on Split-MNIST was this.
    """

    name = "pnn-independent"
    title = "PNN without laterals"

    @classmethod
    def adapt_net(cls, build: NetBuilder, num_tasks: int) -> NetBuilder:
        """A column for every task."""

        def build_columns(input_shape: tuple[int, ...], num_classes: int) -> Columns:
            return IndependentColumns([build(input_shape, num_classes) for _ in range(num_tasks)])

        return build_columns
