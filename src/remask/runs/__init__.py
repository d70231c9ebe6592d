"""Launching: stacks of trials on this machine, in one process or several, stoppable at any time."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remask.runs.agenda import jobs_left
    from remask.runs.estimate import estimate_seconds
    from remask.runs.events import Event, Failed, Finished, Note, PickedUp, Progress
    from remask.runs.execute import benchmark_of, check_device
    from remask.runs.jobs import Job, plan_jobs
    from remask.runs.nets import net_path, without_net
    from remask.runs.options import RunOptions
    from remask.runs.plans import Run, RunError, runs_folder, unfinished_runs
    from remask.runs.room import Room, check_room
    from remask.runs.runs import continue_run, plan_run
    from remask.runs.signals import StopRequest

_HOME = {
    "Event": "events",
    "Failed": "events",
    "Finished": "events",
    "Job": "jobs",
    "Note": "events",
    "PickedUp": "events",
    "Progress": "events",
    "Room": "room",
    "Run": "plans",
    "RunError": "plans",
    "RunOptions": "options",
    "StopRequest": "signals",
    "benchmark_of": "execute",
    "check_device": "execute",
    "check_room": "room",
    "continue_run": "runs",
    "estimate_seconds": "estimate",
    "jobs_left": "agenda",
    "net_path": "nets",
    "plan_jobs": "jobs",
    "plan_run": "runs",
    "runs_folder": "plans",
    "unfinished_runs": "plans",
    "without_net": "nets",
}

__all__ = [
    "Event",
    "Failed",
    "Finished",
    "Job",
    "Note",
    "PickedUp",
    "Progress",
    "Room",
    "Run",
    "RunError",
    "RunOptions",
    "StopRequest",
    "benchmark_of",
    "check_device",
    "check_room",
    "continue_run",
    "estimate_seconds",
    "jobs_left",
    "net_path",
    "plan_jobs",
    "plan_run",
    "runs_folder",
    "unfinished_runs",
    "without_net",
]


def __getattr__(name: str) -> Any:
    # The command line reads the fields of RunOptions for its options, and shall not wait for torch.
    if name in _HOME:
        return getattr(import_module(f"remask.runs.{_HOME[name]}"), name)
    raise AttributeError(f"module 'remask.runs' has no attribute {name!r}")
