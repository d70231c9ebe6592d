"""Experiments: from settings to configs, runs, results and pages, each in one call."""

from typing import TYPE_CHECKING

from remask.lazy_names import lazy_names

if TYPE_CHECKING:
    from remask.experiments.calls import (
        report,
        reproduce,
        resume,
        resume_run,
        run,
        run_trials,
        sweep,
    )
    from remask.experiments.configs import configs_from, grid_configs, read_config, settings
    from remask.experiments.cost import cost_of, shortest_time, usual_stack
    from remask.experiments.data import benchmark_of
    from remask.experiments.defaults import changed_settings, rerun_command, trial_configs
    from remask.experiments.display import download_bar
    from remask.experiments.doctor import Symptom, examine
    from remask.experiments.events import Advanced, Event, Failed, Finished, Lost, Note, PickedUp
    from remask.experiments.executors import Executor, ThisProcess, WorkerProcesses
    from remask.experiments.jobs import (
        Job,
        Run,
        RunError,
        Work,
        plan_jobs,
        runs_folder,
        unfinished_runs,
    )
    from remask.experiments.options import RunOptions
    from remask.experiments.pages import (
        Written,
        check_trials,
        learner_now,
        learnt_visits,
        watch,
        write_learner_history,
        write_report,
    )
    from remask.experiments.plans import Plan, PlannedCell, plan_trials
    from remask.experiments.preparing import largest_stacks
    from remask.experiments.queue import JobQueue
    from remask.experiments.rates import Rates, rates_of, seconds_of
    from remask.experiments.ray_cluster import Ray
    from remask.experiments.reproducing import cell_configs, configs_of, demo_configs, wanted_cells
    from remask.experiments.results import Compared, Reproduction, Results
    from remask.experiments.running import (
        continue_run,
        executor_for,
        finish_run,
        plan_run,
        prepare_run,
        runs_to_resume,
    )
    from remask.experiments.signals import StopRequest
    from remask.experiments.train import check_device, net_path, run_job, without_net

_MODULES = {
    "calls": "report reproduce resume resume_run run run_trials sweep",
    "configs": "configs_from grid_configs read_config settings",
    "cost": "cost_of shortest_time usual_stack",
    "data": "benchmark_of",
    "defaults": "changed_settings rerun_command trial_configs",
    "display": "download_bar",
    "doctor": "Symptom examine",
    "events": "Advanced Event Failed Finished Lost Note PickedUp",
    "executors": "Executor ThisProcess WorkerProcesses",
    "jobs": "Job Run RunError Work plan_jobs runs_folder unfinished_runs",
    "options": "RunOptions",
    "pages": "Written check_trials learner_now learnt_visits watch write_learner_history "
    "write_report",
    "plans": "Plan PlannedCell plan_trials",
    "preparing": "largest_stacks",
    "queue": "JobQueue",
    "rates": "Rates rates_of seconds_of",
    "ray_cluster": "Ray",
    "reproducing": "cell_configs configs_of demo_configs wanted_cells",
    "results": "Compared Reproduction Results",
    "running": "continue_run executor_for finish_run plan_run prepare_run runs_to_resume",
    "signals": "StopRequest",
    "train": "check_device net_path run_job without_net",
}

__all__ = [
    "Advanced",
    "Compared",
    "Event",
    "Executor",
    "Failed",
    "Finished",
    "Job",
    "JobQueue",
    "Lost",
    "Note",
    "PickedUp",
    "Plan",
    "PlannedCell",
    "Rates",
    "Ray",
    "Reproduction",
    "Results",
    "Run",
    "RunError",
    "RunOptions",
    "StopRequest",
    "Symptom",
    "ThisProcess",
    "Work",
    "WorkerProcesses",
    "Written",
    "benchmark_of",
    "cell_configs",
    "changed_settings",
    "check_device",
    "check_trials",
    "configs_from",
    "configs_of",
    "continue_run",
    "cost_of",
    "demo_configs",
    "download_bar",
    "examine",
    "executor_for",
    "finish_run",
    "grid_configs",
    "largest_stacks",
    "learner_now",
    "learnt_visits",
    "net_path",
    "plan_jobs",
    "plan_run",
    "plan_trials",
    "prepare_run",
    "rates_of",
    "read_config",
    "report",
    "reproduce",
    "rerun_command",
    "resume",
    "resume_run",
    "run",
    "run_job",
    "run_trials",
    "runs_folder",
    "runs_to_resume",
    "seconds_of",
    "settings",
    "shortest_time",
    "sweep",
    "trial_configs",
    "unfinished_runs",
    "usual_stack",
    "wanted_cells",
    "watch",
    "without_net",
    "write_learner_history",
    "write_report",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
