"""The process that workers are forked from. Importing this module loads no torch.

Loading torch takes longer than a short job. So workers are forked from a server process that has
loaded it, and has no threads, no open files and none of the user's code.
"""

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from types import ModuleType

CONTEXT = multiprocessing.get_context("forkserver")
_MARK = "REMASK_FORK_SERVER"


def start_fork_server() -> None:
    """Start the server unless it runs; it loads torch while this process continues."""
    CONTEXT.set_forkserver_preload(["remask.experiments.executors"])
    chosen = {_MARK: "1", "PYTHONSAFEPATH": "1"}  # any module may be in the current folder
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    try:
        with without_main_module():
            forkserver.ensure_running()
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def prepare_fork_server() -> None:
    """Protect the fork server from the terminal; does nothing in any other process."""
    if os.environ.pop(_MARK, None) is None:
        return
    # In a session of its own, Ctrl-C and the end of the terminal reach the parent only. A SIGTERM
    # to all processes of a service must not end the server: it reports how workers ended.
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()  # collections would write to the pages that workers share


@contextmanager
def without_main_module() -> Iterator[None]:
    """Keep new processes from importing the user's script, which would run it again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
