"""Planning: from what a user asks for, in Python, on the command line or in a file, to configs."""

from remask.errors import SettingsError
from remask.planning.combinations import configs_from, settings, several
from remask.planning.defaults import changed_settings, trial_configs
from remask.planning.files import check_trusted, read_config
from remask.planning.grids import grid_configs

__all__ = [
    "SettingsError",
    "changed_settings",
    "check_trusted",
    "configs_from",
    "grid_configs",
    "read_config",
    "settings",
    "several",
    "trial_configs",
]
