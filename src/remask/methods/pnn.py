"""PNN: progressive neural networks (Rusu et al. 2016). Task-IL only."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from remask.methods.base import Method
from remask.methods.step import Step
from remask.nets.builders import NetBuilder
from remask.nets.progressive import Columns, ProgressiveColumns, ToldTask


class PNN(Method):
    """loss = CE(stream) of column t, which learns task t from the frozen features of older columns.

    Column k predicts the samples of task k.
    """

    name = "pnn"
    title = "PNN"
    class_il = False
    confidence = False
    uses_tasks = True  # a task selects the column
    needs_task_count = "has a column for every task from the beginning"

    @classmethod
    def adapt_net(cls, build: NetBuilder, num_tasks: int) -> NetBuilder:

        def build_columns(input_shape: tuple[int, ...], num_classes: int) -> Columns:
            nets = [build(input_shape, num_classes) for _ in range(num_tasks)]
            return ProgressiveColumns(nets, input_shape)

        return build_columns

    def loss(self, step: Step) -> torch.Tensor:
        self._choose(step.task.number)
        return step.stream_loss()

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        self._choose(task)
        return self.context.net.predict(inputs)

    @classmethod
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        assert isinstance(net, Columns)
        return ToldTask(net)

    def _choose(self, column: int) -> None:
        columns = self.context.net.module
        assert isinstance(columns, Columns)
        columns.column = column


class IndependentPNN(PNN):
    """loss = CE(stream) of column t, an independent network.

    The code behind the published figures on Split-MNIST never enabled the lateral connections.
    """

    name = "pnn-independent"
    title = "PNN without laterals"

    @classmethod
    def adapt_net(cls, build: NetBuilder, num_tasks: int) -> NetBuilder:

        def build_columns(input_shape: tuple[int, ...], num_classes: int) -> Columns:
            return Columns([build(input_shape, num_classes) for _ in range(num_tasks)])

        return build_columns
