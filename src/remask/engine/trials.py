"""A stack of trials: the public interface.

What it is made of is in `parts.py`, how it learns in `loop.py`, what is saved in `state.py`, and
what its trials have shown in `measurements.py`.
"""

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from remask.benchmarks import Benchmark
from remask.config import TrialConfig
from remask.engine.agreement import check_earlier_samples, check_stack
from remask.engine.candidates import SHARE_APART, candidates_of, concrete_configs
from remask.engine.choosing import Choosing
from remask.engine.descent import Descent, Optimizer, per_trial_setting
from remask.engine.feed import Feed
from remask.engine.loop import learn_steps
from remask.engine.loss_log import LossLog, LossPoint
from remask.engine.measurements import Measurements, TaskPoint
from remask.engine.parts import Parts
from remask.engine.predictors import assemble, check_predictor, trial_tensors
from remask.engine.stacking import initial_nets, stack_nets
from remask.engine.state import GROWING, bytes_kept, grow_from, restore, state_of
from remask.engine.stream import Position, Stream
from remask.memory import StoredRows
from remask.methods import Context, Method
from remask.nets import NetBuilder, net_builder
from remask.record import MaskChoice, TrialRecord
from remask.streams import DataDescription, StreamError, Task


class TrialStack:
    """S trials that run as one. They may differ in seed, mask, learning rate and loss weights.

    If their mask is "auto", several candidates of each are trained side by side, and after every
    task the best one by held-out samples goes on alone: `choices` says which, and why.

    They learn the tasks of a benchmark, with `run`, or one by one with `learn` and `evaluate`. Or,
    made with a `DataDescription`, they learn tasks as they come, which `new_task` makes.

    `method` and `build_net` are for a method and a net that cannot be imported by name; the configs
    call them by names that remask does not use. Raises ContradictionError if a config contradicts
    what it is run with.

    `earlier_samples`, for a method that draws from a reservoir and for tasks that come one by one,
    leaves the memory's inputs where they are: in these rows, as a rule `MappedRows` of files, and
    in those of the tasks that are learnt, which may be mapped as well. The memory then only knows
    each slot's source, a number that counts through them: `memory/sources` in `state()`, in place
    of `memory/inputs`. It is an empty sequence where nothing has been learnt yet. To go on with a
    saved state in another stack, give it the same rows in the same order: those of its earlier
    samples, and behind them those of the tasks that it had learnt. (Or copy the rows that are still
    in memory to a new file, and replace the sources by their new numbers.)

    `optimizer` is "sgd", plain gradient descent as in all published runs, or "adamw". With a `log`,
    the losses of the trials are gathered on the way; nothing else changes.
    """

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        benchmark: Benchmark | DataDescription,
        *,
        method: type[Method] | None = None,
        build_net: NetBuilder | None = None,
        device: torch.device | str = "cpu",
        earlier_samples: Sequence[StoredRows] | None = None,
        optimizer: Optimizer = "sgd",
        log: LossLog | None = None,
    ) -> None:
        kind = check_stack(configs, benchmark, method, build_net)
        if earlier_samples is not None:
            check_earlier_samples(earlier_samples, benchmark, kind, configs[0])
        device, shape = torch.device(device), configs[0]
        self.configs = list(configs)
        candidates = candidates_of(kind, shape.buffer) if shape.mask == "auto" else ()
        configs = concrete_configs(configs, kind)
        self.method = kind
        share_apart = SHARE_APART if len(candidates) > 1 else 0.0
        self._stream = Stream(benchmark, configs, kind, device, share_apart)
        builder = build_net or net_builder(shape.net)
        if self.data.num_tasks is not None:
            builder = kind.adapt_net(builder, self.data.num_tasks)
        seeds = [config.seed for config in configs]
        nets = initial_nets(builder, self.data, seeds)
        self._net = stack_nets(nets, device, seeds=seeds, name=shape.net, precision=shape.precision)
        samples = self._stream.samples
        self._feed = Feed(configs, kind, self._net, self.data, samples, device, earlier_samples)
        self._method = kind(
            {
                name: per_trial_setting([config.weight(name) for config in configs], device)
                for name in kind.weights
            }
        )
        self._descent = Descent(self._net, self._method, configs, device, optimizer)
        self._context = self._method.context = Context(
            configs,
            net=self._net,
            samples=samples,
            reservoir=self._feed.reservoir,
            lr=self._descent.rates(0),
            input_shape=self.data.input_shape,
            class_sizes=self._stream.counts.sum(0),
            largest_task=max((len(task.rows) for task in self.tasks), default=0),
            announced_tasks=self.data.num_tasks,
        )
        self._log = log
        self._context.noted = None if log is None else log.noted
        self._method.prepare()
        self._stream.keep(self._method.memory)
        self._stream.plan_steps([self._method.extra_samples(task) for task in self.tasks])
        self._choosing = (
            Choosing(candidates, self.configs, self.data, len(self.tasks), device)
            if candidates
            else None
        )
        self._measured = Measurements(self.configs, self._stream, self._method, self._choosing, log)
        self._parts = Parts(
            net=self._net,
            stream=self._stream,
            feed=self._feed,
            method=self._method,
            descent=self._descent,
            choosing=self._choosing,
            log=log,
            measured=self._measured,
        )

    @property
    def data(self) -> DataDescription:
        """What is known about all the data, including what has not arrived yet."""
        return self._stream.data

    @property
    def tasks(self) -> Sequence[Task]:
        """The benchmark's tasks, or all of them as one; empty if tasks come one by one."""
        return self._stream.tasks

    @property
    def position(self) -> Position:
        """Where the stack stands: the next step to take."""
        return self._stream.position

    @position.setter
    def position(self, position: Position) -> None:
        self._stream.position = position

    @property
    def total_steps(self) -> int:
        """How many steps all known tasks take."""
        return self._stream.total_steps

    @property
    def steps_done(self) -> int:
        """How many steps have been taken."""
        return self._stream.steps_done

    def run(self) -> Iterator[Position]:
        """Learn the benchmark's tasks from where the stack stands, yielding after every step.

        At a yield the stack may be saved or abandoned.
        """
        while self.position.task < len(self.tasks):
            yield from self.learn_steps(self.tasks[self.position.task])
            self.evaluate()
            yield self.position

    def new_task(
        self,
        inputs: Tensor | StoredRows,
        labels: Tensor,
        *,
        test_inputs: Tensor | None = None,
        test_labels: Tensor | None = None,
    ) -> Task:
        """Make the next task from samples that have just arrived; pass it to `learn`.

        Inputs are [N, *shape]; those in a file, `MappedRows`, stay there, and are read batch by
        batch. The labels say which classes the task has. With test data it is measured, now and
        after every later task. Raises StreamError if the data are not as described, and MethodError
        if the method has no room for another task.
        """
        test = None
        if test_inputs is not None and test_labels is not None:
            test = (test_inputs, test_labels)
        elif test_inputs is not None or test_labels is not None:
            raise StreamError("test_inputs and test_labels are given together or not at all")
        return self._stream.new_task(inputs, labels, test, self._method.memory)

    def test_on(self, task: int, inputs: Tensor, labels: Tensor) -> None:
        """Measure a task that was learnt on these samples from now on, as after a restore."""
        self._stream.test_on(task, inputs, labels)

    def choose_on(self, inputs: Tensor, labels: Tensor) -> None:
        """Compare candidates on these samples of earlier tasks as well, from now on.

        What the stack holds out itself is a part of its buffer and of its state; these are not, so
        they are given again after a restore. Raises StreamError if there is nothing to choose.
        """
        if self._choosing is None:
            raise StreamError('only trials whose mask is "auto" choose by held-out samples')
        self._choosing.choose_on(inputs, labels)

    @property
    def choices(self) -> list[tuple[MaskChoice, ...]]:
        """What each trial chose after every task so far; empty unless its mask is "auto"."""
        return self._measured.choices

    def learn(self, task: Task) -> None:
        """Learn one task from where the stack stands."""
        for _ in self.learn_steps(task):
            pass

    def learn_steps(
        self, task: Task, *, enough: Callable[[int], bool] | None = None
    ) -> Iterator[Position]:
        """Learn one task from where the stack stands, yielding after every step.

        At a yield the stack may be saved or abandoned; after a restore, call this with the same
        task again. The task is learnt when the iterator ends: after all epochs, or as soon as
        `enough`, called after each with the number of epochs so far, returns True.
        """
        return learn_steps(self._parts, task, enough)

    def evaluate(self) -> None:
        """Measure all tasks so far that have test data, after the latest one that was learnt."""
        if not self.position.task:
            raise StreamError("nothing has been learnt yet: call learn() first")
        self._measured.evaluate()

    @property
    def memory_bytes(self) -> int:
        """What each trial keeps from task to task beside its net: samples, logits, copies of nets.

        Rows that a method keeps of a benchmark count as the samples that they stand for.
        """
        return bytes_kept(self._parts, trials=len(self.configs))

    def finish(self) -> list[TrialRecord]:
        """Train to the end; returns the record of each trial."""
        for _ in self.run():
            pass
        return self.results()

    def loss_points(self, since: int = 0) -> list[LossPoint]:
        """The losses of each trial so far, except the first `since` points; needs a `log`.

        With candidates, they are those of the one chosen after the task, and missing until then.
        """
        return self._measured.loss_points(since)

    @property
    def loss_names(self) -> list[str]:
        """What the values of loss points are called."""
        return [] if self._log is None else self._log.names

    def task_points(self, since: int = 0) -> list[TaskPoint]:
        """The accuracies after each task that was learnt and measured, except the first `since`."""
        return self._measured.task_points(since)

    def running_accuracy(self) -> float:
        """The mean Class-IL accuracy over trials and tasks after the latest task; NaN before."""
        return self._measured.running_accuracy()

    def results(self) -> list[TrialRecord]:
        """The record of each trial so far; its time is counted from when the stack was made.

        Raises StreamError before anything is learnt of a stream without known tasks.
        """
        return self._measured.results(self.memory_bytes)

    @property
    def diverged_at(self) -> list[int | None]:
        """The step, from 0, at which the loss of each trial was not finite; None: none so far."""
        return self._measured.diverged_at

    @torch.no_grad()
    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """How each trial rates the classes for inputs [B, *shape] of a task: [S, B, K]."""
        scores = self._method.scores(inputs, task)
        return scores if self._choosing is None else scores[self._measured.networks]

    def net(self, trial: int) -> nn.Module:
        """One trial's net by itself, a copy that predicts as the trial does now.

        It maps inputs [B, *shape] as the nets see them, `(raw * scale - mean) / std` of the
        benchmark, to scores [B, K]; of PNN, `net(inputs, task)`. Raises MethodError if the method
        predicts in its own way, and does not say how a net by itself would.
        """
        return assemble(self.method, copy.deepcopy(self._net.module), self.net_tensors(trial))

    def net_tensors(self, trial: int) -> dict[str, Tensor]:
        """Copies of all that one trial predicts with, by name."""
        check_predictor(self.method)
        return trial_tensors(self._net, self._method, self._measured.networks[trial])

    def state(self) -> dict[str, Tensor]:
        """Every tensor that changes during the run, by name; the live ones, not copies."""
        return state_of(self._parts)

    def restore(self, state: dict[str, Tensor], position: Position) -> None:
        """Go back to a saved state; refuses one that does not fit before it changes anything.

        What was logged goes on if this stack logs, and is left out if it does not.
        """
        restore(self._parts, state, position)

    def grow_from(self, state: dict[str, Tensor], position: Position) -> None:
        """Go on from a state that was saved with fewer classes, in a stack that has learnt nothing.

        Both stacks are the same except for `num_classes`, which is larger here. The nets give the
        same logits for the known classes, and 0 for the new ones; see `grown_state`. Raises
        StreamError or MethodError if the head cannot grow, and then changes nothing.
        """
        grow_from(self._parts, state, position)

    @property
    def growing(self) -> tuple[str, ...]:
        """The prefixes of those names in `state()` whose tensors grow with the tasks."""
        return GROWING if self._stream.open else ()
