"""Columns: a network for every task, with or without connections between them (Rusu et al. 2016).

The connections are those of the code behind the published figures (Buzzega et al. 2020), except
that there an old column runs without its connections and with batch statistics that are not its
own. Here it runs as it was trained, with its own running statistics.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remask.errors import RemaskError
from remask.nets.resnet import BasicBlock, ResNet18

Layer = Callable[[Tensor], Tensor]

_LARGEST_FACTOR = 0.1
_IN_A_CHAIN = (
    *(nn.Flatten, nn.Linear, nn.Dropout, nn.Identity, nn.ReLU, nn.LeakyReLU),
    *(nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh),
)


class LateralsError(RemaskError):
    """A net for which lateral connections are not defined."""


class Columns(nn.Module):
    """T networks, each with all K outputs, without connections; `column` is the active one."""

    def __init__(self, columns: Sequence[nn.Module]) -> None:
        super().__init__()
        self.column = 0
        self.columns = nn.ModuleList(columns)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits: [B, *shape] -> [B, K]."""
        logits: Tensor = self.columns[self.column](inputs)
        return logits


class ToldTask(nn.Module):
    """Columns whose active one is chosen by the task of the inputs, counted from 0."""

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, inputs: Tensor, task: int) -> Tensor:
        """Compute logits: [B, *shape] -> [B, K]."""
        count = len(self.columns.columns)
        if not 0 <= task < count:
            raise ValueError(f"there is a column for each of the tasks 0..{count - 1}, not {task}")
        self.columns.column = task
        logits: Tensor = self.columns(inputs)
        return logits


class ProgressiveColumns(Columns):
    """Columns that receive the hidden values of the older ones, and never change them.

    h_i^t = f_i(W_i(h_{i-1}^t) + A_i^t(h_{i-1}^0, ..., h_{i-1}^{t-1})) is the output of part i of
    column t; W_i and f_i are layers of the net, A_i^t is a lateral, and h_0 has none.
    """

    def __init__(self, nets: Sequence[nn.Module], input_shape: tuple[int, ...]) -> None:
        super().__init__(
            [_Column(net, _laterals(net, older, input_shape)) for older, net in enumerate(nets)]
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits: [B, *shape] -> [B, K]."""
        older: list[list[Tensor]] = []
        for number in range(self.column):
            # It is finished: its running statistics are used and do not change.
            column = self._column(number, training=False)
            with torch.no_grad():
                older.append(column.run(inputs, older)[:-1])
        return self._column(self.column, training=self.training).run(inputs, older)[-1]

    def _column(self, number: int, *, training: bool) -> "_Column":
        column = self.columns[number]
        assert isinstance(column, _Column)
        if column.training is not training:  # train() walks through all modules
            column.train(training)
        return column


class _Part(NamedTuple):
    """The layers of a net between two places where a lateral may start."""

    layers: Sequence[Layer]
    """W, whose outputs a lateral is added to."""
    then: list[Layer]
    """f, applied to the sum."""


class _Column(nn.Module):
    """A net, and its laterals: one for every part but the first, or none at all."""

    def __init__(self, net: nn.Module, laterals: Sequence[nn.Module]) -> None:
        super().__init__()
        self.net = net
        self.laterals = nn.ModuleList(laterals)

    def run(self, inputs: Tensor, older: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Return the outputs of all parts, given those of older columns."""
        outputs: list[Tensor] = []
        for place, part in enumerate(_parts(self.net)):
            hidden = _through(part.layers, outputs[-1] if outputs else inputs)
            if place > 0 and older:
                lateral = self.laterals[place - 1]
                hidden = hidden + lateral(torch.cat([old[place - 1] for old in older], dim=1))
            outputs.append(_through(part.then, hidden))
        return outputs


class Scale(nn.Module):
    """A factor for every unit: [B, *shape] -> [B, *shape]."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.factors = nn.Parameter(_LARGEST_FACTOR * torch.rand(shape))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the products."""
        return inputs * self.factors


def _through(layers: Sequence[Layer], hidden: Tensor) -> Tensor:
    for layer in layers:
        hidden = layer(hidden)
    return hidden


def _parts(net: nn.Module) -> list[_Part]:
    """Return the parts of a net. Raises LateralsError for other kinds of nets."""
    if type(net) is ResNet18:
        return _parts_of_resnet(net)
    chain = type(net) is nn.Sequential and all(type(layer) in _IN_A_CHAIN for layer in net)
    if not chain or not (parts := _parts_of_chain([*net.children()])):
        raise LateralsError(
            "PNN has lateral connections for ResNet-18 and for chains of linear layers, not for "
            f"{type(net).__name__}; the method 'pnn-independent' takes any net"
        )
    return parts


def _laterals(net: nn.Module, older: int, input_shape: tuple[int, ...]) -> list[nn.Module]:
    """Make the laterals from `older` columns into every part of a net but the first."""
    parts = _parts(net)
    if older == 0:
        return []
    if isinstance(net, ResNet18):
        return _laterals_of_resnet(net, older, input_shape)
    linears = [layer for part in parts for layer in part.layers if isinstance(layer, nn.Linear)]
    return [_lateral_of_linear(linear, older) for linear in linears[1:]]


def _parts_of_chain(layers: list[nn.Module]) -> list[_Part]:
    """Split before each linear layer but the first; Flatten belongs to the first part."""
    parts: list[_Part] = []
    for place, layer in enumerate(layers):
        if isinstance(layer, nn.Linear):
            parts.append(_Part([layer] if parts else layers[: place + 1], []))
        elif parts:
            parts[-1].then.append(layer)
    return parts


def _lateral_of_linear(linear: nn.Linear, older: int) -> nn.Module:
    """Make V ReLU(U (s * h)), with as many hidden units as a column has: [B, older * in] -> out."""
    width = linear.in_features
    into, out = nn.Linear(older * width, width), nn.Linear(width, linear.out_features, bias=False)
    nn.init.xavier_uniform_(into.weight)  # as the layers of the MLP start
    nn.init.zeros_(into.bias)
    nn.init.xavier_uniform_(out.weight)
    return nn.Sequential(Scale(older * width), into, nn.ReLU(), out)


def _parts_of_resnet(net: ResNet18) -> list[_Part]:
    """The stem and the first stage, three more stages, and the head on the mean of the maps."""
    first, second, third, fourth = _stages(net)
    return [
        _Part([net.conv, net.bn, F.relu, *first], []),
        _Part(second, []),  # not ReLU: a sum of rectified maps is not negative
        _Part(third, []),
        _Part(fourth, [_mean_of_maps]),
        _Part([net.head], []),
    ]


def _laterals_of_resnet(net: ResNet18, older: int, input_shape: tuple[int, ...]) -> list[nn.Module]:
    """A scale, the width of one column and ReLU; then another such stage, or another head."""
    laterals: list[nn.Module] = []
    height, width = input_shape[1:]
    for stage in _stages(net)[1:]:
        convs = [block.conv1 for block in stage]
        seen = convs[0].in_channels
        laterals.append(
            nn.Sequential(
                Scale(older * seen, height, width),
                nn.Conv2d(older * seen, seen, 1),
                nn.ReLU(),
                *(BasicBlock(own.in_channels, own.out_channels, own.stride[0]) for own in convs),
            )
        )
        height, width = (-(-size // convs[0].stride[0]) for size in (height, width))
    classes, seen = net.head.weight.shape
    into, head = nn.Linear(older * seen, seen), nn.Linear(seen, classes)
    return [*laterals, nn.Sequential(Scale(older * seen), into, nn.ReLU(), head)]


def _stages(net: ResNet18) -> list[list[BasicBlock]]:
    blocks = [block for block in net.blocks if isinstance(block, BasicBlock)]
    return [blocks[start : start + 2] for start in range(0, len(blocks), 2)]


def _mean_of_maps(maps: Tensor) -> Tensor:
    return maps.mean((-2, -1))
