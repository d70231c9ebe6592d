"""Combinations: the trials of every benchmark, method, mask and buffer that is asked for."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

from remask.benchmarks import Benchmark
from remask.config import TrialConfig
from remask.durable import AnyPath
from remask.errors import SettingsError
from remask.methods import Method
from remask.planning.defaults import trial_configs
from remask.planning.files import check_trusted, read_config
from remask.planning.objects import with_names
from remask.setting_types import MaskValue, read_mask, read_weight_lists

MOST_TRIALS = 100_000
LISTS = (list, tuple, range)
"""How several values may be given in Python; a file has only lists."""
_NAME_CODE = ("benchmark", "method", "net")
"""The settings that may name the user's own code, as `module:name`."""


def configs_from(
    given: Mapping[str, Any], *, file: AnyPath | None = None, own_code: bool = False
) -> list[TrialConfig]:
    """The trials of every combination of benchmark, method, mask, buffer and weights.

    Settings that are given win over those in the TOML `file`. Code that only the file names is
    imported only with `own_code`.
    """
    given = with_names(given)
    if file is None:
        return combine(given)
    asked = {**read_config(file), **given}
    if not own_code:
        check_trusted(names_in(asked), trusted=names_in(given))
    return combine(asked)


def combine(given: Mapping[str, Any]) -> list[TrialConfig]:
    """The trials of every combination that these settings ask for; what they name is imported."""
    rest = dict(given)
    benchmarks = several(rest.pop("benchmark", "split-digits"))
    methods = several(rest.pop("method", "er"))
    masks = [_mask(text) for text in several(rest.pop("mask"))] if "mask" in rest else None
    buffers: list[int | None] = [None]
    if "buffer" in rest:
        buffers = [_integer("buffer", text) for text in several(rest.pop("buffer"))]
    trials = _integer("trials", rest.pop("trials", 10))
    seed = _integer("seed", rest.pop("seed", 0))
    if trials < 1:
        raise SettingsError(f"trials = {trials}: at least 1 is needed")
    if not 0 <= seed < 2**62:
        raise SettingsError(f"seed = {seed}: from 0 to 2**62 - 1")
    overrides = _with_each_weight(rest)
    check_number(
        trials
        * (len(benchmarks) * len(methods) * len(buffers) * len(masks or [None]) * len(overrides))
    )
    return [
        config
        for benchmark, method, buffer, own in itertools.product(
            benchmarks, methods, buffers, overrides
        )
        for config in trial_configs(
            benchmark=benchmark,
            method=method,
            masks=masks,
            buffer=buffer,
            seeds=range(seed, seed + trials),
            overrides=own,
        )
    ]


def _with_each_weight(rest: dict[str, Any]) -> list[dict[str, Any]]:
    """These settings with every combination of the values of weights that have several."""
    weights = rest.get("weights")
    if isinstance(weights, LISTS):
        weights = read_weight_lists(weights)
    if not isinstance(weights, Mapping):  # none, or what is refused where settings are read
        return [rest]
    axes = [values if isinstance(values, LISTS) else [values] for values in weights.values()]
    for name, values in zip(weights, axes, strict=True):
        if not values:
            raise SettingsError(f"the weight {name} has no value")
    check_number(math.prod(map(len, axes)))
    return [
        {**rest, "weights": dict(zip(weights, chosen, strict=True))}
        for chosen in itertools.product(*axes)
    ]


def settings(
    benchmark: str | Benchmark,
    method: str | type[Method],
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
    configs = combine(with_names({**given, "seed": seed, "trials": 1, **changes}))
    if len(configs) > 1:
        raise SettingsError(
            "settings are those of one trial: say one benchmark, method, mask and buffer, and one "
            "value per weight"
        )
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


def names_in(settings: Mapping[str, Any]) -> list[str]:
    """The names in these settings that may stand for the user's own code."""
    return [name for key in _NAME_CODE if key in settings for name in several(settings[key])]


def _mask(text: str) -> MaskValue:
    try:
        return read_mask(text)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _integer(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise SettingsError(f"{name} = {value!r}: a whole number is needed") from None
