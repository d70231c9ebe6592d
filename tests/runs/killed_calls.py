"""Kill a process at a chosen system call that changes files, whichever library makes the call.

The parent traces a forked child with ptrace, counts the calls, and sends SIGKILL before the chosen
one is executed. Unlike `FaultyDisk`, this reaches SQLite, filelock and safetensors too.
"""

import ctypes
import os
import platform
import signal
import sys
from collections.abc import Callable

CAN_TRACE = sys.platform == "linux" and platform.machine() == "x86_64"
_CHANGES = {
    1: "write", 18: "pwrite64", 20: "writev", 74: "fsync", 75: "fdatasync", 76: "truncate",
    77: "ftruncate", 82: "rename", 83: "mkdir", 84: "rmdir", 85: "creat", 86: "link", 87: "unlink",
    88: "symlink", 90: "chmod", 91: "fchmod", 257: "openat", 258: "mkdirat", 263: "unlinkat",
    264: "renameat", 285: "fallocate", 316: "renameat2",
}  # fmt: skip
_OPEN = 257
_O_CREAT = 0o100
_TRACEME, _SYSCALL, _SETOPTIONS, _SYSCALL_INFO = 0, 24, 0x4200, 0x420E
_MARK_CALLS, _KILL_WITH_PARENT = 1, 0x100000
_INFO_BYTES = 88


class _Info(ctypes.Structure):
    """The start of `struct ptrace_syscall_info`, at the entry of a call."""

    _fields_ = (
        ("op", ctypes.c_uint8),
        ("_", ctypes.c_uint8 * 23),
        ("number", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
    )


_ENTRY = 1


def kill_at(call: int | None, work: Callable[[], object]) -> int:
    """Do `work` in a forked process that is killed before its changing call number `call`.

    Returns how many such calls were made or reached; the process has ended on its own if there are
    no more than `call` of them. Raises AssertionError if the work fails without being killed.
    """
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    ptrace.restype = ctypes.c_long
    child = os.fork()
    if not child:
        try:
            ptrace(_TRACEME, 0, None, None)
            os.kill(os.getpid(), signal.SIGSTOP)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    ptrace(_SETOPTIONS, child, None, _MARK_CALLS | _KILL_WITH_PARENT)
    info, calls, pending = _Info(), 0, 0
    while True:
        ptrace(_SYSCALL, child, None, pending)
        _, status = os.waitpid(child, 0)
        if not os.WIFSTOPPED(status):
            assert os.waitstatus_to_exitcode(status) == 0, "the work failed"
            return calls
        pending = os.WSTOPSIG(status)
        if pending != signal.SIGTRAP | 0x80:
            continue
        pending = 0
        ptrace(_SYSCALL_INFO, child, _INFO_BYTES, ctypes.addressof(info))
        opens = info.number == _OPEN and not info.arguments[2] & _O_CREAT
        if info.op != _ENTRY or info.number not in _CHANGES or opens:
            continue
        if calls == call:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return calls + 1
        calls += 1
