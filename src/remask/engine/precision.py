"""Whether bfloat16 crashes the process.

Some virtual machines announce Intel's AMX instructions and then trap every use. torch believes the
announcement, so only a try in a child process shows it.
"""

import faulthandler
import functools
import os
import signal
import time
from pathlib import Path

import torch

from remask.errors import RemaskError
from remask.machine import fork

_LIMIT, _WITHOUT_AMX = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"
_LONGEST_TRY = 30.0  # seconds; it takes milliseconds


class PrecisionError(RemaskError):
    """The processor does not support the precision."""


@functools.cache
def require_bfloat16() -> None:
    """Disable AMX if it crashes, for layers on the CPU. Raises PrecisionError if it is too late."""
    if not _announces_amx() or _survives():
        return
    os.environ.setdefault(_LIMIT, _WITHOUT_AMX)  # read when torch's layers are first used
    if not _survives():
        raise PrecisionError(
            "bf16 crashes this process: the processor announces AMX instructions and refuses them. "
            f"Set {_LIMIT}={_WITHOUT_AMX} in the environment before Python starts, or use float32"
        )


def _announces_amx() -> bool:
    try:
        return "amx_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return False


def _survives() -> bool:
    """Whether a child of this process completes a small product in bfloat16."""
    child = fork()
    if child == 0:
        try:
            faulthandler.disable()  # suppress the crash dump
            torch.set_num_threads(1)  # the parent's other threads do not exist here
            ones = torch.ones(64, 64, dtype=torch.bfloat16)
            torch.mm(ones, ones)
        finally:
            os._exit(0)
    deadline = time.monotonic() + _LONGEST_TRY
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return not os.WIFSIGNALED(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False
