"""The stream of a stack: the tasks of a benchmark, or tasks that come one by one."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.data.classes import Tasks
from remask.data.samples import Samples, batch_sizes
from remask.data.tasks import (
    DataDescription,
    StreamError,
    Subset,
    Task,
    TaskData,
    benchmark_tasks,
    check_share,
    hold_out,
    labels_in,
    union_task,
)
from remask.engine.evaluation import Evaluator, samples_per_class
from remask.engine.validation import check_open, check_room
from remask.memory import KeptRows, StoredRows, fetch
from remask.methods import Method

_HELD_OUT = ("validation",)


class Position(NamedTuple):
    """The next step that a stack takes."""

    task: int = 0
    """The number of tasks learnt."""
    epoch: int = 0
    step: int = 0


class Stream:
    """The data that a stack learns from and is measured on, and its position."""

    def __init__(
        self,
        source: Benchmark | DataDescription,
        configs: Sequence[TrialConfig],
        method: type[Method],
        device: torch.device,
        apart: float = 0.0,
    ) -> None:
        """`apart` is the share of every task that candidates are compared on and never learn."""
        benchmark = source if isinstance(source, Benchmark) else None
        self.open = benchmark is None
        """Whether tasks come one by one, each with its samples."""
        data = (
            source
            if isinstance(source, DataDescription)
            else DataDescription.of(source, num_tasks=source.num_tasks)
        )
        self.data = data.preprocessed(configs[0].protocol, augment=configs[0].augment)
        self.position = Position()
        self._method, self._config, self._device = method, configs[0], device
        self._seeds = [config.seed for config in configs]
        self._share_apart = apart
        self._apart: list[Subset] = []
        """The samples of each of the benchmark's tasks that are set apart, if any."""
        self._dealt: Tasks = () if benchmark is None else benchmark.tasks
        self.tasks: list[Task] = []
        """Those of the benchmark, if there is one."""
        self.counts = torch.zeros((0, self.data.num_classes), dtype=torch.int64)
        """The number of samples of each class in every known task, [t, K]."""
        self.steps = torch.zeros(0, dtype=torch.int64)
        """The number of steps in an epoch of each of them, [t]."""
        self.samples = Samples(self.data, self._seeds, device)
        self.evaluators = {"test": Evaluator(self.data, len(configs), device)}
        """The accuracies on test data; if asked for, on held-out data and on few test samples."""
        if self._config.validation:
            self.evaluators["validation"] = Evaluator(self.data, len(configs), device)
        if self._config.evaluate_every:
            few = samples_per_class(self.data.num_classes)
            self.evaluators["curve"] = Evaluator(self.data, len(configs), device, per_class=few)
        if benchmark is not None:
            self._load(benchmark)

    def _load(self, benchmark: Benchmark) -> None:
        keyed = {"test": Subset(benchmark.keys("test"))}
        keyed |= self._divide(benchmark.keys("train"))
        learnt = self._labelled(keyed["learnt"])
        self.samples.load(benchmark.train_inputs, benchmark.train_labels, learnt)
        test_inputs = benchmark.test_inputs.to(self._device)  # once for all tasks
        for number in range(benchmark.num_tasks):
            own = {
                name: self._labelled(part.at(benchmark.rows_of(number, part.labels)))
                for name, part in keyed.items()
            }
            classes = benchmark.active(number)
            self._measure_on(number, classes, test_inputs, own["test"])
            self._measure_on(number, classes, self.samples.inputs, own.get("held out"), _HELD_OUT)
            if "apart" in own:
                self._apart.append(own["apart"])
        keys = keyed["learnt"].labels
        rows = [benchmark.rows_of(number, keys) for number in range(benchmark.num_tasks)]
        self.counts = torch.stack([self._count(learnt.labels[own]) for own in rows])
        if self._method.learns == "tasks":
            self.tasks = benchmark_tasks(benchmark, keys, self._device)
        else:
            self.tasks = union_task(benchmark, learnt.labels, self._device)
            self.counts = self.counts.sum(0, keepdim=True)

    def _labelled(self, keyed: Subset) -> Subset:
        """A part of a benchmark with labels instead of keys."""
        return Subset(keyed.labels % self.data.num_classes, keyed.places)

    def _divide(self, labels: Tensor) -> dict[str, Subset]:
        """The samples to learn, and if any, those to validate and to compare candidates on."""
        learnt, held_out = hold_out(Subset(labels), self._config.validation, self._seeds)
        learnt, _ = hold_out(learnt, 1 - self._config.share, self._seeds)
        learnt, apart = hold_out(learnt, self._share_apart, self._seeds)
        parts = {"learnt": learnt, "held out": held_out, "apart": apart}
        return {name: part for name, part in parts.items() if part is not None}

    def new_task(
        self,
        inputs: Tensor | StoredRows,
        labels: Tensor,
        test: tuple[Tensor, Tensor] | None,
        memory: KeptRows | None,
    ) -> Task:
        """Make the next task from its samples; raises StreamError, MethodError."""
        number = self.position.task
        if not self.open:
            if number < len(self.tasks):
                left = len(self.tasks) - number
                raise StreamError(f"learn the {left} remaining tasks of {self.data.name} first")
            check_open(self._method, self.data)
        self.data.check("train", inputs, labels)
        check_share(labels, self._config.validation, self.data.name, self.data.class_names)
        classes = self._count(labels) > 0
        if test is not None:
            self._check_test(*test, classes)
        check_room(self._method, self.data, self._config.buffer, number)
        if not self.open:  # the benchmark has ended, and its samples may be released
            self.open = True
            self.keep(memory)
        parts, first = self._divide(labels), self.samples.first_row
        return Task(
            number,
            torch.arange(first, first + len(parts["learnt"].labels), device=self._device),
            labels_in(classes),
            labels_in(classes | self.counts[:number].any(0)),
            len(classes),
            TaskData(
                inputs,
                labels,
                parts["learnt"],
                parts.get("held out"),
                test,
                apart=parts.get("apart"),
            ),
        )

    def begin(self, task: Task) -> None:
        """Load a task, which must be the next one."""
        index = self.position.task
        if not self.open:
            if index >= len(self.tasks) or task is not self.tasks[index]:
                raise StreamError(
                    f"{index} tasks have been learnt, so the next is stack.tasks[{index}]; after "
                    f"the last one, make new ones with stack.new_task"
                )
            return
        data = task.data
        if data is None or task.number != index:
            raise StreamError(
                f"{index} tasks have been learnt, so the next is number {index}; make it with "
                f"stack.new_task after learning the previous one"
            )
        counts = self._count(data.learnt.labels)
        if len(self.counts) == index:
            self.counts = torch.cat([self.counts, counts.unsqueeze(0)])
        elif not torch.equal(self.counts[index], counts):
            raise StreamError(
                f"task {index} was begun with other samples: "
                f"{self.counts[index].tolist()} of each class, not {counts.tolist()}"
            )
        self.samples.load(data.inputs, data.labels, data.learnt)
        classes = task.classes.cpu()
        if data.test is not None:
            self._measure_on(index, classes, data.test[0], Subset(data.test[1]))
        self._measure_on(index, classes, data.inputs, data.held_out, _HELD_OUT)

    def apart_of(self, task: Task) -> tuple[Tensor, Tensor] | None:
        """The samples of a task that are set apart: inputs [S, n, *shape] and labels [n]."""
        inputs = self.samples.inputs if task.data is None else task.data.inputs
        part = task.data.apart if task.data else self._apart[task.number] if self._apart else None
        if part is None or part.places is None:
            return None
        return fetch(inputs, part.places, self._device), part.labels

    def test_on(self, number: int, inputs: Tensor, labels: Tensor) -> None:
        """Measure a known task on these samples."""
        if not 0 <= number < len(self.counts):
            raise StreamError(f"task {number} does not exist: {len(self.counts)} are known")
        classes = self.counts[number] > 0
        self._check_test(inputs, labels, classes)
        self._measure_on(number, classes, inputs, Subset(labels))

    def number(self, index: int) -> int:
        """The number of the task that is learnt after `index` others."""
        return self.tasks[index].number if index < len(self.tasks) else index

    def classes_of_tasks(self, learnt: int) -> Tasks:
        """The classes of all the benchmark's tasks and of those learnt since."""
        later = self.counts[len(self.tasks) : learnt]
        return (*self._dealt, *(tuple(row.nonzero().flatten().tolist()) for row in later))

    @property
    def steps_done(self) -> int:
        """The number of steps taken."""
        index, epoch, step = self.position
        return self.steps_before(index) + (epoch * int(self.steps[index]) if epoch else 0) + step

    def steps_before(self, index: int) -> int:
        """The number of steps of the first `index` tasks."""
        return self._config.epochs * int(self.steps[:index].sum())

    def plan_steps(self, index: int, task: Task, extra: int) -> int:
        """Count the steps in an epoch of the task after `index` others, with `extra` samples."""
        steps = len(batch_sizes(len(task.rows) + extra, self._config.batch))
        if len(self.steps) == index:
            self.steps = torch.cat([self.steps, torch.tensor([steps])])
        return steps

    def keep(self, memory: KeptRows | None) -> None:
        """Copy the samples that a method keeps, so that the others may be released."""
        if self.open and memory is not None:
            if not self.samples.first_row:
                self.samples.make_room(self._config.buffer)
            if memory.filled:
                self.samples.retain(memory)

    def state(self) -> dict[str, Tensor]:
        """The tensors of an open stream to save; a benchmark has none."""
        if not self.open:
            return {}
        kept = {f"kept_{name}": tensor for name, tensor in self.samples.state().items()}
        return {"counts": self.counts, "steps": self.steps, **kept}

    def _measure_on(
        self,
        number: int,
        classes: Tensor,
        inputs: Tensor | StoredRows,
        part: Subset | None,
        names: Sequence[str] = ("test", "curve"),
    ) -> None:
        """Measure a task on those samples of a part that have its classes."""
        for name in names:
            if name in self.evaluators and part is not None:
                self.evaluators[name].add(number, classes, inputs, part)

    def _check_test(self, inputs: Tensor, labels: Tensor, classes: Tensor) -> None:
        self.data.check("test", inputs, labels)
        if odd := sorted(set(labels[~classes[labels.cpu()]].tolist())):
            raise StreamError(f"test labels must be those of the task, but {odd[:5]} are not")

    def _count(self, labels: Tensor) -> Tensor:
        return torch.bincount(labels.cpu(), minlength=self.data.num_classes)
