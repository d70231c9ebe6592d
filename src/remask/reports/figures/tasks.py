"""Figures over tasks: confidence, accuracy, accuracy matrices and confusion matrices."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from remask.record import TrialRecord
from remask.reports.figures.description import (
    Array,
    Axis,
    Figure,
    Mark,
    Panel,
    Row,
    Systems,
    by_row,
    is_measured,
    numbers,
    summary,
)
from remask.reports.measures import SETTINGS
from remask.store.cells import Cell

_MANY_CLASSES = 40
"""With more classes there is no room for a marker and a bar each."""
_MOST_TASKS = 5
"""Tasks with a panel of their own."""
_MOST_CONFUSED = 20
"""With more classes, confusion matrices are of tasks."""
_LEAST_CONFUSED = 0.5  # percent; less would be written as 0
_ACCURACY = Axis("accuracy (%)")


def confidence_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Confidence in each class and accuracy on each task, after the last task."""

    def panels(row: Row) -> Iterator[Panel]:
        if sure := [c for c in row.cells if c.tasks and is_measured(_confidences(c))]:
            yield _confidence_panel(row, sure, systems)
        final = [(c, found[:, -1]) for c in row.cells if (found := _matrices(c, setting)).size]
        if final := [(cell, accuracy) for cell, accuracy in final if is_measured(accuracy)]:
            marks = [systems.over_trials(row.name(c), c, accuracy) for c, accuracy in final]
            tasks = _tasks_axis("task", final[0][1].shape[1], "task {}, after the last task")
            title = f"{SETTINGS[setting]} accuracy on each task"
            yield Panel(title, tasks, _ACCURACY, tuple(marks), std_as="bars")

    what = "after the last task, mean ± std"
    return Figure(key="confidence", summary=summary(rows, what), panels=by_row(rows, panels))


def _tasks_axis(title: str, tasks: int, where: str) -> Axis:
    places = tuple(str(number) for number in range(1, tasks + 1))
    return Axis(title, places, tuple(where.format(place) for place in places))


def _confidence_panel(row: Row, cells: Sequence[Cell], systems: Systems) -> Panel:
    tasks, class_names = cells[0].tasks or (), cells[0].class_names or ()
    marks = []
    for cell in cells:
        sure = _confidences(cell)
        first, last = (sure[:, list(task)].mean() for task in (tasks[0], tasks[-1]))
        is_known = len(tasks) > 1 and np.isfinite(first + last)
        note = f"{cell.label} {first:.0f} → {last:.0f}\N{NO-BREAK SPACE}%" if is_known else ""
        in_order = sure[:, [class_id for task in tasks for class_id in task]]
        mark = systems.over_trials(row.name(cell), cell, in_order, kind="points", note=note)
        marks.append(mark)
    names: list[str] = []
    where: list[str] = []
    spans: list[tuple[int, int, str]] = []
    for number, task in enumerate(tasks, start=1):
        spans.append((len(names), len(names) + len(task), f"task {number}"))
        names += [class_names[class_id] for class_id in task]
        where += [f"class {class_names[class_id]}, task {number}" for class_id in task]
    return Panel(
        "Confidence in each class",
        Axis("class", tuple(names), tuple(where), spans=tuple(spans)),
        Axis("probability of the true class (%)"),
        tuple(marks),
        std_as="bars" if len(names) <= _MANY_CLASSES else "band",
    )


def accuracy_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Accuracy after each task: the mean of all tasks so far, and of each task but the last.

    Of many tasks some are drawn, evenly spaced.
    """

    def panels(row: Row) -> Iterator[Panel]:
        # A method that is tested only at the end has no curve.
        found = [(cell, _matrices(cell, setting)) for cell in row.cells]
        found = [(c, a) for c, a in found if a.size > len(a) and is_measured(a[:, 0, 0])]
        if not found:
            return
        tasks = found[0][1].shape[1]
        shown = np.linspace(0, tasks - 2, min(tasks - 1, _MOST_TASKS)).round().astype(int).tolist()
        marks = tuple(_mean_so_far(row.name(cell), cell, own, systems) for cell, own in found)
        axis = _tasks_axis("after task", tasks, "all tasks so far, after task {}")
        large = bool(shown)
        yield Panel("All tasks so far", axis, _ACCURACY, marks, std_as="bars", large=large)
        for task in shown:
            marks = tuple(
                systems.over_trials(row.name(cell), cell, own[:, task:, task], first=task)
                for cell, own in found
            )
            axis = _tasks_axis("after task", tasks, f"task {task + 1}, after task {{}}")
            yield Panel(f"Task {task + 1}", axis, _ACCURACY, marks)

    drawn = by_row(rows, panels)
    tasks = max((len(panel.x.places) for panel in drawn), default=0)
    left_out = f"{_MOST_TASKS} of {tasks} tasks are drawn." if tasks - 1 > _MOST_TASKS else ""
    return Figure(
        key="accuracy-over-tasks",
        summary=summary(rows, f"{SETTINGS[setting]}, mean ± std"),
        panels=drawn,
        remark=left_out,
        same_range=True,
        inches=1.7,
    )


def _mean_so_far(name: str, cell: Cell, accuracy: Array, systems: Systems) -> Mark:
    tasks = accuracy.shape[1]
    seen = np.where(np.tri(tasks, dtype=bool), accuracy, 0.0)
    means = seen.sum(axis=-1) / np.arange(1, tasks + 1)
    first = accuracy[:, :, 0].mean(axis=0)
    note = f"{cell.label} {first[0]:.1f} → {first[-1]:.1f}\N{NO-BREAK SPACE}%"
    return systems.over_trials(name, cell, means, note=note)


def matrices_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Accuracy matrices as heat maps, a panel per cell."""

    def panels(row: Row) -> Iterator[Panel]:
        for cell in row.cells:
            accuracy = _matrices(cell, setting)
            if is_measured(accuracy):
                mean = accuracy.mean(axis=0)
                across = _tasks_axis("accuracy on task", len(mean), "on task {}")
                down = _tasks_axis("after task", len(mean), "after task {}")
                heat = _heat(mean, ~np.isnan(mean), cell, systems)
                yield Panel(row.name(cell), across, down, (heat,))

    what = f"{SETTINGS.get(setting, setting)}, mean"
    return Figure(key="matrices", summary=summary(rows, what), panels=by_row(rows, panels))


def confusion_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Confusion matrices after the last task in percent; of tasks if there are many classes."""

    def panels(row: Row) -> Iterator[Panel]:
        for cell in row.cells:
            counts, names = _confusion(cell)
            shares = 100 * (counts / counts.sum(axis=-1, keepdims=True)).mean(axis=0)
            heat = _heat(shares, shares >= _LEAST_CONFUSED, cell, systems)
            predicted, true = (
                Axis(what, names, tuple(f"{what} {name}" for name in names))
                for what in ("predicted", "true")
            )
            yield Panel(row.name(cell), predicted, true, (heat,))

    if setting != "class_il":
        rows = ()
    counted = [
        replace(row, cells=tuple(c for c in row.cells if any(_counts(r) for r in c.finished)))
        for row in rows
    ]
    return Figure(
        key="confusion",
        summary=summary(counted, "Class-IL, mean"),
        panels=by_row(counted, panels),
        heat="of the row's samples",
    )


def _heat(values: Array, shown: Array, cell: Cell, systems: Systems) -> Mark:
    y, x = np.nonzero(shown)
    return systems.mark("heat", "", [cell], x, y=numbers(y), values=numbers(values[y, x]))


def _confusion(cell: Cell) -> tuple[Array, tuple[str, ...]]:
    """Confusion counts in the order of learning, [S, K, K], and the names of the classes.

    Of many classes, and of trials with different tasks, the counts between tasks, [S, T, T], and
    the names of the tasks.
    """
    counted = [(record, np.array(own)) for record in cell.finished if (own := _counts(record))]
    classes, tasks = len(counted[0][1]), len(counted[0][0].tasks)
    names = cell.class_names or tuple(str(number) for number in range(1, classes + 1))
    if classes > _MOST_CONFUSED or cell.tasks is None:
        found = []
        for record, counts in counted:
            member = np.array([[c in task for c in range(classes)] for task in record.tasks])
            found.append(member @ counts @ member.T)
        return np.array(found, float), tuple(f"task {number}" for number in range(1, tasks + 1))
    order = [c for task in cell.tasks for c in task] or list(range(classes))
    ordered = np.array([counts[order][:, order] for _, counts in counted], float)
    return ordered, tuple(names[label] for label in order)


def _counts(record: TrialRecord) -> Sequence[Sequence[int]]:
    """The confusion counts of a trial, [K, K]; empty if they were not measured."""
    return record.answers.confusion if record.answers else ()


def _matrices(cell: Cell, setting: str) -> Array:
    """The accuracy matrices of the finished trials, [S, T, T] in percent; [0] if there are none."""
    found = [getattr(record, setting) for record in cell.finished]
    return np.array([matrix for matrix in found if matrix], dtype=np.float64)


def _confidences(cell: Cell) -> Array:
    """The confidence in each class by label, [S, K] in percent."""
    return 100 * np.array([record.confidence for record in cell.finished], dtype=np.float64)
