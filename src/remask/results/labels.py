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
    return [_label(config, alike[_shown(config)], (titles or {}).get(config)) for config in configs]


def _shown(config: TrialConfig) -> tuple[object, ...]:
    return tuple(getattr(config, name) for name in COLUMNS)


def _label(config: TrialConfig, alike: Sequence[TrialConfig], title: str | None) -> str:
    others = [_settings(other) for other in alike]
    differing = (
        f"{name}={value}"
        for name, value in _settings(config).items()
        if any(other.get(name) != value for other in others)
    )
    return ", ".join([system_name(config.method, config.mask, title), *differing])


def _settings(config: TrialConfig) -> dict[str, object]:
    """All settings by name, the method's own weights among them."""
    return {**{name: value for name, value in config if name != "weights"}, **dict(config.weights)}
