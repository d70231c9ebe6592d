"""What a stack of trials is made of."""

from dataclasses import dataclass

from remask.engine.choosing import Choosing
from remask.engine.descent import Descent
from remask.engine.feed import Feed
from remask.engine.loss_log import LossLog
from remask.engine.measurements import Measurements
from remask.engine.stream import Stream
from remask.methods import Method
from remask.nets import StackedNet


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a stack, made by `TrialStack`."""

    net: StackedNet
    """The networks: one per trial, or one per candidate of a trial."""
    stream: Stream
    """What is learnt, and where the stack stands in it."""
    feed: Feed
    """Makes the batches of each step, and fills the memory."""
    method: Method
    """Says the loss, and what happens around steps and tasks; sees the rest as its `engine`."""
    descent: Descent
    """Follows the loss."""
    choosing: Choosing | None
    """Compares the candidates of the trials; None if they have none."""
    log: LossLog | None
    """Gathers losses; None if nobody wants them."""
    measured: Measurements
    """What the trials have shown."""
