"""Asking: from what a user asks for, in Python, on the command line or in a file, to configs."""

from remask.asking.combinations import (
    check_trusted,
    configs_from,
    read_config,
    read_weight,
    settings,
    several,
)
from remask.asking.defaults import changed_settings, trial_configs
from remask.asking.grids import grid_configs
from remask.errors import SettingsError

__all__ = [
    "SettingsError",
    "changed_settings",
    "check_trusted",
    "configs_from",
    "grid_configs",
    "read_config",
    "read_weight",
    "settings",
    "several",
    "trial_configs",
]
