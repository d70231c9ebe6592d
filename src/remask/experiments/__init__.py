"""Experiments: from settings to configs, runs, results and pages, each in one call."""

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
from remask.experiments.defaults import changed_settings, rerun_command, trial_configs
from remask.experiments.doctor import Symptom, examine
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
from remask.experiments.reproducing import cell_configs, configs_of, demo_configs, wanted_cells
from remask.experiments.results import Compared, Reproduction, Results
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
    "changed_settings",
    "check_trials",
    "configs_from",
    "configs_of",
    "demo_configs",
    "download_bar",
    "examine",
    "grid_configs",
    "learner_now",
    "learnt_visits",
    "plan_trials",
    "read_config",
    "report",
    "reproduce",
    "rerun_command",
    "resume",
    "resume_run",
    "run",
    "run_trials",
    "runs_to_resume",
    "settings",
    "sweep",
    "trial_configs",
    "wanted_cells",
    "watch",
    "write_learner_history",
    "write_report",
]
