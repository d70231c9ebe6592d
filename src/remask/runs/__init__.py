"""Runs: trials from the plan to the store, trained here or elsewhere, stoppable at any time."""

from typing import TYPE_CHECKING

from remask.lazy_names import lazy_names

if TYPE_CHECKING:
    from remask.runs.cost import cost_of, shortest_time, usual_stack
    from remask.runs.data import benchmark_of
    from remask.runs.display import download_bar
    from remask.runs.events import Advanced, Event, Failed, Finished, Lost, Note, PickedUp
    from remask.runs.executors import Executor, ThisProcess, WorkerProcesses
    from remask.runs.jobs import Job, Run, RunError, Work, plan_jobs, runs_folder, unfinished_runs
    from remask.runs.options import RunOptions
    from remask.runs.preparing import largest_stacks
    from remask.runs.queue import JobQueue
    from remask.runs.rates import Rates, rates_of, seconds_of
    from remask.runs.ray_cluster import Ray
    from remask.runs.running import (
        continue_run,
        executor_for,
        finish_run,
        plan_run,
        prepare_run,
        runs_to_resume,
    )
    from remask.runs.signals import StopRequest
    from remask.runs.train import check_device, net_path, run_job, without_net

_MODULES = {
    "cost": "cost_of shortest_time usual_stack",
    "data": "benchmark_of",
    "display": "download_bar",
    "events": "Advanced Event Failed Finished Lost Note PickedUp",
    "executors": "Executor ThisProcess WorkerProcesses",
    "jobs": "Job Run RunError Work plan_jobs runs_folder unfinished_runs",
    "options": "RunOptions",
    "preparing": "largest_stacks",
    "queue": "JobQueue",
    "rates": "Rates rates_of seconds_of",
    "ray_cluster": "Ray",
    "running": "continue_run executor_for finish_run plan_run prepare_run runs_to_resume",
    "signals": "StopRequest",
    "train": "check_device net_path run_job without_net",
}
__all__ = [
    "Advanced",
    "Event",
    "Executor",
    "Failed",
    "Finished",
    "Job",
    "JobQueue",
    "Lost",
    "Note",
    "PickedUp",
    "Rates",
    "Ray",
    "Run",
    "RunError",
    "RunOptions",
    "StopRequest",
    "ThisProcess",
    "Work",
    "WorkerProcesses",
    "benchmark_of",
    "check_device",
    "continue_run",
    "cost_of",
    "download_bar",
    "executor_for",
    "finish_run",
    "largest_stacks",
    "net_path",
    "plan_jobs",
    "plan_run",
    "prepare_run",
    "rates_of",
    "run_job",
    "runs_folder",
    "runs_to_resume",
    "seconds_of",
    "shortest_time",
    "unfinished_runs",
    "usual_stack",
    "without_net",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
