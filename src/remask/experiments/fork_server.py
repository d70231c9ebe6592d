"""The process that workers are forked from. Importing this module loads no torch.

Loading torch takes longer than a short job. So workers are forked from a server process that has
loaded it, and has no threads, no open files and none of the user's code.
"""

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from types import ModuleType

CONTEXT = multiprocessing.get_context("forkserver")


def start_fork_server() -> None:
    """Start the server unless it runs; it loads torch while this process continues."""
    CONTEXT.set_forkserver_preload(["remask.experiments.preload"])
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"  # any module may be in the current folder
    try:
        with without_main_module():
            forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONSAFEPATH")
        if before is not None:
            os.environ["PYTHONSAFEPATH"] = before


@contextmanager
def without_main_module() -> Iterator[None]:
    """Keep new processes from importing the user's script, which would run it again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
