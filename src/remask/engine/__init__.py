"""The engine: stacks of trials, trained step by step and evaluated after every task."""

from remask.data.samples import DataDescription, StreamError
from remask.engine.predictors import check_predictor
from remask.engine.saved_nets import (
    SavedNet,
    SavedNetError,
    load_net,
    read_saved_net,
    save_net,
)
from remask.engine.stacking import preferred_stack, stack_nets
from remask.engine.stream import Position
from remask.engine.trials import TrialStack
from remask.engine.validation import ContradictionError, check_config, check_method_settings
from remask.nets.stacked import StackedNet
from remask.record import TrialRecord

__all__ = [
    "ContradictionError",
    "DataDescription",
    "Position",
    "SavedNet",
    "SavedNetError",
    "StackedNet",
    "StreamError",
    "TrialRecord",
    "TrialStack",
    "check_config",
    "check_method_settings",
    "check_predictor",
    "load_net",
    "preferred_stack",
    "read_saved_net",
    "save_net",
    "stack_nets",
]
