"""What is taken for what after the last task: confusion matrices."""

from collections.abc import Sequence

import numpy as np

from remask.reports.figures.data import Array, Row, Systems, known, summary
from remask.reports.figures.description import Axis, Figure, Panel
from remask.results import Cell

_MOST_CLASSES = 20
"""From here on tasks take the place of classes."""
_LEAST = 0.5  # percent; what would be written as 0 is left blank


def confusion_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """How the samples of each class are answered, in percent; of many classes, of each task."""
    panels: list[Panel] = []
    drawn: list[Row] = []
    for number, row in enumerate(rows):
        told = [cell for cell in row.cells if setting == "class_il" and _counts(cell).size]
        for cell in told:
            panels.append(_panel(cell, row.name(cell), number, systems))
        drawn += [Row(tuple(told), row.title)] if told else []
    return Figure(
        key="confusion",
        title="What is taken for what after the last task",
        summary=summary(drawn, "Class-IL, mean"),
        caption="Each row is a class, or where there are many, the classes of a task; the columns "
        "are the answers, in the order of learning. On the diagonal the answer is right. A dark "
        "column on the right is a bias towards what was learnt last.",
        empty="None of the chosen systems has its answers on record; trials that are run again "
        "will.",
        panels=tuple(panels),
        rows=tuple(row.title for row in rows),
        size=(330, 300),
        heat="of the row's samples",
    )


def _panel(cell: Cell, title: str, number: int, systems: Systems) -> Panel:
    counts, names = _by_task(cell) if cell.learnt.num_classes > _MOST_CLASSES else _by_class(cell)
    shares = 100 * (counts / counts.sum(axis=-1, keepdims=True)).mean(axis=0)
    true, answer = np.nonzero(shares >= _LEAST)
    answers = Axis("answer", names, tuple(f"answered {name}" for name in names))
    classes = Axis("class", names, names)
    parts = {"y": known(true), "values": known(shares[true, answer])}
    heat = systems.mark("heat", "", [cell], answer, **parts)
    return Panel(title, answers, classes, (heat,), number)


def _by_class(cell: Cell) -> tuple[Array, tuple[str, ...]]:
    """The counts in the order of learning, and what the classes are called."""
    counts = _counts(cell)
    order = [c for task in cell.tasks or () for c in task] or list(range(counts.shape[-1]))
    names = cell.class_names or tuple(map(str, range(len(order))))
    return counts[:, order][:, :, order], tuple(names[label] for label in order)


def _by_task(cell: Cell) -> tuple[Array, tuple[str, ...]]:
    """The same, classes of a task summed up."""
    tasks = cell.tasks or tuple((label,) for label in range(cell.learnt.num_classes))
    member = np.array([[c in task for c in range(cell.learnt.num_classes)] for task in tasks])
    counts = member @ _counts(cell) @ member.T
    return counts, tuple(f"task {number}" for number in range(1, len(tasks) + 1))


def _counts(cell: Cell) -> Array:
    """The confusion counts of all trials that have them, [S, K, K]."""
    found = [r.answers.confusion for r in cell.finished if r.answers and r.answers.confusion]
    return np.array(found, dtype=np.float64)
