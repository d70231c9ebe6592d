"""Planning: from what a user asks for, in Python, on the command line or in a file, to configs."""

from remask.errors import SettingsError
from remask.planning.combinations import (
    check_trusted,
    configs_from,
    read_config,
    read_weight,
    settings,
    several,
)
from remask.planning.defaults import changed_settings, trial_configs
from remask.planning.grids import grid_configs

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
