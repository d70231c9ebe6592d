"""Metrics of trials, and cells: trials that differ only in their seed, taken together."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from remask.config import MaskValue, TrialConfig
from remask.data.classes import Tasks
from remask.errors import UnknownNameError, unknown
from remask.metrics import CURVE_METRICS, METRICS, AccuracyCurve, binned_calibration_error
from remask.names import system_name
from remask.record import TrialRecord, write_moment

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)
_SHOWN = ("benchmark", "method", "mask", "buffer")
"""The settings that a table always shows."""
_PRINTED = ("benchmark", "system", "buffer", "seed", "status", "error", "seconds")
_MATRICES = ("class_il", "task_il", "validation_class_il", "validation_task_il")
_CURVES = ("class_il", "task_il")
SCORES = (
    *(f"{matrix}_{metric}" for matrix in _MATRICES for metric in METRICS),
    *(f"{setting}_{metric}" for setting in _CURVES for metric in CURVE_METRICS),
    "class_il_ECE",
)
"""The names of all metrics: `class_il_A_T` and so on for the test set, `validation_class_il_A_T`
and so on for held-out training data, `class_il_min_ACC` and so on for curves, and the calibration
error."""
COSTS = ("seconds", "flops", "memory_bytes")
"""The costs of a trial, by the names of its record's fields."""


class Spread(NamedTuple):
    """A mean and the population standard deviation (divided by n, not n - 1) over trials.

    Published deviations are most likely of this kind: it is what NumPy's `std` computes.
    """

    mean: float
    std: float
    """Zero for one trial, which has no spread: do not show it."""
    trials: int
    """The number of values."""


class _ByMetric(dict[str, Spread]):
    def __missing__(self, name: str) -> Spread:
        raise UnknownNameError(unknown("metric", name, SCORES))


def write_spread(spread: Spread, between: str = " ±", alone: str = "") -> str:
    """`85.29 ±2.05`; `alone` replaces a missing deviation, such as that of one trial."""
    if math.isnan(spread.mean):
        return "-"
    known = spread.trials > 1 and not math.isnan(spread.std)
    return f"{spread.mean:.2f}" + (f"{between}{spread.std:.2f}" if known else alone)


def scores(record: TrialRecord) -> dict[str, float]:
    """All metrics of a trial by name; NaN where one is not defined."""
    found = dict.fromkeys(SCORES, math.nan)
    tasks = len(record.class_il)
    if not tasks:
        return found
    matrices = np.full((len(_MATRICES), tasks, tasks), math.nan)
    for place, name in enumerate(_MATRICES):
        if matrix := getattr(record, name):
            matrices[place] = matrix
    for metric, measure in METRICS.items():
        values = measure(matrices).tolist()
        found |= {f"{name}_{metric}": value for name, value in zip(_MATRICES, values, strict=True)}
    if curve := record.curve:
        learning, steps = np.array(curve.learning, np.int64), np.array(curve.steps, np.int64)
        for name in _CURVES:
            accuracy = np.array(getattr(curve, name), np.float64).reshape(len(steps), tasks)
            over_time = AccuracyCurve(accuracy, learning, steps)
            found |= {f"{name}_{m}": measure(over_time) for m, measure in CURVE_METRICS.items()}
    if answers := record.answers:
        error = binned_calibration_error(answers.counts, answers.confidence, answers.right)
        found["class_il_ECE"] = error
    return found


def spread(values: Iterable[float]) -> Spread:
    """The mean and population standard deviation; NaN if there are no values."""
    (found,) = spreads(np.array(list(values), np.float64)[:, None])
    return found


def spreads(values: NDArray[np.float64]) -> list[Spread]:
    """The mean and population standard deviation over trials, [trials, N] -> N of them."""
    trials = len(values)
    # NumPy adds up contiguous rows as it adds up one row alone: the same bits.
    rows = np.ascontiguousarray(values.T)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 without trials; NumPy 1: divide
        means = np.add.reduce(rows, axis=1) / trials  # much faster than `mean` and `std`
        rest = rows - means[:, None]
        stds = np.sqrt(np.add.reduce(rest * rest, axis=1) / trials)
    return [Spread(*each, trials) for each in zip(means.tolist(), stds.tolist(), strict=True)]


class TrialSummary(NamedTuple):
    """A trial in a list: its config, how it ended and its metrics. The store has these columns."""

    config_hash: str
    benchmark: str
    method: str
    mask: MaskValue
    buffer: int
    seed: int
    status: str
    title: str | None
    created: str
    error: str | None
    seconds: float
    num_tasks: int
    """0 if the trial failed."""
    learnt: str
    """A fingerprint of the tasks and the names of the classes; means are over trials that agree."""
    hardware: str
    """The processor or device, and torch's version: rounding depends on them. Empty: unknown."""
    cell: str
    """The canonical form of the config with seed 0."""
    packed: bytes
    """All metrics in the order of SCORES as float64, little-endian."""

    @property
    def scores(self) -> dict[str, float]:
        """All metrics by name; NaN where one is not defined."""
        return dict(zip(SCORES, _unpack([self])[0].tolist(), strict=True))

    @property
    def system(self) -> str:
        """The method with its mask, as tables print it."""
        return system_name(self.method, self.mask, self.title)

    def as_json(self) -> dict[str, object]:
        """What commands print of a trial with --json; without metrics that are not defined."""
        shown = {name: getattr(self, name) for name in _PRINTED}
        scores = {name: value for name, value in self.scores.items() if not math.isnan(value)}
        return {"hash": self.config_hash, **shown, "scores": scores}


def summary_of(record: TrialRecord) -> TrialSummary:
    """Summarise a record."""
    config = record.config
    device = record.machine.get("device") or record.machine.get("processor")
    torch = record.versions.get("torch")
    # With an order per seed, only the sizes of tasks are the same in all trials of a cell.
    tasks = tuple(map(len, record.tasks)) if config.class_order == "seed" else record.tasks
    return TrialSummary(
        *(config.hash, config.benchmark, config.method, config.mask, config.buffer, config.seed),
        *(record.status, record.title, write_moment(record.created), record.error, record.seconds),
        num_tasks=len(record.class_il),
        learnt=_fingerprint(tasks, record.class_names, len(record.confidence)),
        hardware=", ".join([str(device), *([f"torch {torch}"] if torch else [])]) if device else "",
        cell=config.cell.canonical,
        packed=np.fromiter(scores(record).values(), "<f8").tobytes(),
    )


def _unpack(trials: Sequence[TrialSummary]) -> NDArray[np.float64]:
    """The metrics of trials, [trials, SCORES]."""
    packed = b"".join([trial.packed for trial in trials])
    return np.frombuffer(packed, "<f8").reshape(-1, len(SCORES))


@lru_cache(maxsize=256)
def _fingerprint(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@lru_cache(maxsize=20_000)
def cell_config(cell: str) -> TrialConfig:
    """The config with seed 0 from its canonical form."""
    return TrialConfig.model_validate(json.loads(cell))


@dataclass(frozen=True)
class Cell:
    """The trials of one config with any seed; means are over the finished ones.

    All have learnt the same tasks and classes.
    """

    config: TrialConfig
    """The config with seed 0."""
    label: str
    """The method's name in tables, with what distinguishes it from similar ones: `ER, lr=0.1`."""
    summaries: tuple[TrialSummary, ...]
    """All its trials, by seed."""
    records: tuple[TrialRecord, ...] = ()
    """Their records, unless it was made of summaries."""

    @cached_property
    def _finished(self) -> list[TrialSummary]:
        return [trial for trial in self.summaries if trial.status == "finished"]

    @cached_property
    def finished(self) -> tuple[TrialRecord, ...]:
        """The records of the finished trials."""
        return tuple(record for record in self.records if record.status == "finished")

    @property
    def trials(self) -> int:
        """The number of finished trials."""
        return len(self._finished)

    @property
    def ended(self) -> Counter[str]:
        """The number of trials with each status."""
        return Counter(trial.status for trial in self.summaries)

    @property
    def lost(self) -> list[str]:
        """The trials without a result in words: `1 diverged`, `2 failed`."""
        return [f"{self.ended[s]} {s}" for s in ("diverged", "failed") if self.ended[s]]

    @property
    def hardware(self) -> tuple[str, ...]:
        """The kinds of hardware of the finished trials; the last digits may differ between two."""
        return tuple(sorted({trial.hardware for trial in self._finished} - {""}))

    @property
    def learnt(self) -> str:
        """A fingerprint of what its finished trials have learnt, see `TrialSummary`."""
        return self._finished[0].learnt if self._finished else ""

    @property
    def tasks(self) -> Tasks | None:
        """The classes of each task, in order of learning; None if unknown or if trials differ."""
        found = {trial.tasks for trial in self.finished}
        return found.pop() if len(found) == 1 else None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, by label; None if no trial finished."""
        return self.finished[0].class_names if self.finished else None

    def values(self, metric: str) -> list[float]:
        """A metric of each finished trial, by seed; NaN where it is not defined."""
        column: list[float] = _unpack(self._finished)[:, SCORES.index(metric)].tolist()
        return column

    @cached_property
    def spreads(self) -> dict[str, Spread]:
        """Every metric by name; NaN where none was measured."""
        return _ByMetric(zip(SCORES, spreads(_unpack(self._finished)), strict=True))

    @cached_property
    def costs(self) -> dict[str, Spread]:
        """The costs of a trial, see COSTS; NaN where one is unknown."""
        found = {name: [getattr(record, name) for record in self.finished] for name in COSTS}
        return {n: spread(math.nan if v is None else v for v in found[n]) for n in found}

    def as_json(self) -> dict[str, object]:
        """What commands print of a cell with --json; without metrics that are not defined."""
        return {
            "label": self.label,
            "config": self.config.model_dump(mode="json", exclude={"seed"}),
            **{status: self.ended[status] for status in ("finished", "diverged", "failed")},
            "scores": {
                name: {"mean": spread.mean, "std": spread.std}
                for name, spread in self.spreads.items()
                if not math.isnan(spread.mean)
            },
        }


def summarise(trials: Iterable[TrialRecord | TrialSummary]) -> list[Cell]:
    """Group the trials into cells, ordered by benchmark, method, mask, buffer and the rest.

    Trials of one config that have not learnt the same, because a custom benchmark was changed,
    are separate cells with different labels.
    """
    summaries: list[TrialSummary] = []
    records: dict[str, TrialRecord] = {}
    for trial in trials:
        if isinstance(trial, TrialRecord):
            records[trial.config_hash] = trial
            trial = summary_of(trial)
        summaries.append(trial)
    groups = grouped(summaries, lambda trial: trial.cell)
    by_config = {cell_config(cell): group for cell, group in groups.items()}
    configs = sorted(by_config, key=_order)
    # That of the latest trial that has one: a failed one has none.
    titles = {
        config: max((trial.created, trial.title) for trial in group if trial.title)[1]
        for config, group in by_config.items()
        if any(trial.title for trial in group)
    }
    return [
        Cell(
            config,
            label + suffix,
            tuple(alike),
            tuple(records[trial.config_hash] for trial in alike if trial.config_hash in records),
        )
        for config, label in zip(configs, cell_labels(configs, titles), strict=True)
        for suffix, alike in _versions(by_config[config])
    ]


def _versions(trials: Sequence[TrialSummary]) -> list[tuple[str, list[TrialSummary]]]:
    """Groups of trials of one config that have learnt the same, with suffixes of their labels."""
    by_age = sorted(trials, key=attrgetter("created"))
    known = (trial for trial in by_age if trial.num_tasks)
    groups = list(grouped(known, attrgetter("learnt")).values()) or [[]]
    # Trials that failed have learnt nothing; they are counted with the newest ones.
    groups[-1] += [trial for trial in by_age if not trial.num_tasks]
    for group in groups:
        group.sort(key=attrgetter("seed"))
    if len(groups) == 1:
        return [("", groups[0])]
    labels = [f", {max(trial.num_tasks for trial in group)} tasks" for group in groups]
    return [
        (f"{label} ({labels[: n + 1].count(label)})" if labels.count(label) > 1 else label, group)
        for n, (label, group) in enumerate(zip(labels, groups, strict=True))
    ]


def cell_labels(
    configs: Sequence[TrialConfig], titles: Mapping[TrialConfig, str | None] | None = None
) -> list[str]:
    """Label the configs so that no two rows of a table look the same.

    `titles` are those of custom methods.
    """
    settings = [{**vars(config), **dict(config.weights)} for config in configs]
    for own in settings:
        del own["weights"]
    # A method's rows with and without a mask differ in the same words, and so stand together.
    alike = [name for name in _SHOWN if name != "mask"]
    of_a_mask = ("mask", "positive_mask", "mask_stored", "fade", "fade_power")
    differing = zip(_differing(settings, _SHOWN), _differing(settings, alike), strict=True)
    labels = []
    for config, own, (with_mask, with_any) in zip(configs, settings, differing, strict=True):
        names = with_mask | with_any.difference(of_a_mask)
        system = system_name(config.method, config.mask, (titles or {}).get(config))
        labels.append(", ".join([system, *(f"{n}={v}" for n, v in own.items() if n in names)]))
    return labels


def _differing(settings: Sequence[Mapping[str, object]], shared: Sequence[str]) -> list[set[str]]:
    """For each, the names of the settings that differ among those that share some."""
    key = itemgetter(*shared)
    found = {
        common: {name for own in group for name, _ in own.items() ^ group[0].items()}
        for common, group in grouped(settings, key).items()
    }
    return [found[key(own)] for own in settings]


def _order(config: TrialConfig) -> list[tuple[bool, bool, object]]:
    values = (getattr(config, n) for n in dict.fromkeys((*_SHOWN, *type(config).model_fields)))
    # A class order may be a tuple, and a mask a word, which cannot be compared with numbers.
    return [
        (value is not None, isinstance(value, tuple | str), 0 if value is None else value)
        for value in values
    ]


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """The items by their key, in the order in which each first appears."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
