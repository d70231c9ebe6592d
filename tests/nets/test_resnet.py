"""ResNet-18: its parameters, and a training step against plain calls of torch's functions."""

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remask.engine.linear_stack import stack_nets
from remask.engine.module_stack import ModuleStack
from remask.errors import UnknownNameError
from remask.nets.builders import mlp, net_builder, preferred_stack
from remask.nets.resnet import ResNet18, resnet18


def count(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


# By hand, for K classes: stem 3*64*9 + 2*64; a block a -> b has 9ab + 9bb + 4b, and ab + 2b more
# for a shortcut; head 512K + K.
@pytest.mark.parametrize(
    ("num_classes", "parameters"), [(10, 11_173_962), (100, 11_220_132), (200, 11_271_432)]
)
def test_the_published_net_has_the_published_number_of_parameters(
    num_classes: int, parameters: int
) -> None:
    with torch.device("meta"):
        assert count(net_builder("resnet18")((3, 32, 32), num_classes)) == parameters


class ResNetByHand:
    """The same net as plain calls on named tensors, written out layer by layer.

    Layers whose names begin with `in_training` use batch statistics, others the running ones.
    """

    def __init__(self, state: dict[str, Tensor], in_training: str | None = "") -> None:
        self.state, self.in_training = state, in_training

    def conv(self, name: str, maps: Tensor, stride: int = 1) -> Tensor:
        weight, bias = self.state[f"{name}.weight"], self.state.get(f"{name}.bias")
        return F.conv2d(maps, weight, bias, stride=stride, padding=weight.shape[-1] // 2)

    def linear(self, name: str, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def norm(self, name: str, maps: Tensor) -> Tensor:
        """Batch statistics by hand; the running ones move a tenth of the way."""
        mean, variance = (self.state[f"{name}.running_{part}"] for part in ("mean", "var"))
        if self.in_training is not None and name.startswith(self.in_training):
            own = maps.mean((0, 2, 3))
            squares = (maps - own[:, None, None]).square().mean((0, 2, 3))
            count = maps.numel() // maps.shape[1]
            with torch.no_grad():
                mean.mul_(0.9).add_(0.1 * own)
                variance.mul_(0.9).add_(0.1 * squares * count / (count - 1))
                self.state[f"{name}.num_batches_tracked"].add_(1)
            mean, variance = own, squares
        scaled = (maps - mean[:, None, None]) / (variance + 1e-5).sqrt()[:, None, None]
        gain, bias = self.state[f"{name}.weight"], self.state[f"{name}.bias"]
        return scaled * gain[:, None, None] + bias[:, None, None]

    def stage(self, blocks: Sequence[str], maps: Tensor, stride: int) -> Tensor:
        for name, step in zip(blocks, (stride, 1), strict=True):
            hidden = self.norm(f"{name}.bn1", self.conv(f"{name}.conv1", maps, step)).clamp(min=0)
            hidden = self.norm(f"{name}.bn2", self.conv(f"{name}.conv2", hidden))
            if step == 2:
                maps = self.conv(f"{name}.shortcut.0", maps, 2)
                maps = self.norm(f"{name}.shortcut.1", maps)
            maps = (hidden + maps).clamp(min=0)
        return maps

    def logits(self, images: Tensor) -> Tensor:
        maps = self.norm("bn", self.conv("conv", images)).clamp(min=0)
        for number in range(4):
            blocks = [f"blocks.{2 * number}", f"blocks.{2 * number + 1}"]
            maps = self.stage(blocks, maps, 2 if number else 1)
        return self.linear("head", F.avg_pool2d(maps, maps.shape[-1]).flatten(1))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [16, 24])
def test_a_training_step_equals_plain_function_calls(
    size: int, layout: torch.memory_format
) -> None:
    torch.manual_seed(3)
    net = resnet18((3, size, size), 5, width=16).double()
    net.to(memory_format=layout)  # type: ignore[call-overload]
    state = {name: value.detach().clone() for name, value in net.state_dict().items()}
    named = dict(net.named_parameters())
    trained = {name: state[name].requires_grad_() for name in named}
    images, labels = torch.randn(6, 3, size, size).double(), torch.randint(5, (6,))

    expected = F.cross_entropy(ResNetByHand(state).logits(images), labels)
    gradients = torch.autograd.grad(expected, list(trained.values()))
    loss = F.cross_entropy(net(images.contiguous(memory_format=layout)), labels)
    loss.backward()  # type: ignore[no-untyped-call]

    torch.testing.assert_close(loss, expected)
    for (name, parameter), gradient in zip(named.items(), gradients, strict=True):
        assert gradient.abs().max() > 1e-6
        torch.testing.assert_close(parameter.grad, gradient, msg=name)
    for name, buffer in net.named_buffers():
        torch.testing.assert_close(buffer, state[name], msg=name)
    assert not torch.equal(dict(net.named_buffers())["bn.running_mean"], torch.zeros(16).double())


def test_the_logits_of_a_cosine_head_are_ten_times_cosines() -> None:
    net = net_builder("resnet18-cosine:4")((1, 16, 16), 3).eval()
    assert isinstance(net, ResNet18)
    images = torch.randn(2, 1, 16, 16)
    features = net.features(images)
    for row, logits in enumerate(net(images)):
        for label in range(3):
            weights = net.head.weight[label]
            cosine = features[row] @ weights / features[row].norm() / weights.norm()
            torch.testing.assert_close(logits[label], 10 * cosine)


def test_a_name_may_end_with_a_width() -> None:
    for name, width in (("resnet18", 64), ("resnet18:20", 20), ("resnet18:1", 1)):
        with torch.device("meta"):
            net = net_builder(name)((3, 32, 32), 10)
        widths = [p.shape[0] for n, p in net.named_parameters() if n.endswith("conv1.weight")]
        assert widths == [width * factor for factor in (1, 1, 2, 2, 4, 4, 8, 8)]


@pytest.mark.parametrize(
    "width", ["", "0", "-4", "07", "1.5", " 8", "8 ", "10000", "x", "8:8", "٣"]
)
def test_a_width_that_is_no_plain_number_is_refused(width: str) -> None:
    with pytest.raises(UnknownNameError, match=r"from 1 to 9999, as in 'resnet18:20'"):
        net_builder(f"resnet18:{width}")


def test_an_unknown_net_is_refused_with_the_nearest_name() -> None:
    for name in ("resnet8", "resnet8:20"):
        with pytest.raises(UnknownNameError, match=r"did you mean 'resnet18'\?"):
            net_builder(name)


def test_the_hidden_layers_of_an_mlp_take_a_width() -> None:
    shapes = [list(p.shape) for p in net_builder("mlp:20")((1, 2, 3), 4).parameters()]
    assert shapes == [[20, 6], [20], [20, 20], [20], [4, 20], [4]]


def test_flat_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(channels, height, width\).*\(784,\)"):
        resnet18((784,), 10)


def test_mlps_are_stacked_by_ten_and_convolutional_nets_on_a_cpu_are_not() -> None:
    perceptron, residual = mlp((4,), 2), resnet18((3, 8, 8), 2, width=8)
    assert preferred_stack(perceptron) == preferred_stack(perceptron, "cuda") == 10
    assert preferred_stack(residual) == preferred_stack(residual, "cpu") == 1
    assert preferred_stack(residual, torch.device("cuda")) > 1


def layouts(stack: ModuleStack, images: Tensor) -> set[bool]:
    """Whether channels are last: of the kernels, and of the maps that they see and make."""
    found: set[bool] = set()

    def look(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(module, nn.Conv2d)
        if module.kernel_size == (1, 1):
            return  # such a kernel is in both layouts
        for tensor in (module.weight, inputs[0], output):
            found.add(tensor.is_contiguous(memory_format=torch.channels_last))

    for module in stack.module.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(look)
    stack(images)
    return found


def test_nets_that_break_onednn_with_channels_last_keep_the_default_layout() -> None:
    # The shortcut from 15 to 30 channels would write past oneDNN's memory on AVX-512.
    images = torch.randn(1, 3, 3, 16, 16)
    for width, last in ((15, False), (16, True)):
        stack = stack_nets([resnet18((3, 16, 16), 4, width=width)])
        assert isinstance(stack, ModuleStack)
        assert layouts(stack, images) == {last}
