"""From trials to cells: what trials that differ only in their seed show together."""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from remask.classes import Tasks
from remask.config import TrialConfig
from remask.record import TrialRecord
from remask.results.labels import COLUMNS, cell_labels
from remask.results.trial_scores import COSTS, SCORES, Spread, Spreads, spread, unpacked
from remask.results.trial_summary import Learnt, Trial, TrialSummary, learnt_by, summary_of


class AnyCell(ABC):
    """What the trials of one config show together. Means are over the finished ones alone."""

    config: TrialConfig
    label: str

    @abstractmethod
    def _summaries(self) -> Sequence[TrialSummary]: ...

    @cached_property
    def _finished(self) -> list[TrialSummary]:
        return [trial for trial in self._summaries() if trial.status == "finished"]

    @property
    def title(self) -> str | None:
        """What a custom method calls itself, if a trial contains it."""
        return own_title(self._summaries())

    @property
    def trials(self) -> int:
        """How many trials finished."""
        return len(self._finished)

    @property
    def has_validation(self) -> bool:
        """Whether its trials held training data out, and were measured on it, too."""
        return self.config.validation > 0

    @property
    def diverged(self) -> int:
        """How many trials diverged."""
        return sum(trial.status == "diverged" for trial in self._summaries())

    @property
    def failed(self) -> int:
        """How many trials failed."""
        return sum(trial.status == "failed" for trial in self._summaries())

    @property
    def hardware(self) -> tuple[str, ...]:
        """The kinds of hardware its finished trials ran on, as far as their records contain it.

        Of two kinds, the last digits may differ for that reason alone.
        """
        return tuple(sorted({trial.hardware for trial in self._finished} - {""}))

    @cached_property
    def learnt(self) -> Learnt:
        """What its finished trials have learnt; classes are known only if all of them are."""
        found = {trial.learnt for trial in self._finished}
        unknown = next((learnt for learnt in found if learnt.classes is None), None)
        return unknown or next(iter(found), Learnt(0, 0, None))

    def values(self, metric: str) -> list[float]:
        """A metric of each finished trial, by seed; NaN where it is not defined."""
        found = unpacked([trial.packed for trial in self._finished])
        return [float(value) for value in found[:, SCORES.index(metric)]]

    @cached_property
    def spreads(self) -> Mapping[str, Spread]:
        """Every metric, `class_il_A_T` and so on; NaN where none was measured."""
        return Spreads(SCORES, unpacked([trial.packed for trial in self._finished]).T)


@dataclass(frozen=True)
class ListedCell(AnyCell):
    """The trials of one config, with any seed, without their records."""

    config: TrialConfig
    """The config of any of the trials; its seed means nothing."""
    label: str
    """The method's name in tables, with what sets it apart from similar ones: `ER, lr=0.1`."""
    listed: tuple[TrialSummary, ...]
    """All its trials, by seed."""

    def _summaries(self) -> Sequence[TrialSummary]:
        return self.listed


@dataclass(frozen=True)
class Cell(AnyCell):
    """The trials of one config, with any seed. All have learnt the same tasks, if known."""

    config: TrialConfig
    """The config of any of the trials; its seed means nothing."""
    label: str
    """The method's name in tables, with what sets it apart from similar ones: `ER, lr=0.1`."""
    records: tuple[TrialRecord, ...]
    """All its trials, by seed."""

    @cached_property
    def summaries(self) -> tuple[TrialSummary, ...]:
        """The same trials without their records."""
        return tuple(map(summary_of, self.records))

    def _summaries(self) -> Sequence[TrialSummary]:
        return self.summaries

    @cached_property
    def finished(self) -> tuple[TrialRecord, ...]:
        """The trials that are in the means."""
        return tuple(record for record in self.records if record.status == "finished")

    @property
    def tasks(self) -> Tasks | None:
        """The classes of each task, in order of learning; None if they are not known."""
        return self.finished[0].tasks if self.learnt.classes is not None else None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What the classes are called, by label; None if that is not known."""
        return self.finished[0].class_names if self.learnt.classes is not None else None

    @cached_property
    def costs(self) -> dict[str, Spread]:
        """What a trial took, see COSTS; NaN where a record does not contain it."""
        found = {name: [getattr(record, name) for record in self.finished] for name in COSTS}
        return {
            name: spread([math.nan if value is None else float(value) for value in values])
            for name, values in found.items()
        }


def summarise(records: Iterable[TrialRecord]) -> list[Cell]:
    """Group the trials into cells, ordered by benchmark, method, mask, buffer and the rest.

    Trials of one config that have not learnt the same, because a custom benchmark was
    changed, are separate cells with different labels.
    """
    by_cell = [(record.config.cell, record) for record in records]
    return [Cell(*group) for group in _grouped(by_cell, learnt_by)]


def summarise_listed(trials: Iterable[TrialSummary]) -> list[ListedCell]:
    """Group trials into cells as `summarise` does, without their records."""
    by_cell = [(trial.cell, trial) for trial in trials]
    return [ListedCell(*group) for group in _grouped(by_cell, lambda trial: trial.learnt)]


_Trial = TypeVar("_Trial", bound=Trial)


def _grouped(
    trials: Sequence[tuple[TrialConfig, _Trial]], learnt: Callable[[_Trial], Learnt]
) -> list[tuple[TrialConfig, str, tuple[_Trial, ...]]]:
    """The config, the label and the trials of each cell."""
    groups: dict[TrialConfig, list[_Trial]] = {}
    by_id: dict[int, list[_Trial]] = {}  # to hash a config takes long, and many are one object
    for config, trial in trials:
        group = by_id.get(id(config))
        if group is None:
            group = by_id[id(config)] = groups.setdefault(config, [])
        group.append(trial)
    configs = sorted(groups, key=_order)
    titles = {config: own_title(groups[config]) for config in configs}
    return [
        (config, label + suffix, group)
        for config, label in zip(configs, cell_labels(configs, titles), strict=True)
        for suffix, group in _versions(groups[config], learnt)
    ]


def _versions(
    trials: Sequence[_Trial], learnt: Callable[[_Trial], Learnt]
) -> list[tuple[str, tuple[_Trial, ...]]]:
    """Groups of trials of one config that have learnt the same, with what labels add to them."""
    shown = [trial for trial in trials if learnt(trial).num_tasks]
    # A trial that failed has learnt nothing; it is counted where the newest trials are.
    blank = [trial for trial in trials if not learnt(trial).num_tasks]
    alike = group_alike(sorted(shown, key=lambda trial: trial.created), learnt) or [[]]
    alike[-1] += blank
    sizes = [learnt(group[0]).num_tasks for group in alike]
    numbers, seen = Counter(sizes), Counter[int]()
    found = []
    for tasks, group in zip(sizes, alike, strict=True):
        seen[tasks] += 1
        version = f" ({seen[tasks]})" if numbers[tasks] > 1 else ""
        suffix = f", {tasks} tasks{version}" if len(alike) > 1 else ""
        found.append((suffix, tuple(sorted(group, key=lambda trial: trial.seed))))
    return found


_Item = TypeVar("_Item")


def group_alike(items: Sequence[_Item], learnt: Callable[[_Item], Learnt]) -> list[list[_Item]]:
    """Group what has learnt the same, in the order in which each first appears.

    Items whose classes are not known join the only group of their size, if there is exactly one.
    """
    keys = [learnt(item) for item in items]
    of_size: dict[tuple[int, int], dict[Learnt, None]] = {}
    for key in keys:
        if key.classes is not None:
            of_size.setdefault(key[:2], {})[key] = None
    groups: dict[Learnt, list[_Item]] = {}
    for item, key in zip(items, keys, strict=True):
        same_size = of_size.get(key[:2], {})
        alone = key.classes is None and len(same_size) == 1
        groups.setdefault(next(iter(same_size)) if alone else key, []).append(item)
    return list(groups.values())


def group_but_mask(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Group the cells whose settings differ in the mask alone and that have learnt the same."""
    groups: dict[TrialConfig, list[Cell]] = {}
    for cell in cells:
        unmasked = {"mask": None, "positive_mask": False, "seed": 0}
        groups.setdefault(cell.config.model_copy(update=unmasked), []).append(cell)
    return [
        alike for group in groups.values() for alike in group_alike(group, lambda cell: cell.learnt)
    ]


def group_by_data(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Group the cells whose trials were given the same data to learn, by what to call it."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(getattr(cell.config, name) for name in _DATA), []).append(cell)
    # What all of them have in common tells nothing.
    telling = [at for at, values in enumerate(zip(*groups, strict=True)) if len({*values}) > 1]
    return {
        ", ".join(f"{_DATA[at]}={key[at]}" for at in telling): group
        for key, group in groups.items()
    }


_DATA = ("benchmark", "tasks", "class_order", "limit", "validation")


def own_title(trials: Iterable[Trial]) -> str | None:
    """The title of the method in the latest trial that has one: a failed one has none."""
    titled = [trial for trial in trials if trial.title is not None]
    return max(titled, key=lambda trial: trial.created).title if titled else None


def _order(config: TrialConfig) -> list[tuple[bool, bool, object]]:
    others = [name for name in type(config).model_fields if name not in COLUMNS]
    values = [getattr(config, name) for name in (*COLUMNS, *others)]
    # A class order may be a tuple, and a mask a word, which cannot be compared with numbers.
    return [
        (value is not None, isinstance(value, tuple | str), 0 if value is None else value)
        for value in values
    ]
