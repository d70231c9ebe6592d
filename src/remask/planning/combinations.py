"""From what a user asks for, on the command line or in a file, to the configs of the trials."""

import itertools
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remask.config import INT64, TrialConfig, read_mask
from remask.durable import AnyPath, read_limited
from remask.errors import SettingsError
from remask.own_code import names_own_code
from remask.planning.defaults import trial_configs

MOST_TRIALS = 100_000
LISTS = (list, tuple, range)
"""What several values may be given as in Python; a file has lists alone."""
_LARGEST_CONFIG = 1_000_000


def configs_from(
    given: dict[str, Any], trusted: Sequence[str | None] | None = None
) -> list[TrialConfig]:
    """The trials of every combination of method, mask and buffer asked for.

    With `trusted`, only own code that one of these texts names may be imported.
    """
    benchmark = str(given.pop("benchmark", "split-digits"))
    methods = several(given.pop("method", "er"))
    if trusted is not None:
        typed = [name for text in trusted if text for name in several(text)]
        check_trusted([benchmark, *methods, str(given.get("net", ""))], typed)
    masks = [_mask(text) for text in several(given.pop("mask"))] if "mask" in given else None
    buffers = (
        [_integer("buffer", text) for text in several(given.pop("buffer"))]
        if "buffer" in given
        else [None]
    )
    trials, seed = (
        _integer("trials", given.pop("trials", 10)),
        _integer("seed", given.pop("seed", 0)),
    )
    if trials < 1:
        raise SettingsError(f"trials = {trials}: at least 1 is needed")
    check_number(trials * len(methods) * len(buffers) * len(masks or [None]))
    if not 0 <= seed < 2**62:
        raise SettingsError(f"seed = {seed}: from 0 to 2**62 - 1")
    if "class_order" in given:
        given["class_order"] = _class_order(given["class_order"])
    if isinstance(given.get("lr_drops"), str):
        given["lr_drops"] = [_integer("lr_drops", text) for text in several(given["lr_drops"])]
    if isinstance(given.get("weights"), list | tuple):  # from the command line; a file has a table
        given["weights"] = dict(read_weight(text) for text in given["weights"])
    return [
        config
        for method, buffer in itertools.product(methods, buffers)
        for config in trial_configs(
            benchmark=benchmark,
            method=method,
            masks=masks,
            buffer=buffer,
            seeds=range(seed, seed + trials),
            overrides=given,
        )
    ]


def settings(
    benchmark: str,
    method: str,
    buffer: int | None = None,
    mask: float | str | None = None,
    *,
    seed: int = 0,
    **changes: Any,
) -> TrialConfig:
    """The published settings of a trial, with any of them changed.

    `buffer=None` is the usual one, `mask=None` what the method's name implies: none for `er`, -inf
    for `mser`.
    """
    asked = {"benchmark": benchmark, "method": method, "buffer": buffer, "mask": mask}
    given = {name: value for name, value in asked.items() if value is not None}
    configs = configs_from({**given, "seed": seed, "trials": 1, **changes})
    if len(configs) > 1:
        raise SettingsError("settings are those of one trial: say one method, mask and buffer")
    return configs[0]


def check_number(trials: int) -> None:
    """Refuse more trials than one run can sensibly have."""
    if trials > MOST_TRIALS:
        raise SettingsError(
            f"these are {trials:,} trials; one run has at most {MOST_TRIALS:,}: divide it into "
            f"several"
        )


def several(value: object) -> list[str]:
    """`a,b` from the command line, or a list from a file or from Python, as strings."""
    parts = value if isinstance(value, LISTS) else str(value).split(",")
    texts = [str(part).strip() for part in parts]
    if not texts or not all(texts):
        raise SettingsError(f"{value!r} is not a comma-separated list of values")
    return list(dict.fromkeys(texts))


def _class_order(value: object) -> int | list[int]:
    order = [_integer("class_order", text) for text in several(value)]
    return order if len(order) > 1 or isinstance(value, LISTS) else order[0]


def read_weight(text: object) -> tuple[str, float]:
    """A weight as the command line has it, `gamma=0.5`."""
    name, _, value = str(text).partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise SettingsError(f"{text!r} is no weight: say its name and value, gamma=0.5") from None


def check_trusted(names: Sequence[str], trusted: Sequence[str]) -> None:
    """Nothing that is read from a file may run code, unless the user says so."""
    for name in names:
        if names_own_code(name) and name not in trusted:
            raise SettingsError(
                f"a file names code to import, {name!r}, and importing runs it. If it is yours, "
                f"say --own-code, or name it on the command line yourself."
            )


def _mask(text: str) -> float | None:
    try:
        return read_mask(text)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _integer(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise SettingsError(f"{name} = {value!r}: a whole number is needed") from None


def read_config(path: AnyPath) -> dict[str, Any]:
    """The settings in a TOML file."""
    path = Path(path)
    try:
        text = read_limited(path, _LARGEST_CONFIG).decode()
        settings = tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"the config file {path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise SettingsError(f"the config file {path} is nested too deeply to be one") from None
    except ValueError as error:  # tomllib's own, and Python's for a number of thousands of digits
        raise SettingsError(f"the config file {path} is not valid TOML: {error}") from None
    _refuse_giants(path, settings)
    return settings


def _refuse_giants(path: Path, value: object) -> None:
    """Refuse numbers that no setting can be: Python would not even write the largest of them."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _refuse_giants(path, part)
    elif isinstance(value, int) and not -INT64 <= value < INT64:
        raise SettingsError(f"the config file {path} has a number beyond 64 bits")
