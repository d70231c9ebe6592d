"""Capturing: what a step computes, compiled by torch.compile; on CUDA, as a CUDA graph.

Only steps of the usual sizes are captured. Others (the first one, those that fill the memory, the
last batch of a task) are few, and compiling each of their sizes would take longer than they do.
Whether a step is captured depends on its sizes alone, so a resumed run captures the same steps.
"""

import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

from remask.datasets import cache_folder
from remask.errors import RemaskError

P = ParamSpec("P")
R = TypeVar("R")
BACKEND: str | Callable[..., Any] = "inductor"
"""Which of torch's compilers to use; tests take one that is done sooner."""
_OF_THE_COMPILER = ("torch._dynamo.", "torch._inductor.", "torch._functorch.")


class CaptureError(RemaskError):
    """A step that cannot be captured here; the message says why."""


class Captured(Generic[P, R]):
    """A function of tensors, compiled when it is first called.

    `name` is what messages call it. `channels_last` is whether convolutions on a CPU may run so.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str,
        device: torch.device,
        channels_last: bool = False,
    ) -> None:
        options: dict[str, Any] | None = None
        if BACKEND == "inductor":
            check_compiler(device)
            # torch loads what it compiled before. Its own choice is a folder that is open to all.
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
            options = {
                "fallback_random": True,  # dropout draws the numbers that it draws uncaptured
                "compile_threads": 1,  # as many processes as the user asked for, and no more
                "layout_optimization": channels_last or device.type != "cpu",
                "triton.cudagraphs": device.type == "cuda",
            }
        self._function, self._name = function, name

        def own(*given: P.args, **named: P.kwargs) -> R:
            return function(*given, **named)

        # torch keeps what it compiled, and counts how often it did, by code: have some for each
        # stack, or after eight of them nothing more would be compiled in this process.
        own.__code__ = own.__code__.replace()
        # It looks at `grad` of a trial's weights, which are a part of the stack's.
        warnings.filterwarnings("ignore", "The .grad attribute", UserWarning, r"torch\.")
        self._compiled = torch.compile(own, dynamic=False, backend=BACKEND, options=options)

    def __call__(self, *given: P.args, **named: P.kwargs) -> R:
        """Call it; raises CaptureError if only the function itself can be called."""
        with explained(self._name, lambda: self._function(*given, **named)):
            return self._compiled(*given, **named)


@contextmanager
def explained(name: str, plain: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Say in plain words that compiling failed; what `plain` raises goes before it."""
    try:
        yield
    except Exception as error:
        of_compiler = type(error).__module__.startswith(_OF_THE_COMPILER)
        if not (of_compiler or "aot_autograd" in str(error)):  # a gradient of a gradient, say
            raise
        plain()
        raise CaptureError(
            f"{name} runs, but torch.compile fails on it ({_reason(error)}): run it without "
            f"--compile (in Python, without compile=True)"
        ) from error


def _reason(error: BaseException) -> str:
    """The first line of what went wrong, without all that torch adds to it."""
    cause = getattr(error, "inner_exception", error)
    return next((line.strip() for line in str(cause).splitlines() if line.strip()), repr(cause))


def check_compiler(device: torch.device | str) -> None:
    """Refuse to compile for a CPU without a C++ compiler; raises CaptureError."""
    if torch.device(device).type != "cpu":
        return  # torch's own compiler for the device says what it lacks
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    compiler = os.environ.get("CXX") or usual
    if shutil.which(compiler) is None:
        raise CaptureError(
            f"--compile (in Python, compile=True) needs a C++ compiler, and {compiler!r} is not on "
            f"PATH: install one, name it in the environment variable CXX, or do without --compile"
        )


def kept(outputs: Tensor) -> Tensor:
    """What a captured function returned, for longer than until its next call.

    A CUDA graph writes its outputs into the same memory each time.
    """
    return outputs.clone() if outputs.is_cuda else outputs
