"""The stream of a stack: the tasks of a benchmark, or tasks that come one by one.

An open stream may bring new classes, so a saved state can grow to more of them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

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
    set_apart,
    union_task,
)
from remask.engine.evaluation import Curves, Evaluator
from remask.engine.validation import check_open, check_room
from remask.memory import KeptRows, StoredRows, fetch
from remask.methods import Method, MethodError
from remask.nets.stacked import StackedNet
from remask.record import Curve

_COUNTS, _LOGITS, _CONFIDENCE = "stream/counts", "memory/logits", "metrics/confidence"


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
        trials, tasks = len(configs), len(self._dealt)
        self.test = Evaluator(self.data, trials, device, tasks=tasks)
        self.validation = (
            Evaluator(self.data, trials, device, tasks=tasks) if configs[0].validation else None
        )
        every = configs[0].evaluate_every
        self.curves = Curves(self.data, trials, every, device) if every else None
        if benchmark is not None:
            self._load(benchmark)

    def _load(self, benchmark: Benchmark) -> None:
        keyed = {"test": Subset(benchmark.keys("test"))}
        keyed |= self._divide(benchmark.keys("train"))
        learnt = self._labelled(keyed["learnt"])
        self.samples.load(benchmark.train_inputs, benchmark.train_labels, learnt)
        test_inputs = benchmark.test_inputs.to(self._device)  # once for all tasks
        for number in range(benchmark.num_tasks):
            active = benchmark.active(number)
            own = {
                name: self._labelled(part.at(benchmark.rows_of(number, part.labels)))
                for name, part in keyed.items()
            }
            self._test(number, active, test_inputs, own["test"])
            if self.validation is not None and "held out" in own:
                self.validation.add(number, active, self.samples.inputs, own["held out"])
            if "apart" in own:
                self._apart.append(own["apart"])
        if self._method.learns == "tasks":
            self.tasks = benchmark_tasks(benchmark, keyed["learnt"].labels, self._device)
            keys = keyed["learnt"].labels
            rows = [benchmark.rows_of(number, keys) for number in range(benchmark.num_tasks)]
            self.counts = torch.stack([self._count(learnt.labels[own]) for own in rows])
        else:
            self.tasks = union_task(benchmark, learnt.labels, self._device)
            self.counts = self._count(learnt.labels).unsqueeze(0)

    def _labelled(self, keyed: Subset) -> Subset:
        """A part of a benchmark with labels instead of keys."""
        return Subset(keyed.labels % self.data.num_classes, keyed.places)

    def _divide(self, labels: Tensor) -> dict[str, Subset]:
        """The samples to learn, and if any, those to validate and to compare candidates on."""
        learnt, held_out = hold_out(labels, self._config.validation, self._seeds)
        learnt, _ = set_apart(learnt, 1 - self._config.share, self._seeds)
        learnt, apart = set_apart(learnt, self._share_apart, self._seeds)
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
        parts = self._divide(labels)
        learnt = parts["learnt"]
        first = self.samples.first_row
        return Task(
            number,
            torch.arange(first, first + len(learnt.labels), device=self._device),
            labels_in(classes),
            labels_in(classes | self.counts[:number].any(0)),
            len(classes),
            TaskData(inputs, labels, learnt, parts.get("held out"), test, apart=parts.get("apart")),
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
        self.samples.load(data.inputs, data.labels, data.learnt)
        classes = task.classes.cpu()
        if data.test is not None:
            self._test(index, classes, data.test[0], Subset(data.test[1]))
        if self.validation is not None and data.held_out is not None:
            self.validation.add(index, classes, data.inputs, data.held_out)

    def note(self, task: Task, steps: int) -> None:
        """Record a task of an open stream; refuses another one than was begun before a restore."""
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

    def apart_of(self, task: Task) -> tuple[Tensor, Tensor] | None:
        """The samples of a task that are set apart: inputs [S, n, *shape] and labels [n]."""
        inputs = self.samples.inputs if task.data is None else task.data.inputs
        part = task.data.apart if task.data else self._apart[task.number] if self._apart else None
        if part is None or part.places is None:
            return None
        return fetch(inputs, part.places, self._device), part.labels

    def class_sizes(self, task: Task) -> Tensor:
        """The number of samples of each class that are learnt up to a task, or in a benchmark."""
        if task.data is None:
            return self.counts.sum(0)
        return self.counts[: task.number].sum(0) + self._count(task.data.learnt.labels)

    def test_on(self, number: int, inputs: Tensor, labels: Tensor) -> None:
        """Measure a known task on these samples."""
        if not 0 <= number < len(self.counts):
            raise StreamError(f"task {number} does not exist: {len(self.counts)} are known")
        classes = self.counts[number] > 0
        self._check_test(inputs, labels, classes)
        self._test(number, classes, inputs, Subset(labels))

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
        return sum(self._lengths()[:index])

    def steps_of(self, task: Task, extra: int) -> int:
        """The number of steps in an epoch of a task with `extra` additional samples."""
        return len(batch_sizes(len(task.rows) + extra, self._config.batch))

    def plan_steps(self, extra: Sequence[int]) -> None:
        """Count the steps of the benchmark's tasks, each with some additional samples."""
        steps = [self.steps_of(task, more) for task, more in zip(self.tasks, extra, strict=True)]
        self.steps = torch.tensor(steps, dtype=torch.int64)
        if self.curves is not None:
            points = sum(map(len, self.curves.steps(self._lengths())))
            self.curves.evaluator.grow(points, self.data.num_tasks or len(self.steps))

    def points_due(self) -> dict[int, int]:
        """The rows of the curves that the next task fills, by the number of its steps taken."""
        if self.curves is None:
            return {}
        index = self.position.task
        points = self.curves.points(self._lengths()[: index + 1])
        self.curves.evaluator.grow(max(points.values()) + 1, self.number(index) + 1)
        return points

    def trial_curves(self) -> list[Curve]:
        """The curve of each trial so far; empty if curves are not measured."""
        if self.curves is None:
            return []
        lengths = self._lengths()
        return self.curves.of_trials(lengths, [self.number(index) for index in range(len(lengths))])

    def _lengths(self) -> list[int]:
        """The number of steps of each known task, in all epochs."""
        return [self._config.epochs * steps for steps in self.steps.tolist()]

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

    def grow_as(self, state: Mapping[str, Tensor]) -> None:
        """Take the shapes of a saved state, which depend on its number of tasks."""
        self.counts = torch.zeros_like(state["stream/counts"])
        self.steps = torch.zeros_like(state["stream/steps"])
        self.test.grow(*state["metrics/class_il"].shape[1:])
        if self.validation is not None:
            self.validation.grow(*state["validation/class_il"].shape[1:])
        if self.curves is not None:
            self.curves.evaluator.grow(*state["metrics/curve_class_il"].shape[1:])

    def _test(self, number: int, classes: Tensor, inputs: Tensor, part: Subset) -> None:
        """Measure a task on those of these samples that have its classes."""
        self.test.add(number, classes, inputs, part)
        if self.curves is not None:
            self.curves.evaluator.add(number, classes, inputs, part)

    def _check_test(self, inputs: Tensor, labels: Tensor, classes: Tensor) -> None:
        self.data.check("test", inputs, labels)
        if odd := sorted(set(labels[~classes[labels.cpu()]].tolist())):
            raise StreamError(f"test labels must be those of the task, but {odd[:5]} are not")

    def _count(self, labels: Tensor) -> Tensor:
        return torch.bincount(labels.cpu(), minlength=self.data.num_classes)


def grown_state(
    saved: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    *,
    net: StackedNet,
    method: type[Method],
    absent_logits: Tensor,
    input_shape: tuple[int, ...],
) -> dict[str, Tensor]:
    """Convert a state saved with K classes to one of a stack with more, whose state is `own`.

    The new rows of the last linear layer, and of all copies of it that a method keeps, are 0. So
    the weights of known classes keep their bits, and the logits of new classes are exactly 0.
    Stored logits are filled up with 0 or, where the mask is stored with them, with
    `absent_logits` [S * M]. Everything else with an axis of classes, such as counts, starts at 0.

    A tensor's axes of classes are those with K entries in the saved state and as many as there are
    classes in the new one. Raises StreamError if the state is not that of an open stream with fewer
    classes, and MethodError if the net or the method cannot grow.
    """
    if _COUNTS not in saved or _COUNTS not in own:
        raise StreamError("only a stack whose tasks come one by one can grow its head")
    known, classes = saved[_COUNTS].shape[1], own[_COUNTS].shape[1]
    if known > classes:
        raise StreamError(f"the state has {known} classes, but the stack only {classes}")
    if known == classes:
        return dict(saved)
    if method.ungrowable:
        raise MethodError(f"the head of {method.title} cannot grow: {method.ungrowable}")
    grown = {
        name: _padded(name, tensor, own[name], known, classes) if name in own else tensor
        for name, tensor in saved.items()
    }
    if _LOGITS in grown:
        grown[_LOGITS][:, known:] = absent_logits.to(grown[_LOGITS].device).unsqueeze(1)
    _check_head(net, saved, grown, known, input_shape)
    return grown


def _padded(name: str, saved: Tensor, own: Tensor, known: int, classes: int) -> Tensor:
    """A tensor with entries for new classes in every axis of classes."""
    if saved.ndim != own.ndim:
        return saved  # `check_fit` will refuse it
    pad: list[int] = []
    for had, has in zip(reversed(saved.shape), reversed(own.shape), strict=True):
        if had < has and (had, has) != (known, classes):
            raise MethodError(
                f"the head cannot grow: {name} is {list(saved.shape)} with {known} classes and "
                f"{list(own.shape)} with {classes}, so its axis of classes is ambiguous"
            )
        pad += [0, classes - known if had < has else 0]
    value = torch.nan if name == _CONFIDENCE else 0  # not measured yet
    return nn.functional.pad(saved, pad, value=value) if any(pad) else saved


def _check_head(
    net: StackedNet,
    saved: Mapping[str, Tensor],
    grown: Mapping[str, Tensor],
    known: int,
    input_shape: tuple[int, ...],
) -> None:
    """Raise MethodError unless zero rows in the last linear layer give logits of 0."""
    linear = {name for name, part in net.module.named_modules() if isinstance(part, nn.Linear)}
    state = {name: grown[f"net/{name}"] for name in net.state()}
    for name, tensor in state.items():
        before, (layer, _, kind) = saved[f"net/{name}"], name.rpartition(".")
        if tensor.shape == before.shape:
            continue
        if layer not in linear or (kind == "weight" and tensor.shape[2] != before.shape[2]):
            raise MethodError(
                f"the net cannot grow: {name} depends on the number of classes, and only the "
                f"outputs of an nn.Linear may"
            )
    some = next(iter(state.values()))
    probe = torch.rand((len(some), 2, *input_shape), generator=torch.Generator().manual_seed(0))
    logits = net.evaluate(probe.to(some.device), state)
    if bool((logits[..., known:] != 0).any()):
        raise MethodError(
            "the net cannot grow: a row of zeros in its last linear layer gives a logit that is "
            "not 0, since another layer follows it"
        )
