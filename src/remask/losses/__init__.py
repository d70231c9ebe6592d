"""The general masked softmax and the losses built on it.

For a sample whose active classes are the set A, the logits outside A are replaced by a constant m::

    z'_c = z_c  if c in A,  else m        with m in [-inf, 0], a constant that receives no gradient
    loss = -log softmax(z')[y]            with y in A

The gradient is ``softmax(z')_c - 1[c = y]`` on A and exactly zero elsewhere. At m = -inf the masked
classes vanish; at a finite m they stay as K - |A| fixed competitors that push the active logits up.
m > 0 has to be asked for, with ``allow_positive``: see docs/beyond.md.

Letters in shapes: S stacked trials, B batch, K classes (the last axis, unless ``dim`` is given), D
features.
"""

from remask.losses.arguments import Active
from remask.losses.linear import masked_linear_cross_entropy
from remask.losses.masked import (
    MaskedCrossEntropy,
    masked_binary_cross_entropy,
    masked_cross_entropy,
    masked_log_softmax,
    masked_softmax,
)
from remask.losses.trials import (
    Weight,
    cross_entropy_and_slope,
    logit_mse,
    mse_and_slope,
    trial_cross_entropy,
)

__all__ = [
    "Active",
    "MaskedCrossEntropy",
    "Weight",
    "cross_entropy_and_slope",
    "logit_mse",
    "masked_binary_cross_entropy",
    "masked_cross_entropy",
    "masked_linear_cross_entropy",
    "masked_log_softmax",
    "masked_softmax",
    "mse_and_slope",
    "trial_cross_entropy",
]
