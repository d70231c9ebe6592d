"""The command that runs a cell again."""

import shlex
from collections.abc import Sequence
from typing import Any

from remask.config import TrialConfig
from remask.methods import METHODS
from remask.planning import changed_settings


def rerun_command(config: TrialConfig, seeds: Sequence[int]) -> str:
    """The `remask run` that makes the trials of a cell anew, from its first seed on."""
    first = min(seeds, default=0)
    words = [
        *("remask", "run", "--benchmark", config.benchmark, "--method", config.method),
        *_mask(config),
        *(["--buffer", str(config.buffer)] if config.buffer else []),
        *("--trials", str(len(seeds)), *(["--seed", str(first)] if first else [])),
        *(word for setting in changed_settings(config).items() for word in _option(*setting)),
        "--again",
    ]
    return shlex.join(words)


def _mask(config: TrialConfig) -> list[str]:
    if config.mask is not None:
        return [f"--mask={config.mask}".removesuffix(".0")]
    # What a method of the user's own usually wears is not known without importing it.
    known = METHODS.get(config.method)
    return [] if known is not None and known.usual_mask is None else ["--mask=none"]


def _option(name: str, value: Any) -> list[str]:
    if name == "weights":
        return [word for own, number in value.items() for word in ("--weight", f"{own}={number}")]
    option = f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    if isinstance(value, list):
        return [option, ",".join(map(str, value))]
    return [] if value is None else [option, str(value)]
