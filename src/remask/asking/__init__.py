"""Asking: from what a user asks for, in Python, on the command line or in a file, to configs."""

from remask.asking.combinations import (
    check_trusted,
    configs_from,
    read_config,
    read_weight,
    several,
)
from remask.asking.grids import grid_configs
from remask.asking.settings import SettingsError, changed_settings, trial_configs

__all__ = [
    "SettingsError",
    "changed_settings",
    "check_trusted",
    "configs_from",
    "grid_configs",
    "read_config",
    "read_weight",
    "several",
    "trial_configs",
]
