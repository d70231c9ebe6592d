"""What tables call the trials of a config, so that no two rows look the same."""

from collections.abc import Mapping, Sequence

from remask.config import TrialConfig
from remask.names import system_name

COLUMNS = ("benchmark", "method", "mask", "buffer")
"""What a table shows of a config in any case."""


def cell_labels(
    configs: Sequence[TrialConfig], titles: Mapping[TrialConfig, str | None] | None = None
) -> list[str]:
    """Name every config so that no two rows of a table look the same.

    `titles` are what custom methods call themselves.
    """
    alike: dict[tuple[object, ...], list[TrialConfig]] = {}
    for config in configs:
        alike.setdefault(_shown(config), []).append(config)
    differing = {shown: _differing(group) for shown, group in alike.items()}
    own = titles or {}
    return [_label(each, differing[_shown(each)], own.get(each)) for each in configs]


def _shown(config: TrialConfig) -> tuple[object, ...]:
    return tuple(getattr(config, name) for name in COLUMNS)


def _differing(configs: Sequence[TrialConfig]) -> set[str]:
    """The settings that not all of these configs have, or in which they differ."""
    if len(configs) < 2:
        return set()
    first, differing = _settings(configs[0]), set[str]()
    for config in configs[1:]:
        own = _settings(config)
        if own.keys() != first.keys():
            differing |= own.keys() ^ first.keys()
        differing |= {name for name in own.keys() & first.keys() if own[name] != first[name]}
    return differing


def _label(config: TrialConfig, differing: set[str], title: str | None) -> str:
    settings = _settings(config) if differing else {}
    apart = (f"{name}={value}" for name, value in settings.items() if name in differing)
    return ", ".join([system_name(config.method, config.mask, title), *apart])


def _settings(config: TrialConfig) -> dict[str, object]:
    """All settings by name, the method's own weights among them."""
    return {**{name: value for name, value in config if name != "weights"}, **dict(config.weights)}
