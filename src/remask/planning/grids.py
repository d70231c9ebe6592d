"""Grids: settings that are crossed, settings that go together, and settings that all share."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from remask.config import TrialConfig
from remask.durable import AnyPath
from remask.errors import SettingsError
from remask.names import did_you_mean
from remask.planning.combinations import LISTS, MOST_TRIALS, check_number, combine, names_in
from remask.planning.files import check_trusted, read_config
from remask.planning.objects import with_names
from remask.setting_types import read_weight_lists

_AXES = (*TrialConfig.model_fields, "trials")
_SHAPE_OF_A_GRID = (
    "a grid has settings, lists under [grid] that are crossed, and lists in each [[zip]] that go "
    "together"
)


def grid_configs(
    grid: AnyPath | Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
    *,
    own_code: bool,
) -> list[TrialConfig]:
    """The trials of every point of a grid: a TOML file, or the same as a mapping.

    Settings that are given win over those that all trials share in the grid. Code that only the
    grid names is imported only with `own_code`. Raises SettingsError.
    """
    given = with_names(given or {})
    path: object
    if isinstance(grid, Mapping):
        shared, path = with_names(grid), "the grid"
    else:
        shared, path = read_config(Path(grid)), grid
    shared |= given
    crossed = with_names(_table(path, "[grid]", shared.pop("grid", {})))
    zipped = shared.pop("zip", [])
    if not isinstance(zipped, LISTS):
        raise SettingsError(f"{path}: zip is [[zip]], with two brackets: {_SHAPE_OF_A_GRID}")
    zips = [
        with_names(_table(path, f"[[zip]] {n}", table)) for n, table in enumerate(zipped, start=1)
    ]
    if not crossed and not zips:
        raise SettingsError(f"{path} has no axis: {_SHAPE_OF_A_GRID}")
    axes = [*([{name: value} for value in values] for name, values in crossed.items())]
    axes += [_together(path, number, table) for number, table in enumerate(zips, start=1)]
    _check_names(path, shared, [*crossed, *(name for table in zips for name in table)])
    found: dict[TrialConfig, None] = {}
    for point in _points(path, axes):
        settings = _with_weights(shared, point)
        if not own_code:
            check_trusted(names_in(settings), trusted=names_in(given))
        found |= dict.fromkeys(combine(settings))
        check_number(len(found))
    return list(found)


def _table(path: object, where: str, table: object) -> dict[str, list[Any]]:
    """The axes of a table by name, each a list with something in it."""
    if not isinstance(table, Mapping):
        raise SettingsError(f"{path}: {where} is no table: {_SHAPE_OF_A_GRID}")
    for name, values in table.items():
        if name == "weights" and isinstance(values, Mapping):  # weights.gamma = [0.5, 1]
            continue
        if not isinstance(values, LISTS) or not values:
            raise SettingsError(
                f"{path}: {name} in {where} is {values!r}: an axis is a list of values, "
                f"with at least one"
            )
    weights = table.get("weights")
    if not isinstance(weights, Mapping):
        return dict(table)
    rest = {name: values for name, values in table.items() if name != "weights"}
    dotted = {f"weights.{name}": values for name, values in weights.items()}
    return {**rest, **_table(path, where, dotted)}


def _together(path: object, number: int, table: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    lengths = {name: len(values) for name, values in table.items()}
    if not table or len(set(lengths.values())) != 1:
        told = (
            ", ".join(f"{name} has {length}" for name, length in lengths.items()) or "it is empty"
        )
        raise SettingsError(f"{path}: the lists of [[zip]] {number} must be of one length: {told}")
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def _check_names(path: object, shared: Mapping[str, Any], axes: list[str]) -> None:
    """Every axis is a setting that exists, and is said once."""
    for name in axes:
        plain = name.partition(".")[0] if name.startswith("weights.") else name
        if plain not in _AXES:
            hint = did_you_mean(name, _AXES) or f". There are {', '.join(_AXES)}"
            raise SettingsError(f"{path}: there is no setting {name!r} to sweep over{hint}")
        if axes.count(name) > 1 or name in shared:
            raise SettingsError(f"{path}: {name} is said twice")


def _points(path: object, axes: list[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    count = 1
    for axis in axes:
        count *= len(axis)
    if count > MOST_TRIALS:
        raise SettingsError(f"{path} has {count:,} points; {MOST_TRIALS:,} are the most")
    for chosen in itertools.product(*axes):
        yield {name: value for part in chosen for name, value in part.items()}


def _with_weights(shared: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a point, with `weights.gamma = x` put where weights are."""
    settings = {**shared, **{n: v for n, v in point.items() if not n.startswith("weights.")}}
    own = {n.removeprefix("weights."): v for n, v in point.items() if n.startswith("weights.")}
    said = settings.get("weights", {})
    if isinstance(said, list | tuple):
        said = read_weight_lists(said)
    if own and isinstance(said, Mapping):  # anything else is refused where settings are read
        settings["weights"] = {**said, **own}
    return settings
