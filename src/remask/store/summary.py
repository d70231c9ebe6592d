"""From trials to cells: what trials that differ only in their seed show together."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remask.config import TrialConfig
from remask.metrics import METRICS
from remask.names import system_name
from remask.store.record import Matrix, TrialRecord

SCORES = tuple(f"{setting}_{metric}" for setting in ("class_il", "task_il") for metric in METRICS)
"""The names of all metrics, `class_il_A_T` and so on."""


@dataclass(frozen=True)
class Spread:
    """A mean and the population standard deviation (divided by n, not n - 1) over trials.

    The published ones are most likely of this kind: it is what NumPy's `std` computes.
    """

    mean: float
    std: float
    """Zero for one trial, which has no spread: show none."""
    trials: int
    """How many values it is over."""


@dataclass(frozen=True)
class Cell:
    """The trials of one config, whatever their seed. Means are over the finished ones alone."""

    config: TrialConfig
    """The config of any of the trials; its seed means nothing."""
    label: str
    """The method's name as tables print it, with what sets it apart from its like: `ER, lr=0.1`."""
    records: tuple[TrialRecord, ...]
    """All its trials, by seed."""

    @property
    def title(self) -> str | None:
        """What a method of one's own calls itself, if a trial tells."""
        return own_title(self.records)

    @property
    def finished(self) -> tuple[TrialRecord, ...]:
        """The trials that are in the means."""
        return tuple(record for record in self.records if record.status == "finished")

    @property
    def trials(self) -> int:
        """How many trials finished."""
        return len(self.finished)

    @property
    def diverged(self) -> int:
        """How many trials diverged."""
        return sum(record.status == "diverged" for record in self.records)

    @property
    def failed(self) -> int:
        """How many trials failed."""
        return sum(record.status == "failed" for record in self.records)

    @cached_property
    def spreads(self) -> dict[str, Spread]:
        """Every metric, `class_il_A_T` and so on; NaN where none was measured."""
        found = [scores(record) for record in self.finished]
        return {name: spread([score[name] for score in found]) for name in SCORES}


def summarise(records: Iterable[TrialRecord]) -> list[Cell]:
    """Group the trials into cells, ordered by benchmark, method, mask, buffer and the rest."""
    groups: dict[TrialConfig, list[TrialRecord]] = {}
    for record in records:
        groups.setdefault(record.config.model_copy(update={"seed": 0}), []).append(record)
    configs = sorted(groups, key=_order)
    titles = {config: own_title(groups[config]) for config in configs}
    return [
        Cell(config, label, tuple(sorted(groups[config], key=lambda record: record.seed)))
        for config, label in zip(configs, labels(configs, titles), strict=True)
    ]


def own_title(records: Iterable[TrialRecord]) -> str | None:
    """What the method called itself in the latest trial that tells: a failed one does not."""
    told = [record for record in records if record.title is not None]
    return max(told, key=lambda record: record.created).title if told else None


def scores(record: TrialRecord) -> dict[str, float]:
    """Compute all metrics of a trial, `class_il_A_T` and so on; NaN where one is not defined."""
    matrices = {"class_il": record.class_il, "task_il": record.task_il}
    return {
        f"{setting}_{metric}": _measure(matrix, metric)
        for setting, matrix in matrices.items()
        for metric in METRICS
    }


def _measure(matrix: Matrix, metric: str) -> float:
    if not matrix:  # a failed trial
        return math.nan
    return float(METRICS[metric](np.array(matrix, dtype=np.float64)))


def spread(values: Sequence[float]) -> Spread:
    """The mean and population standard deviation; NaN if there are no values."""
    if not values:
        return Spread(math.nan, math.nan, 0)
    return Spread(float(np.mean(values)), float(np.std(values)), len(values))


_COLUMNS = ("benchmark", "method", "mask", "buffer")
"""What a table shows of a config in any case."""


def _order(config: TrialConfig) -> list[tuple[bool, object]]:
    others = [name for name in type(config).model_fields if name not in _COLUMNS]
    values = [getattr(config, name) for name in (*_COLUMNS, *others)]
    return [(value is not None, value if value is not None else 0) for value in values]


def labels(
    configs: Sequence[TrialConfig], titles: Mapping[TrialConfig, str | None] | None = None
) -> list[str]:
    """Name every config so that no two rows of a table look the same.

    `titles` are those that methods of one's own give themselves.
    """
    alike: dict[tuple[object, ...], list[TrialConfig]] = {}
    for config in configs:
        alike.setdefault(_shown(config), []).append(config)
    return [_label(config, alike[_shown(config)], (titles or {}).get(config)) for config in configs]


def _shown(config: TrialConfig) -> tuple[object, ...]:
    return tuple(getattr(config, name) for name in _COLUMNS)


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
