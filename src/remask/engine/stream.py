"""The stream of a stack: the tasks of a benchmark, or tasks as they come."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from remask.benchmarks import Benchmark
from remask.classes import Tasks
from remask.config import TrialConfig
from remask.engine.agreement import check_open, check_room
from remask.engine.curves import Curves
from remask.engine.evaluation import Evaluator
from remask.memory import KeptRows, StoredRows, fetch
from remask.methods import Method
from remask.record import Curve
from remask.streams import (
    DataDescription,
    Part,
    Samples,
    StreamError,
    Task,
    TaskData,
    batch_sizes,
    benchmark_tasks,
    check_share,
    hold_out,
    labels_in,
    set_apart,
    union_task,
)


class Position(NamedTuple):
    """The next step that a stack takes."""

    task: int = 0
    """The number of tasks learnt."""
    epoch: int = 0
    step: int = 0


class Stream:
    """What a stack learns from, what it is measured on, and where it stands."""

    def __init__(
        self,
        source: Benchmark | DataDescription,
        configs: Sequence[TrialConfig],
        method: type[Method],
        device: torch.device,
        apart: float = 0.0,
    ) -> None:
        """`apart` is the share of every task that candidates are chosen on, and never learnt."""
        self.open = isinstance(source, DataDescription)
        """Whether tasks come one by one, and with their samples; if not, all are there."""
        if isinstance(source, DataDescription):
            self.data = source
        else:
            self.data = DataDescription.of(source, num_tasks=source.num_tasks)
        self.position = Position()
        self._method, self._config, self._device = method, configs[0], device
        self._seeds = [config.seed for config in configs]
        self._share_apart = apart
        self._apart: Part | None = None
        self._dealt: Tasks = () if isinstance(source, DataDescription) else source.tasks
        self.tasks: list[Task] = []
        """Those of the benchmark, if there is one."""
        self.counts = torch.zeros((0, self.data.num_classes), dtype=torch.int64)
        """How many samples of each class every known task has, [t, K]."""
        self.steps = torch.zeros(0, dtype=torch.int64)
        """How many steps an epoch of each of them has, [t]."""
        self.samples = Samples(self.data, self._seeds, device)
        tasks = 0 if isinstance(source, DataDescription) else source.num_tasks
        self.test = Evaluator(self.data, len(configs), tasks, device)
        self.validation = (
            Evaluator(self.data, len(configs), tasks, device) if configs[0].validation else None
        )
        every = configs[0].evaluate_every
        self.curves = Curves(self.data, len(configs), every, device) if every else None
        if isinstance(source, Benchmark):
            self._load(source)

    def _load(self, benchmark: Benchmark) -> None:
        """Take in all of a benchmark ahead of time."""
        learnt, held_out = hold_out(benchmark.train_labels, self._config.validation, self._seeds)
        learnt, self._apart = set_apart(learnt, self._share_apart, self._seeds)
        self.samples.load(benchmark.train_inputs, benchmark.train_labels, learnt)
        test_inputs = benchmark.test_inputs.to(self._device)  # once for all tasks
        for number in range(benchmark.num_tasks):
            active = benchmark.active(number)
            self._test(number, active, test_inputs, benchmark.test_labels)
            if self.validation is not None and held_out is not None:
                _add(self.validation, number, active, self.samples.inputs, held_out)
        tasks_of = benchmark_tasks if self._method.learns == "tasks" else union_task
        self.tasks = tasks_of(benchmark, learnt.labels, self._device)
        total = self._count(learnt.labels)
        dealt = [total * benchmark.active(number) for number in range(benchmark.num_tasks)]
        self.counts = torch.stack(dealt if self._method.learns == "tasks" else [total])

    def new_task(
        self,
        inputs: Tensor | StoredRows,
        labels: Tensor,
        test: tuple[Tensor, Tensor] | None,
        memory: KeptRows | None,
    ) -> Task:
        """The next task, which comes by itself; raises StreamError, MethodError."""
        number = self.position.task
        if not self.open:
            if number < len(self.tasks):
                raise StreamError(
                    f"{self.data.name} has {len(self.tasks) - number} tasks left, which come first"
                )
            check_open(self._method, self.data)
        self.data.check("train", inputs, labels)
        check_share(labels, self._config.validation, self.data.name, self.data.class_names)
        classes = self._count(labels) > 0
        if test is not None:
            self._check_test(*test, classes)
        check_room(self._method, self.data, self._config.buffer, number)
        if not self.open:  # the benchmark has ended, and its samples may go
            self.open = True
            self.keep(memory)
        learnt, held_out = hold_out(labels, self._config.validation, self._seeds)
        learnt, apart = set_apart(learnt, self._share_apart, self._seeds)
        first = self.samples.first_row
        return Task(
            number,
            torch.arange(first, first + len(learnt.labels), device=self._device),
            labels_in(classes),
            labels_in(classes | self.counts[:number].any(0)),
            len(classes),
            TaskData(inputs, labels, learnt, held_out, test, apart),
        )

    def begin(self, task: Task) -> None:
        """Make ready to learn a task, which must be the next."""
        index = self.position.task
        if not self.open:
            if index >= len(self.tasks) or task is not self.tasks[index]:
                raise StreamError(
                    f"{index} tasks have been learnt, so the next is stack.tasks[{index}]; after "
                    f"the last one, make new ones with stack.new_task"
                )
            return
        if task.data is None or task.number != index:
            raise StreamError(
                f"{index} tasks have been learnt, so the next is number {index}; make it with "
                f"stack.new_task once the one before has been learnt"
            )
        data = task.data
        self.samples.load(data.inputs, data.labels, data.learnt)
        classes = task.classes.cpu()
        if data.test is not None:
            self._test(index, classes, *data.test)
        if self.validation is not None and data.held_out is not None:
            _add(self.validation, index, classes, data.inputs, data.held_out)

    def apart_of(self, task: Task) -> tuple[Tensor, Tensor] | None:
        """What of a task is set apart: inputs [S, n, *shape] and labels [n]; None: nothing is."""
        inputs = self.samples.inputs if task.data is None else task.data.inputs
        part = self._apart if task.data is None else task.data.apart
        if part is None or part.places is None:
            return None
        rows = task.classes.cpu()[part.labels].nonzero().squeeze(-1)
        return fetch(inputs, part.places[:, rows], self._device), part.labels[rows]

    def class_sizes(self, task: Task) -> Tensor:
        """How many samples of each class are learnt from, up to a task or in all that are known."""
        if task.data is None:
            return self.counts.sum(0)
        return self.counts[: task.number].sum(0) + self._count(task.data.learnt.labels)

    def test_on(self, number: int, inputs: Tensor, labels: Tensor) -> None:
        """Measure a task that is known on these samples."""
        if not 0 <= number < len(self.counts):
            raise StreamError(f"there is no task {number}: {len(self.counts)} are known")
        classes = self.counts[number] > 0
        self._check_test(inputs, labels, classes)
        self._test(number, classes, inputs, labels)

    def note(self, task: Task, steps: int) -> None:
        """Note a task that has begun; refuses one unlike the one that was begun before a stop."""
        if task.data is None:
            return
        counts, length = self._count(task.data.learnt.labels), torch.tensor([steps])
        index = self.position.task
        if len(self.counts) == index:
            self.counts = torch.cat([self.counts, counts.unsqueeze(0)])
            self.steps = torch.cat([self.steps, length])
        elif not torch.equal(self.counts[index], counts) or self.steps[index] != steps:
            raise StreamError(
                f"task {index} was begun with other samples: "
                f"{self.counts[index].tolist()} of each class, not {counts.tolist()}"
            )

    def number(self, index: int) -> int:
        """The number of the task that is learnt after `index` others."""
        return self.tasks[index].number if index < len(self.tasks) else index

    @property
    def total_steps(self) -> int:
        """How many steps all known tasks take."""
        return sum(self._lengths())

    @property
    def steps_done(self) -> int:
        """How many steps have been taken."""
        index, epoch, step = self.position
        return self.steps_before(index) + (epoch * int(self.steps[index]) if epoch else 0) + step

    def steps_before(self, index: int) -> int:
        """How many steps the first `index` tasks take."""
        return sum(self._lengths()[:index])

    def steps_of(self, task: Task, extra: int) -> int:
        """How many steps an epoch of a task has, with so many samples besides its own."""
        return len(batch_sizes(len(task.rows) + extra, self._config.batch))

    def plan_steps(self, extra: Sequence[int]) -> None:
        """Count the steps of the benchmark's tasks, each with so many samples besides its own."""
        steps = [self.steps_of(task, more) for task, more in zip(self.tasks, extra, strict=True)]
        self.steps = torch.tensor(steps, dtype=torch.int64)
        if self.curves is not None:
            points = sum(map(len, self.curves.steps(self._lengths())))
            self.curves.grow(points, self.data.num_tasks or len(self.steps))

    def points_due(self) -> dict[int, int]:
        """Which points of the curves the next task fills, by how many of its steps are taken."""
        if self.curves is None:
            return {}
        index = self.position.task
        points = self.curves.points(self._lengths()[: index + 1])
        self.curves.grow(max(points.values()) + 1, self.number(index) + 1)
        return points

    def trial_curves(self) -> list[Curve]:
        """The curve of each trial so far; empty if there are none."""
        if self.curves is None:
            return []
        lengths = self._lengths()
        return self.curves.of_trials(lengths, [self.number(index) for index in range(len(lengths))])

    def _lengths(self) -> list[int]:
        """How many steps each known task takes, in all epochs."""
        return [self._config.epochs * steps for steps in self.steps.tolist()]

    def keep(self, memory: KeptRows | None) -> None:
        """Copy what a method keeps, so that the samples it was chosen from may go."""
        if self.open and memory is not None:
            if not self.samples.first_row:
                self.samples.make_room(self._config.buffer)
            if memory.filled:
                self.samples.retain(memory)

    def grow_as(self, state: Mapping[str, Tensor]) -> None:
        """Have the shapes of a saved state: those of an open stream grow with its tasks."""
        self.counts = torch.zeros_like(state["stream/counts"])
        self.steps = torch.zeros_like(state["stream/steps"])
        self.test.grow(state["metrics/class_il"].shape[1])
        if self.validation is not None:
            self.validation.grow(state["validation/class_il"].shape[1])
        if self.curves is not None:
            self.curves.grow(*state["metrics/curve_class_il"].shape[1:])

    def state(self) -> dict[str, Tensor]:
        """What of an open stream must be saved; all else is known or comes again."""
        if not self.open:
            return {}
        kept = {f"kept_{name}": tensor for name, tensor in self.samples.state().items()}
        return {"counts": self.counts, "steps": self.steps, **kept}

    def classes_of_tasks(self, learnt: int) -> Tasks:
        """The classes of all the benchmark's tasks, and of those that have been learnt since."""
        later = self.counts[len(self.tasks) : learnt]
        return (*self._dealt, *(tuple(row.nonzero().flatten().tolist()) for row in later))

    def _test(self, number: int, classes: Tensor, inputs: Tensor, labels: Tensor) -> None:
        """Measure a task on these samples, or on those of them that have its classes."""
        part = Part(labels)
        _add(self.test, number, classes, inputs, part)
        if self.curves is not None:
            _add(self.curves, number, classes, inputs, part)

    def _check_test(self, inputs: Tensor, labels: Tensor, classes: Tensor) -> None:
        self.data.check("test", inputs, labels)
        if odd := sorted(set(labels[~classes[labels.cpu()]].tolist())):
            raise StreamError(f"test labels must be those of the task, but {odd[:5]} are not")

    def _count(self, labels: Tensor) -> Tensor:
        return torch.bincount(labels.cpu(), minlength=self.data.num_classes)


def _add(
    evaluator: Evaluator | Curves,
    number: int,
    classes: Tensor,
    inputs: Tensor | StoredRows,
    part: Part,
) -> None:
    """Measure a task on the rows of a part that have its classes."""
    rows = classes.to(part.labels.device)[part.labels].nonzero().squeeze(-1)
    places = rows if part.places is None else part.places[:, rows]
    evaluator.add(number, classes, inputs, part.labels[rows], places)
