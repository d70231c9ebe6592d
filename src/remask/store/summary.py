"""From trials to cells: what trials that differ only in their seed show together."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from remask.config import TrialConfig
from remask.metrics import METRICS
from remask.names import system_name
from remask.store.record import Matrix, TrialRecord


@dataclass(frozen=True)
class Spread:
    """A mean and the population standard deviation (ddof=0) over the trials of a cell."""

    mean: float
    std: float


@dataclass(frozen=True)
class Score:
    """What a cell shows in one setting, Class-IL or Task-IL."""

    accuracy: Spread
    """A_T, percent."""
    forgetting: Spread
    """F_T, points."""


@dataclass(frozen=True)
class Cell:
    """The trials of one config, whatever their seed. Means are over the finished ones alone."""

    config: TrialConfig
    """The config of any of the trials; its seed means nothing."""
    label: str
    """The method's name as tables print it, with what sets it apart from its like: `ER, lr=0.1`."""
    trials: int
    """How many trials finished, and are in the means."""
    diverged: int
    failed: int
    class_il: Score
    task_il: Score


def summarise(records: Iterable[TrialRecord]) -> list[Cell]:
    """Group the trials into cells, ordered by benchmark, method, mask, buffer and the rest."""
    groups: dict[TrialConfig, list[TrialRecord]] = {}
    for record in records:
        groups.setdefault(record.config.model_copy(update={"seed": 0}), []).append(record)
    configs = sorted(groups, key=_order)
    labels = _labels(configs)
    return [
        _cell(config, label, groups[config]) for config, label in zip(configs, labels, strict=True)
    ]


def scores(record: TrialRecord) -> dict[str, float]:
    """Compute all metrics of a trial, `class_il_A_T` and so on; NaN where one is not defined."""
    return {
        f"{setting}_{metric}": _measure(matrix, metric)
        for setting, matrix in (("class_il", record.class_il), ("task_il", record.task_il))
        for metric in METRICS
    }


def _measure(matrix: Matrix, metric: str) -> float:
    if not matrix:  # a failed trial
        return math.nan
    return float(METRICS[metric](np.array(matrix, dtype=np.float64)))


def _cell(config: TrialConfig, label: str, records: Sequence[TrialRecord]) -> Cell:
    finished = [record for record in records if record.status == "finished"]
    class_il = [record.class_il for record in finished]
    task_il = [record.task_il for record in finished]
    return Cell(
        config=config,
        label=label,
        trials=len(finished),
        diverged=sum(record.status == "diverged" for record in records),
        failed=sum(record.status == "failed" for record in records),
        class_il=Score(_spread(class_il, "A_T"), _spread(class_il, "F_T")),
        task_il=Score(_spread(task_il, "A_T"), _spread(task_il, "F_T")),
    )


def _spread(matrices: Sequence[Matrix], metric: str) -> Spread:
    if not matrices:
        return Spread(math.nan, math.nan)
    values = np.array([_measure(matrix, metric) for matrix in matrices])
    return Spread(float(values.mean()), float(values.std()))


_COLUMNS = ("benchmark", "method", "mask", "buffer")
"""What a table shows of a config in any case."""


def _order(config: TrialConfig) -> list[tuple[bool, object]]:
    others = [name for name in type(config).model_fields if name not in _COLUMNS]
    values = [getattr(config, name) for name in (*_COLUMNS, *others)]
    return [(value is not None, value if value is not None else 0) for value in values]


def _labels(configs: Sequence[TrialConfig]) -> list[str]:
    """Name every config so that no two rows of a table look the same."""
    alike: dict[tuple[object, ...], list[TrialConfig]] = {}
    for config in configs:
        alike.setdefault(_shown(config), []).append(config)
    return [_label(config, alike[_shown(config)]) for config in configs]


def _shown(config: TrialConfig) -> tuple[object, ...]:
    return tuple(getattr(config, name) for name in _COLUMNS)


def _label(config: TrialConfig, alike: Sequence[TrialConfig]) -> str:
    others = [_settings(other) for other in alike]
    differing = (
        f"{name}={value}"
        for name, value in _settings(config).items()
        if any(other.get(name) != value for other in others)
    )
    return ", ".join([system_name(config.method, config.mask), *differing])


def _settings(config: TrialConfig) -> dict[str, object]:
    """All settings by name, the method's own weights among them."""
    return {**{name: value for name, value in config if name != "weights"}, **dict(config.weights)}
