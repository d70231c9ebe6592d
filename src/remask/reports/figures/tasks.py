"""Figures over tasks: confidence, accuracy, accuracy matrices and confusion matrices."""

from collections.abc import Sequence

import numpy as np

from remask.reports.figures.description import (
    Array,
    Axis,
    Figure,
    Mark,
    Panel,
    Row,
    Systems,
    is_measured,
    known,
    matrices,
    numbered,
    over_trials,
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
    panels: list[Panel] = []
    for number, row in enumerate(rows):
        if sure := [c for c in row.cells if c.tasks and is_measured(_confidences(c))]:
            panels.append(_confidence_panel(row, sure, number, systems))
        final = [(cell, _final(cell, setting)) for cell in row.cells]
        if ended := [(cell, accuracy) for cell, accuracy in final if is_measured(accuracy)]:
            places = numbered(ended[0][1].shape[1])
            tasks = Axis("task", places, tuple(f"task {n}, after the last task" for n in places))
            marks = [
                systems.mark("line", row.name(c), [c], range(len(places)), **over_trials(accuracy))
                for c, accuracy in ended
            ]
            title = f"{SETTINGS[setting]} accuracy on each task"
            panels.append(Panel(title, tasks, _ACCURACY, tuple(marks), number, "bars"))
    return Figure(
        key="confidence",
        title="Confidence and accuracy after the last task",
        summary=summary(rows, "after the last task, mean ± std"),
        caption="Confidence is the mean probability that the network gives to the true class of a "
        "test sample. At equal heights, all tasks are remembered equally well; where the right is "
        "higher, recent tasks are remembered better.",
        notes="From the first task's classes to the last's:",
        empty="None of the chosen systems has been measured at the end.",
        panels=tuple(panels),
        rows=tuple(row.title for row in rows),
    )


def _confidence_panel(row: Row, cells: Sequence[Cell], number: int, systems: Systems) -> Panel:
    tasks, class_names = cells[0].tasks or (), cells[0].class_names or ()
    order = [class_id for task in tasks for class_id in task]
    edges = np.cumsum([0, *map(len, tasks)]).tolist()
    names = [f"task {task}" for task in numbered(len(tasks))]
    marks = []
    for cell in cells:
        sure = _confidences(cell)
        first, last = (sure[:, list(task)].mean() for task in (tasks[0], tasks[-1]))
        is_known = len(tasks) > 1 and np.isfinite(first + last)
        note = f"{cell.label} {first:.0f} → {last:.0f}\N{NO-BREAK SPACE}%" if is_known else ""
        means = over_trials(sure[:, order])
        parts = {**means, "note": note}
        marks.append(systems.mark("points", row.name(cell), [cell], range(len(order)), **parts))
    classes = Axis(
        "class",
        tuple(class_names[class_id] for class_id in order),
        tuple(
            f"class {class_names[class_id]}, {name}"
            for name, task in zip(names, tasks, strict=True)
            for class_id in task
        ),
        spans=tuple(zip(edges[:-1], edges[1:], names, strict=True)),
    )
    confidence = Axis("probability of the true class (%)")
    return Panel(
        "Confidence in each class",
        classes,
        confidence,
        tuple(marks),
        number,
        std_as="bars" if len(order) <= _MANY_CLASSES else "band",
    )


def accuracy_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Accuracy after each task: the mean of all tasks so far, and of each task but the last.

    Of many tasks some are drawn, evenly spaced.
    """
    panels: list[Panel] = []
    left_out = ""
    for number, row in enumerate(rows):
        # A method that is tested only at the end has no curve.
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
            marks = [_accuracy_line(row.name(c), c, a, task, systems) for c, a in followed]
            where = tuple(f"{of}, after task {n}" for n in numbered(tasks))
            panels.append(
                Panel(
                    of.capitalize(),
                    Axis("after task", numbered(tasks), where),
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
        caption="A falling line is a task that is forgotten while later ones are learnt; a level "
        f"line is a task that is remembered.{left_out}",
        notes="Task 1, right after learning it and at the end:",
        empty="None of the chosen systems was tested after more than one task.",
        panels=tuple(panels),
        rows=tuple(row.title for row in rows),
        same_range=True,
        size=(215, 210),
        inches=1.7,
    )


def _accuracy_line(
    name: str, cell: Cell, accuracy: Array, task: int | None, systems: Systems
) -> Mark:
    tasks = accuracy.shape[1]
    if task is not None:
        places = range(task, tasks)
        return systems.mark("line", name, [cell], places, **over_trials(accuracy[:, task:, task]))
    seen = np.where(np.tri(tasks, dtype=bool), accuracy, 0.0)
    means = seen.sum(axis=-1) / np.arange(1, tasks + 1)
    first = accuracy[:, :, 0].mean(axis=0)
    note = f"{cell.label} {first[0]:.1f} → {first[-1]:.1f}\N{NO-BREAK SPACE}%"
    return systems.mark("line", name, [cell], range(tasks), **over_trials(means), note=note)


def matrices_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Accuracy matrices as heat maps, a panel per cell."""
    panels: list[Panel] = []
    for number, row in enumerate(rows):
        for cell in row.cells:
            accuracy = matrices(cell, setting)
            if not is_measured(accuracy):
                continue
            mean = accuracy.mean(axis=0)
            places = numbered(len(mean))
            across = Axis("accuracy on task", places, tuple(f"on task {n}" for n in places))
            down = Axis("after task", places, tuple(f"after task {n}" for n in places))
            heat = _heat(mean, ~np.isnan(mean), cell, systems)
            panels.append(Panel(row.name(cell), across, down, (heat,), number))
    return Figure(
        key="matrices",
        title="Accuracy on every task after every task",
        summary=summary(rows, f"{SETTINGS.get(setting, setting)}, mean"),
        caption="Each row is the state after one more task, each column a task. Where a column "
        "gets paler downwards, that task is forgotten. The diagonal shows how well each task was "
        "learnt in the first place.",
        empty="None of the chosen systems has an accuracy matrix here.",
        panels=tuple(panels),
        rows=tuple(row.title for row in rows),
        size=(160, 300),
    )


def confusion_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Confusion matrices after the last task in percent; of tasks if there are many classes."""
    panels: list[Panel] = []
    drawn: list[Row] = []
    for number, row in enumerate(rows):
        counted = [cell for cell in row.cells if setting == "class_il" and _counts(cell).size]
        for cell in counted:
            by_task = len(cell.class_names or ()) > _MOST_CONFUSED or cell.tasks is None
            counts, names = _by_task(cell) if by_task else _by_class(cell)
            shares = 100 * (counts / counts.sum(axis=-1, keepdims=True)).mean(axis=0)
            predictions = Axis("predicted", names, tuple(f"predicted {name}" for name in names))
            heat = _heat(shares, shares >= _LEAST_CONFUSED, cell, systems)
            classes = Axis("true", names, tuple(f"true {name}" for name in names))
            panels.append(Panel(row.name(cell), predictions, classes, (heat,), number))
        drawn += [Row(tuple(counted), row.title)] if counted else []
    return Figure(
        key="confusion",
        title="Confusion matrix after the last task",
        summary=summary(drawn, "Class-IL, mean"),
        caption="Each row is a true class (of many classes, a task), each column a prediction, in "
        "the order of learning. Predictions on the diagonal are correct. A dark column on the "
        "right is a bias towards the most recent classes.",
        empty="None of the chosen systems has a confusion matrix.",
        panels=tuple(panels),
        rows=tuple(row.title for row in rows),
        size=(330, 300),
        heat="of the row's samples",
    )


def _heat(values: Array, shown: Array, cell: Cell, systems: Systems) -> Mark:
    y, x = np.nonzero(shown)
    return systems.mark("heat", "", [cell], x, y=known(y), values=known(values[y, x]))


def _by_class(cell: Cell) -> tuple[Array, tuple[str, ...]]:
    """Confusion counts in the order of learning, [S, K, K], and the names of the classes."""
    counts = _counts(cell)
    order = [c for task in cell.tasks or () for c in task] or list(range(counts.shape[-1]))
    names = cell.class_names or tuple(map(str, range(len(order))))
    return counts[:, order][:, :, order], tuple(names[label] for label in order)


def _by_task(cell: Cell) -> tuple[Array, tuple[str, ...]]:
    """Confusion counts between tasks, [S, T, T], and the names of the tasks."""
    found = []
    for record in cell.finished:
        if record.answers and (counts := np.array(record.answers.confusion, np.float64)).size:
            member = np.array([[c in t for c in range(len(counts))] for t in record.tasks])
            found.append(member @ counts @ member.T)
    return np.array(found), tuple(f"task {number}" for number in numbered(len(found[0])))


def _counts(cell: Cell) -> Array:
    """The confusion counts of all trials that have them, [S, K, K]."""
    found = [r.answers.confusion for r in cell.finished if r.answers and r.answers.confusion]
    return np.array(found, dtype=np.float64)


def _confidences(cell: Cell) -> Array:
    """The confidence in each class by label, [S, K] in percent."""
    return 100 * np.array([record.confidence for record in cell.finished], dtype=np.float64)


def _final(cell: Cell, setting: str) -> Array:
    """The accuracy on each task after the last, [S, T]."""
    accuracy = matrices(cell, setting)
    return accuracy[:, -1] if len(accuracy) else accuracy
