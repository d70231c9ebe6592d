"""Summaries of trials, and cells: trials that differ only in their seed, taken together."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from remask.config import TrialConfig
from remask.data.classes import Tasks
from remask.names import system_name
from remask.record import TrialRecord, write_moment
from remask.setting_types import MaskValue
from remask.store.scores import COSTS, SCORES, Spread, pack, scores, spread, spreads, unpack

_Item = TypeVar("_Item")
_SHOWN = ("benchmark", "method", "mask", "buffer")
"""The settings that a table always shows."""
_DATA = ("benchmark", "tasks", "class_order", "limit", "validation")
"""The settings that determine what there is to learn."""


class Learnt(NamedTuple):
    """What trials must have in common, beside their config, to be averaged or drawn together."""

    num_tasks: int
    """0 if the trial failed."""
    num_classes: int
    classes: str
    """A fingerprint of the tasks and the names of the classes."""


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
    num_classes: int
    classes: str
    hardware: str
    """The processor or device, and torch's version: rounding depends on them. Empty: unknown."""
    cell: str
    """The canonical form of the config with seed 0."""
    packed: bytes
    """All metrics in the order of SCORES as float64, little-endian."""

    @property
    def learnt(self) -> Learnt:
        """The tasks and classes that it has learnt."""
        return Learnt(self.num_tasks, self.num_classes, self.classes)

    @property
    def scores(self) -> dict[str, float]:
        """All metrics by name; NaN where one is not defined."""
        return dict(zip(SCORES, unpack([self.packed])[0].tolist(), strict=True))

    @property
    def system(self) -> str:
        """The method with its mask, as tables print it."""
        return system_name(self.method, self.mask, self.title)


def summary_of(record: TrialRecord) -> TrialSummary:
    """Summarise a record."""
    config = record.config
    device = record.machine.get("device") or record.machine.get("processor")
    torch = record.versions.get("torch")
    return TrialSummary(
        *(config.hash, config.benchmark, config.method, config.mask, config.buffer, config.seed),
        *(record.status, record.title, write_moment(record.created), record.error, record.seconds),
        *(len(record.class_il), len(record.confidence)),
        classes=_fingerprint(record.tasks, record.class_names),
        hardware=", ".join([str(device), *([f"torch {torch}"] if torch else [])]) if device else "",
        cell=config.cell.canonical,
        packed=pack(scores(record).values()),
    )


@lru_cache(maxsize=256)
def _fingerprint(tasks: Tasks, class_names: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps([tasks, class_names]).encode()).hexdigest()[:16]


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
    """Their records, unless it is from `summarise_listed`."""

    @cached_property
    def _finished(self) -> list[TrialSummary]:
        return [trial for trial in self.summaries if trial.status == "finished"]

    @cached_property
    def finished(self) -> tuple[TrialRecord, ...]:
        """The records of the finished trials."""
        return tuple(record for record in self.records if record.status == "finished")

    @property
    def title(self) -> str | None:
        """The title of a custom method, if it has one."""
        return _own_title(self.summaries)

    @property
    def trials(self) -> int:
        """The number of finished trials."""
        return len(self._finished)

    @property
    def diverged(self) -> int:
        """The number of diverged trials."""
        return sum(trial.status == "diverged" for trial in self.summaries)

    @property
    def failed(self) -> int:
        """The number of failed trials."""
        return sum(trial.status == "failed" for trial in self.summaries)

    @property
    def has_validation(self) -> bool:
        """Whether its trials held out training data, and were also measured on it."""
        return self.config.validation > 0

    @property
    def hardware(self) -> tuple[str, ...]:
        """The kinds of hardware of the finished trials; the last digits may differ between two."""
        return tuple(sorted({trial.hardware for trial in self._finished} - {""}))

    @property
    def learnt(self) -> Learnt:
        """The tasks and classes that its finished trials have learnt."""
        return self._finished[0].learnt if self._finished else Learnt(0, 0, "")

    @property
    def tasks(self) -> Tasks | None:
        """The classes of each task, in order of learning; None if no trial finished."""
        return self.finished[0].tasks if self.finished else None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, by label; None if no trial finished."""
        return self.finished[0].class_names if self.finished else None

    @cached_property
    def _scores(self) -> NDArray[np.float64]:
        return unpack([trial.packed for trial in self._finished])

    def values(self, metric: str) -> list[float]:
        """A metric of each finished trial, by seed; NaN where it is not defined."""
        found: list[float] = self._scores[:, SCORES.index(metric)].tolist()
        return found

    @cached_property
    def spreads(self) -> dict[str, Spread]:
        """Every metric by name; NaN where none was measured."""
        return dict(zip(SCORES, spreads(self._scores), strict=True))

    @cached_property
    def costs(self) -> dict[str, Spread]:
        """The costs of a trial, see COSTS; NaN where one is unknown."""
        found = {name: [getattr(record, name) for record in self.finished] for name in COSTS}
        return {
            name: spread([math.nan if value is None else float(value) for value in values])
            for name, values in found.items()
        }


def summarise(records: Iterable[TrialRecord]) -> list[Cell]:
    """Group the trials into cells, ordered by benchmark, method, mask, buffer and the rest.

    Trials of one config that have not learnt the same, because a custom benchmark was changed,
    are separate cells with different labels.
    """
    return _cells((summary_of(record), record) for record in records)


def summarise_listed(trials: Iterable[TrialSummary]) -> list[Cell]:
    """Group trials into cells as `summarise` does, without their records."""
    return _cells((trial, None) for trial in trials)


_Trial = tuple[TrialSummary, TrialRecord | None]


def _cells(trials: Iterable[_Trial]) -> list[Cell]:
    groups: dict[str, list[_Trial]] = {}
    for trial in trials:
        groups.setdefault(trial[0].cell, []).append(trial)
    by_config = sorted(
        ((cell_config(cell), group) for cell, group in groups.items()),
        key=lambda one: _order(one[0]),
    )
    titles = {config: _own_title(summary for summary, _ in group) for config, group in by_config}
    labels = cell_labels(list(titles), titles)
    return [
        Cell(
            config,
            label + suffix,
            tuple(summary for summary, _ in alike),
            tuple(record for _, record in alike if record is not None),
        )
        for (config, group), label in zip(by_config, labels, strict=True)
        for suffix, alike in _versions(group)
    ]


def _versions(trials: Sequence[_Trial]) -> list[tuple[str, list[_Trial]]]:
    """Groups of trials of one config that have learnt the same, with suffixes of their labels."""
    if len({(summary.num_tasks, summary.classes) for summary, _ in trials}) == 1:
        return [("", sorted(trials, key=lambda trial: trial[0].seed))]
    by_age = sorted(trials, key=lambda trial: trial[0].created)
    groups = group_alike([t for t in by_age if t[0].num_tasks], lambda trial: trial[0].learnt)
    groups = groups or [[]]
    # Trials that failed have learnt nothing; they are counted with the newest ones.
    groups[-1] += [trial for trial in by_age if not trial[0].num_tasks]
    for group in groups:
        group.sort(key=lambda trial: trial[0].seed)
    if len(groups) == 1:
        return [("", groups[0])]
    sizes = [max(trial[0].num_tasks for trial in group) for group in groups]
    numbers, seen = Counter(sizes), Counter[int]()
    found = []
    for tasks, group in zip(sizes, groups, strict=True):
        seen[tasks] += 1
        version = f" ({seen[tasks]})" if numbers[tasks] > 1 else ""
        found.append((f", {tasks} tasks{version}", group))
    return found


def cell_labels(
    configs: Sequence[TrialConfig], titles: Mapping[TrialConfig, str | None] | None = None
) -> list[str]:
    """Label the configs so that no two rows of a table look the same.

    `titles` are those of custom methods.
    """
    differing: dict[tuple[object, ...], tuple[dict[str, object], set[str]]] = {}
    settings = [{**vars(config), **dict(config.weights)} for config in configs]
    for own in settings:
        del own["weights"]
        shown = tuple(own[name] for name in _SHOWN)
        first, names = differing.setdefault(shown, (own, set()))
        names |= {name for name, _ in own.items() ^ first.items()}
    labels = []
    for config, own in zip(configs, settings, strict=True):
        _, names = differing[tuple(own[name] for name in _SHOWN)]
        system = system_name(config.method, config.mask, (titles or {}).get(config))
        parts = (f"{name}={value}" for name, value in own.items() if name in names)
        labels.append(", ".join([system, *parts]))
    return labels


def _values(config: TrialConfig, names: Iterable[str]) -> tuple[object, ...]:
    return tuple(getattr(config, name) for name in names)


def _order(config: TrialConfig) -> list[tuple[bool, bool, object]]:
    names = dict.fromkeys((*_SHOWN, *type(config).model_fields))
    # A class order may be a tuple, and a mask a word, which cannot be compared with numbers.
    return [
        (value is not None, isinstance(value, tuple | str), 0 if value is None else value)
        for value in _values(config, names)
    ]


def _own_title(trials: Iterable[TrialSummary]) -> str | None:
    """The title in the latest trial that has one: a failed one has none."""
    titled = [trial for trial in trials if trial.title is not None]
    return max(titled, key=lambda trial: trial.created).title if titled else None


def group_alike(items: Iterable[_Item], learnt: Callable[[_Item], Learnt]) -> list[list[_Item]]:
    """Group the items that have learnt the same, in the order in which each first appears."""
    groups: dict[Learnt, list[_Item]] = {}
    for item in items:
        groups.setdefault(learnt(item), []).append(item)
    return list(groups.values())


def group_but_mask(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Group the cells whose settings differ only in the mask and that have learnt the same."""
    groups: dict[tuple[TrialConfig, Learnt], list[Cell]] = {}
    for cell in cells:
        unmasked = cell.config.model_copy(update={"mask": None, "positive_mask": False, "seed": 0})
        groups.setdefault((unmasked, cell.learnt), []).append(cell)
    return list(groups.values())


def group_by_data(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Group the cells with the same training data, by the settings in which the data differ."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(_values(cell.config, _DATA), []).append(cell)
    differing = [at for at, values in enumerate(zip(*groups, strict=True)) if len({*values}) > 1]
    return {
        ", ".join(f"{_DATA[at]}={key[at]}" for at in differing): group
        for key, group in groups.items()
    }
