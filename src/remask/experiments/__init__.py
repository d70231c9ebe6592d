"""Experiments: from settings to configs, runs, results and pages, each in one call."""

from typing import TYPE_CHECKING

from remask.lazy_names import lazy_names

if TYPE_CHECKING:
    from remask.experiments.calls import report, reproduce, resume, run, settings, sweep
    from remask.experiments.doctor import Symptom, examine
    from remask.experiments.executors import Executor, ThisProcess, WorkerProcesses
    from remask.experiments.job_queue import JobQueue
    from remask.experiments.options import RunOptions
    from remask.experiments.plans import Plan, PlannedCell, plan_trials
    from remask.experiments.ray_cluster import Ray
    from remask.experiments.reproduction import Reproduction
    from remask.experiments.results import Compared, Results

_MODULES = {
    "calls": "report reproduce resume run settings sweep",
    "doctor": "Symptom examine",
    "executors": "Executor ThisProcess WorkerProcesses",
    "job_queue": "JobQueue",
    "options": "RunOptions",
    "plans": "Plan PlannedCell plan_trials",
    "ray_cluster": "Ray",
    "reproduction": "Reproduction",
    "results": "Compared Results",
}

__all__ = [
    "Compared",
    "Executor",
    "JobQueue",
    "Plan",
    "PlannedCell",
    "Ray",
    "Reproduction",
    "Results",
    "RunOptions",
    "Symptom",
    "ThisProcess",
    "WorkerProcesses",
    "examine",
    "plan_trials",
    "report",
    "reproduce",
    "resume",
    "run",
    "settings",
    "sweep",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
