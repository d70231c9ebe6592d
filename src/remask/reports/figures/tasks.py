"""Figures over tasks and steps: confidence, accuracy, matrices and losses."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np

from remask.record import Losses, TrialRecord
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
from remask.store.cells import Cell, grouped

_MANY_CLASSES = 40
"""With more classes there is no room for a marker and a bar each."""
_MOST_TASKS = 5
"""Tasks with a panel of their own."""
_MOST_CONFUSED = 20
"""With more classes, confusion matrices are of tasks."""
_LEAST_CONFUSED = 0.5  # percent; less would be written as 0
_ACCURACY = Axis("accuracy (%)")
_Times = tuple[tuple[int, ...], tuple[int, ...]]
"""The steps of a curve's points, and the tasks being learnt."""


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


# Over steps


def within_tasks_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """The mean accuracy on all old tasks, from just before each switch on."""

    def times_of(cell: Cell) -> _Times | None:
        curves = {
            record.curve and (record.curve.steps, record.curve.learning) for record in cell.finished
        }
        if len(curves) != 1 or not (times := curves.pop()) or len({*times[1]}) < 2:
            return None
        return times if is_measured(_curves(cell, setting)) else None

    def panels(row: Row, cells: Sequence[Cell], times: _Times) -> Iterator[Panel]:
        yield _within_tasks_panel(row, cells, times, setting, systems)

    what = f"{SETTINGS[setting]}, mean ± std"
    return _over_steps("accuracy-within-tasks", rows, what, times_of, panels)


def losses_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """A panel for the loss and one for each of its terms, the same in every setting."""

    def times_of(cell: Cell) -> _Times | None:
        losses = _losses(cell)
        return (losses[0].steps, losses[0].learning) if losses and losses[0].steps else None

    def panels(row: Row, cells: Sequence[Cell], times: _Times) -> Iterator[Panel]:
        for term in dict.fromkeys(name for cell in cells for name in _losses(cell)[0].names):
            yield _losses_panel(row, cells, times, term, systems)

    figure = _over_steps("losses", rows, "mean ± std", times_of, panels)
    return replace(figure, of_test=False)


def _over_steps(
    key: str,
    rows: Sequence[Row],
    what: str,
    times_of: Callable[[Cell], _Times | None],
    panels_of: Callable[[Row, Sequence[Cell], _Times], Iterable[Panel]],
) -> Figure:
    """A figure with panels for each group of cells that were measured at the same steps."""
    measured = [replace(row, cells=tuple(filter(times_of, row.cells))) for row in rows]

    def panels(row: Row) -> Iterator[Panel]:
        for times, cells in grouped(row.cells, times_of).items():
            assert times is not None
            yield from panels_of(row, cells, times)

    drawn = by_row(measured, panels)
    return Figure(key=key, summary=summary(measured, what), panels=drawn, inches=2.1)


def _within_tasks_panel(
    row: Row, cells: Sequence[Cell], times: _Times, setting: str, systems: Systems
) -> Panel:
    steps, learning = times
    marks: list[Mark] = []
    places: list[str] = []
    where: list[str] = []
    spans: list[tuple[int, int, str]] = []
    for before, task in pairwise(sorted({*learning})):
        switch = max(point for point, learnt in enumerate(learning) if learnt == before)
        points = [switch, *(point for point, learnt in enumerate(learning) if learnt == task)]
        for cell in cells:
            of_old = _curves(cell, setting)[:, points, :task].mean(axis=-1)
            name = "" if spans else row.name(cell)  # one entry in the legend
            marks.append(systems.over_trials(name, cell, of_old, first=len(places)))
        spans.append((len(places), len(places) + len(points), f"task {task + 1}"))
        for point in points:
            places.append(f"{steps[point]:,}")
            since = steps[point] - steps[switch]
            when = (
                f"{since:,} steps into task {task + 1}" if since else f"at the end of task {task}"
            )
            where.append(f"tasks before {task + 1}, {when}")
    axis = Axis("steps", tuple(places), tuple(where), spans=tuple(spans))
    title = f"{SETTINGS[setting]} accuracy on earlier tasks"
    return Panel(title, axis, _ACCURACY, tuple(marks))


def _curves(cell: Cell, setting: str) -> Array:
    """The accuracy of all trials at all points, [S, points, T]."""
    return np.array([getattr(r.curve, setting) for r in cell.finished], dtype=np.float64)


def _losses_panel(
    row: Row, cells: Sequence[Cell], times: _Times, term: str, systems: Systems
) -> Panel:
    steps, learning = times
    spans = []
    for task, points in groupby(range(len(steps)), key=lambda point: learning[point]):
        own = list(points)
        spans.append((own[0], own[-1] + 1, f"task {task + 1}"))
    marks = []
    for cell in cells:
        losses = _losses(cell)
        if term in losses[0].names:
            values = np.array([one.values for one in losses], float)
            own_values = values[:, :, losses[0].names.index(term)]
            marks.append(systems.over_trials(row.name(cell), cell, own_values))
    where = (f"step {step:,}, task {task + 1}" for step, task in zip(*times, strict=True))
    axis = Axis("steps", tuple(f"{s:,}" for s in steps), tuple(where), spans=tuple(spans))
    return Panel(term, axis, Axis("loss", plain=True), tuple(marks))


def _losses(cell: Cell) -> list[Losses]:
    """The losses of its finished trials if all were logged alike; else nothing."""
    logged = [record.losses for record in cell.finished if record.losses is not None]
    alike = {(losses.names, losses.steps, losses.learning) for losses in logged}
    return logged if len(alike) == 1 and len(logged) == len(cell.finished) else []
