"""The nets of finished trials, saved by whichever process trained them."""

import re
from collections.abc import Sequence
from pathlib import Path

from remask.config import TrialConfig
from remask.durable import AnyPath
from remask.engine import TrialStack, save_net
from remask.results import config_hash

_DIGITS_OF_HASH = 12


def net_path(folder: AnyPath, config: TrialConfig) -> Path:
    """Where a trial's net is kept: this with .safetensors and with .json."""
    method = re.sub(r"[^\w.-]", ".", config.method)
    mask = "" if config.mask is None else f"_mask{config.mask:g}"
    digits = config_hash(config)[:_DIGITS_OF_HASH]
    return Path(folder) / f"{method}{mask}_buffer{config.buffer}_seed{config.seed}_{digits}"


def save_nets(stack: TrialStack, folder: AnyPath) -> None:
    """Save the nets of a finished stack, but not of trials that diverged."""
    for trial, result in enumerate(stack.results()):
        if result.diverged_at is None:
            save_net(stack, trial, net_path(folder, result.config))


def without_net(folder: AnyPath, configs: Sequence[TrialConfig]) -> list[TrialConfig]:
    """Those of the trials that have no net in a folder."""
    return [c for c in configs if not Path(f"{net_path(folder, c)}.json").exists()]
