"""Compiles the kernel, checks it, and lays parameters out for it."""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor


class Kernel(NamedTuple):
    """Compiled functions of `kernel.py`."""

    run_steps: Callable[..., None]
    compute_logits: Callable[..., None]


TOLERANCE = 1e-4
"""The largest difference from float64 that a check of a few steps accepts."""
_LINE = 16  # float32 numbers of a cache line
_lock = Lock()
_kernels: dict[torch.dtype, Kernel | None] = {}


def kernel_for(inputs: torch.dtype) -> Kernel | None:
    """The kernel for a type of inputs; None without numba, or with one warning if it fails."""
    with _lock:
        if inputs not in _kernels:
            _kernels[inputs] = None
            if find_spec("numba") is not None:
                try:
                    _kernels[inputs] = _compiled(inputs)
                except Exception as error:  # whatever is wrong with numba here, torch works
                    reason = f"{type(error).__name__}: {error}".splitlines()[0]
                    warnings.warn(
                        f"training is slower, because numba does not work here ({reason})",
                        RuntimeWarning,
                        stacklevel=2,
                    )
        return _kernels[inputs]


def _compiled(inputs: torch.dtype) -> Kernel:
    """Compile the kernel, or load it from numba's cache, and compare it with autograd."""
    from numba import njit

    from remask.engine import emitter, kernel, passes, vectors

    # The cache sees no changes in other files, and none in a file of the same date and size.
    sources = [
        Path(str(module.__file__)).read_bytes() for module in (emitter, kernel, passes, vectors)
    ]
    digest = hashlib.sha256(b"".join(sources)).hexdigest()
    functions = kernel.run_steps, kernel.compute_logits
    for function in functions:
        function.__qualname__ = f"{function.__name__}_{digest[:12]}"
    for cached in (True, False):
        try:
            run = Kernel(*(njit(cache=cached, **passes.OPTIONS)(own) for own in functions))
            apart = max(
                difference(run, inputs, sparse=sparse) for sparse in {False, inputs == torch.uint8}
            )
        except (OSError, RuntimeError):  # no folder for the cache, or no room in it
            if not cached:
                raise
            continue
        if not apart < TOLERANCE:
            raise ArithmeticError(f"its results are off by {apart:.2g}")
        break
    return run


class Layout:
    """Parameters in the kernel's layout; the tensors become views of it."""

    def __init__(self, parameters: dict[str, Tensor], names: Sequence[str]) -> None:
        """Move those of the linear layers with these names, in order, each [S, ...]."""
        from remask.engine.emitter import LANES

        shapes = [parameters[f"{name}.weight"].shape for name in names]
        rows, size = [], 0
        for _, outputs, inputs in shapes:
            deep, wide = -(-inputs // LANES) * LANES, -(-outputs // LANES) * LANES
            rows.append((inputs, outputs, wide, size, size + deep * wide))
            size += deep * wide + wide
        self.layers = np.array(rows, dtype=np.int64)
        """See `passes.Net`."""
        trials, size = shapes[0][0], -(-size // _LINE) * _LINE
        room = torch.zeros(trials * size + _LINE)
        flat = room[-room.data_ptr() // 4 % _LINE :][: trials * size].view(trials, size)
        for name, row in zip(names, self.layers.tolist(), strict=True):
            inputs, outputs, wide, first, bias = row
            weights = flat[:, first : first + inputs * wide].view(trials, inputs, wide)
            views = {"weight": weights[:, :, :outputs].mT, "bias": flat[:, bias : bias + outputs]}
            for kind, view in views.items():
                before = parameters[f"{name}.{kind}"]
                view.copy_(before.detach())
                parameters[f"{name}.{kind}"] = view.requires_grad_(before.requires_grad)
        self.flat: NDArray[np.float32] = flat.detach().numpy()
        """[S, P]."""


def difference(functions: Kernel, kind: torch.dtype, *, sparse: bool) -> float:
    """How far two steps in the kernel are from the same steps by autograd in float64."""
    from remask.engine import kernel, passes

    random = torch.Generator().manual_seed(0)
    inputs, hidden, classes, batch, steps = 77, 40, 5, 7, 2
    samples = torch.rand((20, inputs), generator=random)
    samples = (samples * (samples < (0.3 if sparse else 1)) * 255).to(kind)
    labels = torch.randint(3, (20,), generator=random)
    stored = torch.randn((20, classes), generator=random)
    shapes = {"0.weight": (1, hidden, inputs), "0.bias": (1, hidden)}
    shapes |= {"1.weight": (1, classes, hidden), "1.bias": (1, classes)}
    parameters = {name: torch.randn(own, generator=random) / 6 for name, own in shapes.items()}
    exact = {name: own[0].double().requires_grad_() for name, own in parameters.items()}
    layout = Layout(parameters, ["0", "1"])
    net = passes.Net(layout.flat[0], layout.layers)
    places, draws = torch.randint(20, (2, steps, batch), generator=random)
    active = torch.tensor([[True, True, True, False, False], [True] * 5])
    losses, logits = np.zeros((steps, 2), np.float32), np.zeros((20, classes), np.float32)
    decoding = kernel.Decoding(
        np.full(inputs, 1 / 255, np.float32), np.zeros(inputs, np.float32), sparse
    )
    functions.run_steps(
        net,
        kernel.Teacher(passes.Net(layout.flat[0, :0], layout.layers), np.zeros(0, np.float32)),
        kernel.Samples(samples.numpy(), labels.numpy(), logits[:0]),
        kernel.Samples(samples.numpy(), labels.numpy(), stored.numpy()),
        decoding,
        kernel.Plan(
            *(places.numpy(), draws.numpy(), np.full((steps, batch), -1)), np.arange(1, 3) * batch
        ),
        kernel.Terms(
            np.array([kernel.CROSS_ENTROPY, kernel.STORED]),
            np.arange(2),
            -1,
            np.full((steps, 2), 0.5, np.float32),
            active[None].numpy(),
            torch.where(active, 0.0, -1.0)[None].numpy(),
        ),
        np.float32(0.1),
        losses,
    )
    functions.compute_logits(net, samples.numpy(), np.arange(20), decoding, logits)

    def forward(rows: Tensor) -> Tensor:
        outputs = F.linear(rows.double() / 255, exact["0.weight"], exact["0.bias"]).relu()
        return F.linear(outputs, exact["1.weight"], exact["1.bias"])

    apart: list[float] = []
    for step in range(steps):
        seen = torch.where(active[0], forward(samples[places[step]]), -1.0)
        terms = [
            F.cross_entropy(seen, labels[places[step]]) / 2,
            F.mse_loss(forward(samples[draws[step]]), stored[draws[step]].double()) / 2,
        ]
        apart += [abs(own.item() - value) for own, value in zip(terms, losses[step], strict=True)]
        slopes = torch.autograd.grad(torch.stack(terms).sum(), [*exact.values()])
        for parameter, slope in zip(exact.values(), slopes, strict=True):
            parameter.data -= 0.1 * slope
    apart += [(parameters[name][0] - own).abs().max().item() for name, own in exact.items()]
    return max(*apart, (torch.from_numpy(logits) - forward(samples)).abs().max().item())
