"""From trials to cells: what trials that differ only in their seed show together."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from remask.classes import Tasks
from remask.config import TrialConfig
from remask.results.labels import COLUMNS, cell_labels
from remask.results.record import TrialRecord
from remask.results.trial_scores import COSTS, SCORES, Spread, scores, spread


class Learnt(NamedTuple):
    """What trials must have in common to be averaged or drawn together, beside their config."""

    num_tasks: int
    num_classes: int
    tasks: Tasks | None
    class_names: tuple[str, ...] | None


@dataclass(frozen=True)
class Cell:
    """The trials of one config, with any seed. Means are over the finished ones alone.

    All have learnt the same tasks, as far as their records say.
    """

    config: TrialConfig
    """The config of any of the trials; its seed means nothing."""
    label: str
    """The method's name in tables, with what sets it apart from similar ones: `ER, lr=0.1`."""
    records: tuple[TrialRecord, ...]
    """All its trials, by seed."""

    @property
    def title(self) -> str | None:
        """What a custom method calls itself, if a trial says so."""
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
    def has_validation(self) -> bool:
        """Whether its trials held training data out, and were measured on it, too."""
        return self.config.validation > 0

    @property
    def diverged(self) -> int:
        """How many trials diverged."""
        return sum(record.status == "diverged" for record in self.records)

    @property
    def failed(self) -> int:
        """How many trials failed."""
        return sum(record.status == "failed" for record in self.records)

    @property
    def hardware(self) -> tuple[str, ...]:
        """The kinds of hardware its finished trials ran on, as far as their records say.

        Of two kinds, the last digits may differ for that reason alone.
        """
        return tuple(sorted({kind for record in self.finished if (kind := hardware_of(record))}))

    @cached_property
    def learnt(self) -> Learnt:
        """What its finished trials have learnt; tasks are known only if all of them say so."""
        found = {learnt_by(record) for record in self.finished}
        unknown = next((learnt for learnt in found if learnt.tasks is None), None)
        return unknown or next(iter(found), Learnt(0, 0, None, None))

    @property
    def tasks(self) -> Tasks | None:
        """The classes of each task, in order of learning; None if they are not known."""
        return self.learnt.tasks

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What the classes are called, by label; None if that is not known."""
        return self.learnt.class_names

    @cached_property
    def spreads(self) -> dict[str, Spread]:
        """Every metric, `class_il_A_T` and so on; NaN where none was measured."""
        found = [scores(record) for record in self.finished]
        return {name: spread([score[name] for score in found]) for name in SCORES}

    @cached_property
    def costs(self) -> dict[str, Spread]:
        """What a trial took, see COSTS; NaN where a record does not say."""
        found = {name: [getattr(record, name) for record in self.finished] for name in COSTS}
        return {
            name: spread([math.nan if value is None else float(value) for value in values])
            for name, values in found.items()
        }


def hardware_of(record: TrialRecord) -> str:
    """What a trial's rounding depends on: the processor or device, and torch; empty: not known."""
    computed_on = record.machine.get("device") or record.machine.get("processor")
    torch = record.versions.get("torch")
    if not computed_on:
        return ""
    return f"{computed_on}, torch {torch}" if torch else str(computed_on)


def summarise(records: Iterable[TrialRecord]) -> list[Cell]:
    """Group the trials into cells, ordered by benchmark, method, mask, buffer and the rest.

    Trials of one config that have not learnt the same, because a custom benchmark was
    changed, are separate cells, and their labels say so.
    """
    groups: dict[TrialConfig, list[TrialRecord]] = {}
    for record in records:
        groups.setdefault(record.config.cell, []).append(record)
    configs = sorted(groups, key=_order)
    titles = {config: own_title(groups[config]) for config in configs}
    return [
        cell
        for config, label in zip(configs, cell_labels(configs, titles), strict=True)
        for cell in _cells(config, label, groups[config])
    ]


def _cells(config: TrialConfig, label: str, records: Sequence[TrialRecord]) -> list[Cell]:
    shown = [record for record in records if record.class_il]
    # A trial that failed has learnt nothing; it is counted where the newest trials are.
    blank = [record for record in records if not record.class_il]
    alike = group_alike(sorted(shown, key=lambda record: record.created), learnt_by) or [[]]
    alike[-1] += blank
    numbers = Counter(len(group[0].class_il) for group in alike)
    cells, seen = [], Counter[int]()
    for group in alike:
        tasks = len(group[0].class_il)
        seen[tasks] += 1
        version = f" ({seen[tasks]})" if numbers[tasks] > 1 else ""
        suffix = f", {tasks} tasks{version}" if len(alike) > 1 else ""
        by_seed = tuple(sorted(group, key=lambda record: record.seed))
        cells.append(Cell(config, label + suffix, by_seed))
    return cells


def learnt_by(record: TrialRecord) -> Learnt:
    """What a trial has learnt, as far as its record says."""
    sizes = len(record.class_il), len(record.confidence)
    return Learnt(*sizes, record.tasks, record.class_names)


_Item = TypeVar("_Item")


def group_alike(items: Sequence[_Item], learnt: Callable[[_Item], Learnt]) -> list[list[_Item]]:
    """Group what has learnt the same, in the order in which each first appears.

    What does not say its tasks goes with the only group of its size, if there is just one: nobody
    knows of a difference.
    """
    known = dict.fromkeys(found for item in items if (found := learnt(item)).tasks is not None)
    groups: dict[Learnt, list[_Item]] = {}
    for item in items:
        own = learnt(item)
        of_its_size = [other for other in known if other[:2] == own[:2]]
        key = of_its_size[0] if own.tasks is None and len(of_its_size) == 1 else own
        groups.setdefault(key, []).append(item)
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


def own_title(records: Iterable[TrialRecord]) -> str | None:
    """What the method called itself in the latest trial that tells: a failed one does not."""
    told = [record for record in records if record.title is not None]
    return max(told, key=lambda record: record.created).title if told else None


def _order(config: TrialConfig) -> list[tuple[bool, bool, object]]:
    others = [name for name in type(config).model_fields if name not in COLUMNS]
    values = [getattr(config, name) for name in (*COLUMNS, *others)]
    # A class order may be a tuple, and a mask a word, which cannot be compared with numbers.
    return [
        (value is not None, isinstance(value, tuple | str), 0 if value is None else value)
        for value in values
    ]
