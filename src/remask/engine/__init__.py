"""The engine: stacks of trials, trained step by step and evaluated after every task."""

from remask.engine.agreement import ContradictionError, check_config
from remask.engine.stacked_net import StackedNet
from remask.engine.stacking import preferred_stack, stack_nets
from remask.engine.trials import Position, TrialResult, TrialStack

__all__ = [
    "ContradictionError",
    "Position",
    "StackedNet",
    "TrialResult",
    "TrialStack",
    "check_config",
    "preferred_stack",
    "stack_nets",
]
