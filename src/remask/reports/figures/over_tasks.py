"""What happens to each task as others are learnt: confidence, accuracy, accuracy matrices."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from remask.reports.figures.data import (
    Array,
    Row,
    Systems,
    heights,
    is_measured,
    known,
    matrices,
    over_trials,
    summary,
)
from remask.reports.figures.description import Axis, Figure, Panel
from remask.reports.measures import SETTINGS
from remask.results import Cell

_MANY_CLASSES = 40
"""From here on there is no room for a marker and a bar per class."""
_MOST_TASKS = 5
"""With a panel of their own."""
_ACCURACY = Axis("right answers (%)")


def confidence_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """How sure of each class, and how right on each task, the nets are after the last task."""
    panels: list[Panel] = []
    for number, row in enumerate(rows):
        sure = [cell for cell in row.cells if is_measured(_confidences(cell))]
        if told := [cell for cell in sure if cell.tasks]:
            panels.append(_confidence_panel(row, told, number, systems))
        if untold := [cell for cell in sure if not cell.tasks]:
            labels = " and ".join(row.name(cell) for cell in untold)
            message = f"The records of {labels} do not say which classes each task has; trials "
            message += "that are run again will."
            marks = tuple(systems.mark("line", "", [cell], (), y=()) for cell in untold)
            title = "Confidence in each class"
            panels.append(Panel(title, Axis(""), Axis(""), marks, number, message=message))
        if ended := [cell for cell in row.cells if is_measured(_final(cell, setting))]:
            places = _numbered(len(_final(ended[0], setting)[0]))
            tasks = Axis("task", places, tuple(f"task {n}, after the last task" for n in places))
            marks = tuple(
                systems.mark("line", row.name(cell), [cell], range(len(places)), **heights(means))
                for cell in ended
                if (means := over_trials(_final(cell, setting)))
            )
            title = f"{SETTINGS[setting]} accuracy on each task"
            panels.append(Panel(title, tasks, _ACCURACY, marks, number, "bars"))
    return Figure(
        key="confidence",
        title="What is still known after the last task",
        summary=summary(rows, "after the last task, mean ± std"),
        caption="Confidence is the mean probability that the network gives to the true class of a "
        "test sample. A flat line is an even memory; one that climbs to the right is sure only of "
        "what was learnt last.",
        notes="From the first task's classes to the last's:",
        empty="None of the chosen systems has been measured at the end.",
        panels=tuple(panels),
        rows=tuple(row.title for row in rows),
    )


def _confidence_panel(row: Row, cells: Sequence[Cell], number: int, systems: Systems) -> Panel:
    tasks, class_names = cells[0].tasks, cells[0].class_names
    assert tasks is not None
    assert class_names is not None
    order = [class_id for task in tasks for class_id in task]
    ends = np.cumsum([0, *map(len, tasks)]).tolist()
    names = [f"task {task}" for task in _numbered(len(tasks))]
    marks = []
    for cell in cells:
        sure = _confidences(cell)
        first, last = (sure[:, list(task)].mean() for task in (tasks[0], tasks[-1]))
        is_known = len(tasks) > 1 and np.isfinite(first + last)
        note = f"{cell.label} {first:.0f} → {last:.0f}\N{NO-BREAK SPACE}%" if is_known else ""
        means = heights(over_trials(sure[:, order]))
        line = systems.mark("line", row.name(cell), [cell], range(len(order)), **means, note=note)
        marks.append(line)
    classes = Axis(
        "class",
        tuple(class_names[class_id] for class_id in order),
        tuple(
            f"class {class_names[class_id]}, {name}"
            for name, task in zip(names, tasks, strict=True)
            for class_id in task
        ),
        spans=tuple(zip(ends[:-1], ends[1:], names, strict=True)),
    )
    confidence = Axis("probability of the true class (%)")
    std_as: Literal["bars", "band"] = "bars" if len(order) <= _MANY_CLASSES else "band"
    title = "Confidence in each class"
    return Panel(title, classes, confidence, tuple(marks), number, std_as)


def accuracy_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Accuracy while tasks are learnt: the mean of all seen, then task by task.

    The last task has nothing after it. Of very many others some are drawn, evenly spaced.
    """
    panels: list[Panel] = []
    left_out = ""
    for number, row in enumerate(rows):
        # A method that is tested only once, at the end, has no course to show.
        found = [(cell, matrices(cell, setting)) for cell in row.cells]
        followed = [(c, a) for c, a in found if a.size > len(a) and is_measured(a[:, 0, 0])]
        if not followed:
            continue
        tasks = followed[0][1].shape[1]
        shown = np.linspace(0, tasks - 2, min(tasks - 1, _MOST_TASKS)).round().astype(int).tolist()
        if len(shown) < tasks - 1:
            left_out = f" {len(shown)} of {tasks} tasks are drawn."
        for task in (None, *shown):
            of = "all tasks so far" if task is None else f"task {task + 1}"
            marks = []
            for cell, accuracy in followed:
                values = _mean_of_seen(accuracy) if task is None else accuracy[:, task:, task]
                course = accuracy[:, :, 0].mean(axis=0)
                note = f"{cell.label} {course[0]:.1f} → {course[-1]:.1f}\N{NO-BREAK SPACE}%"
                means = heights(over_trials(values))
                places = range(task or 0, tasks)
                marks.append(
                    systems.mark(
                        "line", row.name(cell), [cell], places, **means, note=note * (task is None)
                    )
                )
            where = tuple(f"{of}, after task {n}" for n in _numbered(tasks))
            after = Axis("after task", _numbered(tasks), where)
            panels.append(
                Panel(
                    of.capitalize(),
                    after,
                    _ACCURACY,
                    tuple(marks),
                    number,
                    "bars" if task is None else "band",
                    large=task is None and bool(shown),
                )
            )
    return Figure(
        key="accuracy-over-tasks",
        title="Accuracy while later tasks are learnt",
        summary=summary(rows, f"{SETTINGS[setting]}, mean ± std"),
        caption="A line that falls is a task being forgotten while later ones are learnt; one that "
        f"stays level is remembered.{left_out}",
        notes="Task 1, from when it was learnt to the end:",
        empty="None of the chosen systems was tested after more than one task.",
        panels=tuple(panels),
        rows=tuple(row.title for row in rows),
        same_range=True,
        size=(215, 210),
        inches=1.7,
    )


def matrices_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Accuracy matrices as heat maps, a panel per cell; blank is what was not measured."""
    panels: list[Panel] = []
    for number, row in enumerate(rows):
        for cell in row.cells:
            accuracy = matrices(cell, setting)
            if not is_measured(accuracy):
                continue
            mean = accuracy.mean(axis=0)
            after, task = np.nonzero(~np.isnan(mean))
            parts = {"y": known(after), "values": known(mean[after, task])}
            places = _numbered(len(mean))
            across = Axis("accuracy on task", places, tuple(f"task {n}" for n in places))
            down = Axis("after task", places, tuple(f"after task {n}" for n in places))
            heat = systems.mark("heat", "", [cell], task, **parts)
            panels.append(Panel(row.name(cell), across, down, (heat,), number))
    return Figure(
        key="matrices",
        title="Accuracy on every task after every task",
        summary=summary(rows, f"{SETTINGS.get(setting, setting)}, mean"),
        caption="Each row is the state after one more task, each column a task. Read down a "
        "column: where it pales, that task is being forgotten. The diagonal shows how well each "
        "task was learnt in the first place.",
        empty="None of the chosen systems has an accuracy matrix here.",
        panels=tuple(panels),
        rows=tuple(row.title for row in rows),
        size=(160, 300),
    )


def _confidences(cell: Cell) -> Array:
    """The confidence in each class by its label, [S, K] in percent."""
    return 100 * np.array([record.confidence for record in cell.finished], dtype=np.float64)


def _final(cell: Cell, setting: str) -> Array:
    """The accuracy on each task after the last, [S, T]."""
    accuracy = matrices(cell, setting)
    return accuracy[:, -1] if len(accuracy) else accuracy


def _mean_of_seen(accuracy: Array) -> Array:
    """The mean accuracy on the tasks seen by then, after each task: [S, T, T] -> [S, T]."""
    tasks = accuracy.shape[-1]
    seen = np.where(np.tri(tasks, dtype=bool), accuracy, 0.0)
    return np.asarray(seen.sum(axis=-1) / np.arange(1, tasks + 1))


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(1, count + 1))
