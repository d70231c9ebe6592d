"""Whether this process is the command line's own, and what follows from it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remask.runs.options import RunOptions

_ours_alone = False


def declare_ours_alone() -> None:
    """Say that nothing but the command line runs in this process."""
    global _ours_alone
    _ours_alone = True


def prepare_workers(options: "RunOptions") -> None:
    """Have torch loaded once for this process and all its workers, if there will be several.

    To be called before anything else that takes time: it forks, and a fork must find no threads, no
    open store and none of the user's code.
    """
    if _ours_alone and options.on is None and options.processes > 1:
        from remask.runs.forking import start_fork_server  # torch: not before it is needed

        start_fork_server()
