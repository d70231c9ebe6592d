"""From settings, given in Python, on the command line or in a file, to the configs of trials."""

import itertools
import math
import tomllib
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.errors import SettingsError, did_you_mean
from remask.experiments.defaults import trial_configs
from remask.experiments.objects import with_names
from remask.files import AnyPath, read_limited
from remask.methods import Method
from remask.own_code import check_trusted
from remask.setting_types import INT64, read_mask, read_weights

_MOST_TRIALS = 100_000
_LARGEST_FILE = 1_000_000  # bytes
_LISTS = (list, tuple, range)
_AXES = (*TrialConfig.model_fields, "trials")
_GRID = "a grid has settings, lists to cross in [grid], and lists of equal length in each [[zip]]"


def configs_from(
    given: Mapping[str, Any], *, file: AnyPath | None = None, own_code: bool = False
) -> list[TrialConfig]:
    """The trials of every combination of benchmark, method, mask, buffer and weights.

    Settings in `given` override those in the TOML `file`. Code that only the file names is imported
    only with `own_code`. Raises SettingsError.
    """
    given = with_names(given)
    if file is None:
        return _combine(given)
    asked = {**read_config(file), **given}
    if not own_code:
        check_trusted(_names_in(asked), trusted=_names_in(given))
    return _combine(asked)


def grid_configs(
    grid: AnyPath | Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
    *,
    own_code: bool,
) -> list[TrialConfig]:
    """The trials of every point of a grid: a TOML file, or a mapping of the same form.

    Settings in `given` override the shared settings of the grid. Code that only the grid names is
    imported only with `own_code`. Raises SettingsError.
    """
    given = with_names(given or {})
    place = "the grid" if isinstance(grid, Mapping) else str(grid)
    shared = with_names(grid) if isinstance(grid, Mapping) else read_config(grid)
    shared |= given
    crossed = _axes_of(f"{place}: [grid]", shared.pop("grid", {}))
    zipped = shared.pop("zip", [])
    if not isinstance(zipped, _LISTS):
        raise SettingsError(f"{place}: write [[zip]] with two brackets; {_GRID}.")
    tables = [_axes_of(f"{place}: [[zip]] {n}", table) for n, table in enumerate(zipped, start=1)]
    names = [*crossed, *(name for table in tables for name in table)]
    if not names and not tables:
        raise SettingsError(f"{place} has no axis: {_GRID}.")
    for name in names:
        if name.partition(".")[0] not in _AXES:
            hint = did_you_mean(name, _AXES) or f". There are {', '.join(_AXES)}"
            raise SettingsError(f"{place}: there is no setting {name!r} to sweep over{hint}")
        if names.count(name) > 1 or name in shared:
            raise SettingsError(f"{place}: {name} is given twice")
    axes = [[{name: value} for value in values] for name, values in crossed.items()]
    axes += [_zipped(f"{place}: [[zip]] {n}", table) for n, table in enumerate(tables, start=1)]
    _check_number(math.prod(map(len, axes)))
    found: dict[TrialConfig, None] = {}
    trusted = _names_in(given)
    for parts in itertools.product(*axes):
        point = {name: value for part in parts for name, value in part.items()}
        settings = _with_weights(shared, point)
        if not own_code:
            check_trusted(_names_in(settings), trusted)
        found |= dict.fromkeys(_combine(settings))
        _check_number(len(found))
    return list(found)


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
    configs = _combine(with_names({**given, "seed": seed, "trials": 1, **changes}))
    if len(configs) > 1:
        raise SettingsError("give one benchmark, method, mask and buffer, and one value per weight")
    return configs[0]


def several(value: object) -> list[str]:
    """The values of a list, or of a text such as `a,b`, as strings without duplicates."""
    parts = value if isinstance(value, _LISTS) else str(value).split(",")
    texts = [str(part).strip() for part in parts]
    if not texts or not all(texts):
        raise SettingsError(f"{value!r} is not a comma-separated list of values")
    return list(dict.fromkeys(texts))


def read_config(path: AnyPath) -> dict[str, Any]:
    """The settings in a TOML file."""
    path = Path(path)
    try:
        settings = tomllib.loads(read_limited(path, _LARGEST_FILE).decode())
    except OSError as error:
        raise SettingsError(f"cannot read the config file {path}: {error.strerror}") from None
    except RecursionError:
        raise SettingsError(f"the config file {path} is nested too deeply") from None
    except ValueError as error:  # also a number of thousands of digits
        raise SettingsError(f"the config file {path} is not valid TOML: {error}") from None
    if _has_giant(settings):  # Python cannot even print the largest ones
        raise SettingsError(f"the config file {path} has a number beyond 64 bits")
    return settings


def _has_giant(value: object) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_giant, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and not -INT64 <= value < INT64


def _combine(given: Mapping[str, Any]) -> list[TrialConfig]:
    """The trials of every combination of these settings; imports what they name."""
    rest = dict(given)
    benchmarks = several(rest.pop("benchmark", "split-digits"))
    methods = several(rest.pop("method", "er"))
    masks = None
    if "mask" in rest:
        try:
            masks = [read_mask(text) for text in several(rest.pop("mask"))]
        except ValueError as error:
            raise SettingsError(str(error)) from None
    buffers: list[int | None] = [None]
    if "buffer" in rest:
        buffers = [_integer("buffer", text) for text in several(rest.pop("buffer"))]
    trials = _integer("trials", rest.pop("trials", 10))
    seed = _integer("seed", rest.pop("seed", 0))
    if trials < 1:
        raise SettingsError(f"trials = {trials}: must be at least 1")
    if not 0 <= seed < 2**62:
        raise SettingsError(f"seed = {seed}: must be in [0, 2**62)")
    overrides = _with_each_weight(rest)
    axes: list[Sized] = [benchmarks, methods, masks or [None], buffers, overrides]
    _check_number(trials * math.prod(map(len, axes)))
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
    """The settings with every combination of the values of weights that have several."""
    if "weights" not in rest:
        return [rest]
    weights = _weights_in(rest)
    axes = [values if isinstance(values, _LISTS) else [values] for values in weights.values()]
    _check_number(math.prod(map(len, axes)))
    if empty := [name for name, values in zip(weights, axes, strict=True) if not values]:
        raise SettingsError(f"the weight {empty[0]} has no value")
    return [
        {**rest, "weights": dict(zip(weights, chosen, strict=True))}
        for chosen in itertools.product(*axes)
    ]


def _weights_in(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    weights = settings.get("weights", {})
    if isinstance(weights, _LISTS):
        return read_weights(weights)
    if not isinstance(weights, Mapping):
        raise SettingsError(f"weights = {weights!r}: use names with values, as in gamma = 0.5")
    return weights


def _with_weights(shared: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a point of a grid, whose axes may be `weights.gamma`."""
    own = {n.removeprefix("weights."): v for n, v in point.items() if n.startswith("weights.")}
    settings = {**shared, **{n: v for n, v in point.items() if not n.startswith("weights.")}}
    return {**settings, "weights": {**_weights_in(settings), **own}} if own else settings


def _axes_of(place: str, table: object) -> dict[str, list[Any]]:
    """The axes of a table by name, each a list of values; those of weights as `weights.gamma`."""
    if not isinstance(table, Mapping):
        raise SettingsError(f"{place} is not a table: {_GRID}.")
    axes: dict[str, Any] = {}
    for name, values in with_names(table).items():
        if name == "weights" and isinstance(values, Mapping):
            axes |= {f"weights.{weight}": each for weight, each in values.items()}
        else:
            axes[name] = values
    for name, values in axes.items():
        if not isinstance(values, _LISTS) or not values:
            raise SettingsError(f"{place}: {name} is {values!r}; use a list of values")
    return axes


def _zipped(place: str, table: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    lengths = {name: len(values) for name, values in table.items()}
    if len(set(lengths.values())) != 1:
        raise SettingsError(f"{place} needs lists of equal length, got {lengths or 'none'}")
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def _check_number(trials: int) -> None:
    if trials > _MOST_TRIALS:
        raise SettingsError(
            f"{trials:,} trials; a run has at most {_MOST_TRIALS:,}: divide it into several"
        )


def _names_in(settings: Mapping[str, Any]) -> list[str]:
    """The names in these settings that may be of the user's own code."""
    named = (settings[key] for key in ("benchmark", "method", "net") if key in settings)
    return [name for value in named for name in several(value)]


def _integer(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise SettingsError(f"{name} = {value!r}: must be a whole number") from None
