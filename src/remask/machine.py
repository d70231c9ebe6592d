"""The machine and this process: memory, versions of the code, and requests to stop."""

import ctypes
import errno
import os
import platform
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, Self

from remask.errors import RemaskError, SettingsError

_NO_MEMORY = ("not enough memory", "can't allocate memory", "out of memory", "Unable to allocate")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as <malloc.h> numbers them
_KEPT, _LARGEST_KEPT = 256 << 20, 128 << 20
_GROUPS = Path("/sys/fs/cgroup")


class TooLargeError(RemaskError):
    """Not enough memory; the message has the sizes."""


def lacks_memory(error: BaseException) -> bool:
    """Whether Python, torch or the system raised this because memory ran out."""
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY)


def write_bytes(size: float) -> str:
    """Format a size, such as `1.5 GB`."""
    for unit, length in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= length:
            return f"{size / length:,.{0 if size >= 10 * length else 1}f} {unit}"
    return f"{size / 1e3:,.0f} kB"


def write_duration(seconds: float) -> str:
    """Format a time, such as `5 min`."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"


def free_memory() -> int | None:
    """Bytes that are free on the machine and in its control group; None: unknown."""
    sizes = _table(Path("/proc/meminfo"))
    found = [*_free_in_groups()]
    if "MemAvailable:" in sizes:
        found.append((sizes["MemAvailable:"] + sizes.get("SwapFree:", 0)) * 1024)
    return min(found, default=None)


def check_device(name: str) -> None:
    """Raise SettingsError for a device that torch cannot use."""
    import torch  # takes seconds: not before it is needed

    try:
        torch.ones(1, device=name).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise SettingsError(f"the device {name!r} cannot be used: {reason}") from None


def keep_freed_memory() -> None:
    """Let this process keep up to 256 MB of freed memory for reuse, if it has glibc.

    Otherwise glibc returns the memory of large tensors to the system, which clears every page
    when the next step allocates it: up to a third of the time of a step.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
            mallopt(_TRIM_THRESHOLD, _KEPT)


def fork() -> int:
    """As `os.fork`, without Python's warning of other threads: those of OpenBLAS are harmless."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def require_room(size: int, purpose: str) -> None:
    """Raise TooLargeError if `size` bytes cannot be allocated."""
    free = free_memory()
    if free is not None and size > free:
        raise TooLargeError(
            f"{purpose} takes {write_bytes(size)} of memory, and {write_bytes(max(free, 0))} are "
            f"free"
        )


def _free_in_groups() -> Iterator[int]:
    """Yield what is free in each control group of the process."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        group = _GROUPS / next(line[4:] for line in lines if line.startswith("0::/"))
    except (OSError, StopIteration):
        return
    for folder in (group, *group.parents):
        if (free := _free_in_group(folder)) is not None:
            yield free


def _free_in_group(folder: Path) -> int | None:
    try:
        limit = int((folder / "memory.max").read_text())
        used = int((folder / "memory.current").read_text())
    except (OSError, ValueError):  # not visible here, or "max": no limit
        return None
    return limit - used + _table(folder / "memory.stat").get("inactive_file", 0)


def _table(path: Path) -> dict[str, int]:
    """Read a system file that has a name and a number in each line."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}


@cache
def provenance() -> dict[str, Any]:
    """The `versions`, `commit` and `machine` of this process, as a record stores them."""
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("remask", "torch", "numpy")},
            **({"numba": version("numba")} if find_spec("numba") else {}),
        },
        "commit": _commit(),
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "processor": _processor(),
            "cores": os.cpu_count() or 1,
        },
    }


def _commit() -> str | None:
    """The commit of remask's own source if it runs from a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None  # installed: a repository further up is not remask's
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


class StopRequest:
    """While entered, notes a first SIGINT, SIGTERM or SIGHUP in `signal` instead of obeying it.

    A running job looks at `signal` between steps, saves, and ends. Signals reach the main thread
    only: in any other thread none is noted.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> Self:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return self
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
            numbers.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            os._exit(128 + number)  # asked twice: at once, without saving
        self.signal = number
