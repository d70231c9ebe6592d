"""The configs of a grid of settings."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

from remask.config import TrialConfig
from remask.errors import SettingsError, did_you_mean
from remask.experiments.configs import (
    LISTS,
    check_number,
    combine,
    names_in,
    read_config,
    read_weights,
    with_names,
)
from remask.files import AnyPath
from remask.own_code import check_trusted

_AXES = (*TrialConfig.model_fields, "trials")
_GRID = "a grid has settings, lists to cross in [grid], and lists of equal length in each [[zip]]"


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
    if not isinstance(zipped, LISTS):
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
    check_number(math.prod(map(len, axes)))
    found: dict[TrialConfig, None] = {}
    trusted = names_in(given)
    for parts in itertools.product(*axes):
        point = {name: value for part in parts for name, value in part.items()}
        settings = _with_weights(shared, point)
        if not own_code:
            check_trusted(names_in(settings), trusted)
        found |= dict.fromkeys(combine(settings))
        check_number(len(found))
    return list(found)


def _with_weights(shared: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a point of a grid, whose axes may be `weights.gamma`."""
    own = {n.removeprefix("weights."): v for n, v in point.items() if n.startswith("weights.")}
    settings = {**shared, **{n: v for n, v in point.items() if not n.startswith("weights.")}}
    if own:
        settings["weights"] = {**read_weights(settings.get("weights", {})), **own}
    return settings


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
        if not isinstance(values, LISTS) or not values:
            raise SettingsError(f"{place}: {name} is {values!r}; use a list of values")
    return axes


def _zipped(place: str, table: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    lengths = {name: len(values) for name, values in table.items()}
    if len(set(lengths.values())) != 1:
        raise SettingsError(f"{place} needs lists of equal length, got {lengths or 'none'}")
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
