"""Compiles the kernel, checks it, and lays parameters out for it."""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

CROSS_ENTROPY, STORED, TAUGHT = range(3)
"""Kinds of terms: masked cross-entropy, and distance to stored logits or to those of a teacher."""


class Net(NamedTuple):
    """The parameters of one net."""

    flat: Any
    """Weights [inputs, outputs] and biases of all layers, rows padded to vectors: float32 [P]."""
    layers: Any
    """Inputs, outputs, padded outputs, and the places of weights and biases: int64 [L, 5]."""


class Teacher(NamedTuple):
    """A copy of the net that moves towards it after every step."""

    net: Any
    """No parameters: there is none."""
    shares: Any
    """How far it moves: float32 [steps]."""


class Samples(NamedTuple):
    """Inputs with their labels; the memory is such samples too."""

    inputs: Any
    """uint8 or float32 [N, D]."""
    labels: Any
    """int64 [N]."""
    logits: Any
    """Those stored in memory, float32 [N, K]; empty if none are."""


class Decoding(NamedTuple):
    """What the net receives: inputs * scale + shift."""

    scale: Any
    """float32 [D]."""
    shift: Any
    """float32 [D]."""
    sparse: bool
    """Whether to skip zeros, which needs bytes, one scale, no shift, and at most 65,535 rows."""


class Plan(NamedTuple):
    """The samples of each step."""

    places: Any
    """Those of the stream: int64 [steps, B]."""
    draws: Any
    """Slots of the memory, those of all draws one after the other: int64 [steps, D * R], or one row
    for all steps."""
    slots: Any
    """The slot that each sample of the stream takes afterwards, or -1: int64 [steps, B]."""
    ends: Any
    """Where the stream and each draw end in the samples of a step: int64 [1 + D]."""


class Constraint(NamedTuple):
    """How the gradients of the draws change that of the stream; see `methods.gem.solve`."""

    least: float
    ridge: float
    """Negative: draws are replayed instead."""


class Terms(NamedTuple):
    """The terms of the loss; those with P = 1 are the same in all steps."""

    kind: Any
    """int64 [T]."""
    batch: Any
    """0: the stream; n: the n-th draw. int64 [T]."""
    stored_as: int
    """The term with whose mask the stream's logits are stored; -1: as they are."""
    weight: Any
    """float32 [steps, T]."""
    active: Any
    """Which classes are not masked: bool [P, T, K]."""
    adjusted: Any
    """What is added to the logit of an active class, or the value of another: float32 [P, T, K]."""


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
    from remask.methods import gem

    # The cache sees no changes in other files, and none in a file of the same date and size.
    files = [__file__, *(str(own.__file__) for own in (emitter, gem, kernel, passes, vectors))]
    digest = hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()
    functions = kernel.run_steps, kernel.compute_logits
    for function in functions:
        function.__qualname__ = f"{function.__name__}_{digest[:12]}"
    for cached in (True, False):
        try:
            run = Kernel(*(njit(cache=cached, **passes.OPTIONS)(own) for own in functions))
            apart = max(
                difference(run, inputs, sparse=sparse) for sparse in {False, inputs == torch.uint8}
            )
        except (OSError, RuntimeError):  # no folder for the cache, or no space in it
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
        """See `Net`."""
        trials, size = shapes[0][0], -(-size // _LINE) * _LINE
        memory = torch.zeros(trials * size + _LINE)
        flat = memory[-memory.data_ptr() // 4 % _LINE :][: trials * size].view(trials, size)
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
    random = torch.Generator().manual_seed(0)
    inputs, hidden, classes, batch, steps = 77, 40, 5, 7, 2
    samples = torch.rand((20, inputs), generator=random)
    samples = (samples * (samples < (0.3 if sparse else 1)) * 255).to(kind)
    labels = torch.randint(3, (20,), generator=random)
    stored = torch.randn((20, classes), generator=random)
    places, draws = torch.randint(20, (2, steps, batch), generator=random)
    active = torch.tensor([[True, True, True, False, False], [True] * 5])
    shapes = {"0.weight": (hidden, inputs), "0.bias": (hidden,)}
    shapes |= {"2.weight": (classes, hidden), "2.bias": (classes,)}
    parameters = {n: torch.randn((1, *own), generator=random) / 6 for n, own in shapes.items()}
    exact = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes)).double()
    exact.load_state_dict({name: own[0] for name, own in parameters.items()})
    layout = Layout(parameters, ["0", "2"])
    net = Net(layout.flat[0], layout.layers)
    scale = np.full(inputs, 1 / 255, np.float32)
    decoding = Decoding(scale, np.zeros_like(scale), sparse)
    losses, logits = np.zeros((steps, 2), np.float32), np.zeros((20, classes), np.float32)
    functions.run_steps(
        net,
        Teacher(Net(layout.flat[0, :0], layout.layers), np.zeros(0, np.float32)),
        Samples(samples.numpy(), labels.numpy(), logits[:0]),
        Samples(samples.numpy(), labels.numpy(), stored.numpy()),
        decoding,
        Plan(places.numpy(), draws.numpy(), np.full((steps, batch), -1), np.arange(1, 3) * batch),
        Terms(
            np.array([CROSS_ENTROPY, STORED]),
            np.arange(2),
            -1,
            np.full((steps, 2), 0.5, np.float32),
            active[None].numpy(),
            torch.where(active, 0.0, -1.0)[None].numpy(),
        ),
        Constraint(0.0, -1.0),
        np.float32(0.1),
        losses,
    )
    functions.compute_logits(net, samples.numpy(), np.arange(20), decoding, logits)
    apart: list[float] = []
    for step in range(steps):
        stream, replay = (exact(samples[own[step]].double() / 255) for own in (places, draws))
        terms = [
            F.cross_entropy(torch.where(active[0], stream, -1.0), labels[places[step]]) / 2,
            F.mse_loss(replay, stored[draws[step]].double()) / 2,
        ]
        apart += [abs(own.item() - value) for own, value in zip(terms, losses[step], strict=True)]
        slopes = torch.autograd.grad(terms[0] + terms[1], [*exact.parameters()])
        with torch.no_grad():  # torch.optim takes a second to import
            for parameter, slope in zip(exact.parameters(), slopes, strict=True):
                parameter.sub_(slope, alpha=0.1)
    apart += [(parameters[n][0] - own).abs().max().item() for n, own in exact.named_parameters()]
    apart.append((torch.from_numpy(logits) - exact(samples.double() / 255)).abs().max().item())
    return max(apart)
