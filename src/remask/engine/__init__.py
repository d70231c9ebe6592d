"""The engine: stacks of trials, trained step by step and evaluated after every task."""

from remask.data.tasks import DataDescription, StreamError
from remask.engine.saved_nets import SavedNet, SavedNetError, load_net, read_saved_net, save_net
from remask.engine.stream import Position
from remask.engine.trials import TrialStack
from remask.engine.validation import ContradictionError

__all__ = [
    "ContradictionError",
    "DataDescription",
    "Position",
    "SavedNet",
    "SavedNetError",
    "StreamError",
    "TrialStack",
    "load_net",
    "read_saved_net",
    "save_net",
]
