"""Launching: stacks of trials on this machine, in one process or several, stoppable at any time."""

from remask.runs.agenda import jobs_left
from remask.runs.estimate import estimate_seconds
from remask.runs.events import Event, Failed, Finished, Note, PickedUp, Progress
from remask.runs.execute import Options, benchmark_of, check_device
from remask.runs.jobs import Job, plan_jobs
from remask.runs.nets import net_path, without_net
from remask.runs.plans import Run, RunError, runs_folder, unfinished_runs
from remask.runs.room import Room, check_room
from remask.runs.runs import continue_run, plan_run
from remask.runs.signals import StopRequest

__all__ = [
    "Event",
    "Failed",
    "Finished",
    "Job",
    "Note",
    "Options",
    "PickedUp",
    "Progress",
    "Room",
    "Run",
    "RunError",
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
