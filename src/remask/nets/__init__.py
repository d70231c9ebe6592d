"""Networks: ordinary nn.Modules, written for one model. The engine stacks them."""

from remask.nets.builders import NETS, NetBuilder, conv, mlp, net_builder
from remask.nets.resnet import resnet18
from remask.nets.stacked import inner, per_trial, trial_sums

__all__ = [
    "NETS",
    "NetBuilder",
    "conv",
    "inner",
    "mlp",
    "net_builder",
    "per_trial",
    "resnet18",
    "trial_sums",
]
