"""Divergence: when a trial's loss is no longer a number."""

import torch
from torch import Tensor

_STEPS_BETWEEN_LOOKS = 100


class Divergence:
    """Notes the first step at which each trial's loss was not a number.

    Its neighbours go on: nothing of theirs is computed from its numbers. Looking at a loss waits
    for the device, so many steps are looked at together.
    """

    def __init__(self, trials: int) -> None:
        self.first_steps = torch.full((trials,), -1, dtype=torch.int64)
        """Counted from 0; -1 if its loss has always been a number. int64 [S]."""
        self._losses: list[Tensor] = []  # [S] each, of the latest steps

    def note(self, loss: Tensor) -> bool:
        """Note the losses [S] of a step; returns whether it is time to `look`."""
        self._losses.append(loss)
        return len(self._losses) == _STEPS_BETWEEN_LOOKS

    def look(self, steps_done: int) -> None:
        """Look at the losses of all steps since the last look."""
        if not self._losses:
            return
        broken = ~torch.stack(self._losses).isfinite().cpu()  # [steps, S]
        first_step = steps_done - len(self._losses)
        found = broken.any(0) & (self.first_steps < 0)
        self.first_steps[found] = first_step + broken.int().argmax(0)[found]
        self._losses.clear()
