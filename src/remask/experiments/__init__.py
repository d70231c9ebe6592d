"""Experiments: trials run durably and what they show, each of it in one call."""

from remask.experiments.calls import report, reproduce, resume, run, sweep
from remask.experiments.comparing import Compared, Reproduction
from remask.experiments.doctor import Symptom, examine
from remask.experiments.learners import learner_now, learnt_visits, write_learner_history
from remask.experiments.pages import Written, check_trials, watch, write_report
from remask.experiments.plans import Plan, PlannedCell, plan_trials
from remask.experiments.reproducing import cell_configs, configs_of, run_cells, wanted_cells
from remask.experiments.rerun import rerun_command
from remask.experiments.results import Results, demo_configs, resume_run, run_trials
from remask.runs import download_bar, runs_to_resume

__all__ = [
    "Compared",
    "Plan",
    "PlannedCell",
    "Reproduction",
    "Results",
    "Symptom",
    "Written",
    "cell_configs",
    "check_trials",
    "configs_of",
    "demo_configs",
    "download_bar",
    "examine",
    "learner_now",
    "learnt_visits",
    "plan_trials",
    "report",
    "reproduce",
    "rerun_command",
    "resume",
    "resume_run",
    "run",
    "run_cells",
    "run_trials",
    "runs_to_resume",
    "sweep",
    "wanted_cells",
    "watch",
    "write_learner_history",
    "write_report",
]
