"""A stack of trials: everything that changes while they run, and the loop that changes it.

All state lives in the tensors that `state()` names and in a `Position`. Random numbers have none
(see `remask.randomness`), so saving those two saves the run.
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
from remask.engine.fitting import check_fit
from remask.engine.growing import grown_state
from remask.engine.loss_log import LOG, LossLog, LossPoint
from remask.engine.measurements import Measurements
from remask.engine.predictors import assemble, check_predictor, trial_tensors
from remask.engine.showing import Choice, Position, TaskPoint, TrialResult
from remask.engine.stacking import initial_nets, stack_nets
from remask.engine.stream import Stream
from remask.memory import StoredRows
from remask.methods import Engine, Method
from remask.nets import NetBuilder, net_builder
from remask.streams import DataDescription, StreamError, Task, batch_sizes

_BEGIN, _END = -1, -2  # in place of an epoch, in the names of random numbers
_GROWING = ("metrics/", "validation/", "stream/", "method/", "choices/")  # with an open stream
_SHARED = ("stream/counts", "stream/steps", "choices/", LOG)  # by the candidates of a trial


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
    the losses of the trials are gathered on the way; nothing else changes. With `compile`, steps
    are compiled by torch.compile: tens of seconds at the first, and other last bits of the results.
    Raises CaptureError where that cannot be done.
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
        compile: bool = False,  # noqa: A002
    ) -> None:
        kind = check_stack(configs, benchmark, method, build_net)
        if earlier_samples is not None:
            check_earlier_samples(earlier_samples, benchmark, kind)
        device, shape = torch.device(device), configs[0]
        self.configs = list(configs)
        candidates = candidates_of(kind, shape.buffer) if shape.mask == "auto" else ()
        configs = concrete_configs(configs, kind)
        self.method = kind
        self.position = Position()
        self._epochs, self._batch = shape.epochs, shape.batch
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
                name: per_trial_setting(
                    [config.weight(name, kind.added_weights) for config in configs], device
                )
                for name in kind.weights
            }
        )
        self._descent = Descent(self._net, self._method, configs, device, optimizer)
        if compile:
            self._net.capture(self._feed.forward_sizes)
            self._descent.capture(self._feed.usual_sizes)
        self._engine = self._method.engine = Engine(
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
        self._engine.noted = None if log is None else log.noted
        self._method.prepare()
        self._stream.keep(self._method.memory)
        steps = [self._steps_of(task, self._method.extra_samples(task)) for task in self.tasks]
        self._stream.steps = torch.tensor(steps, dtype=torch.int64)
        self._stream.plan_curves()
        self._choosing = (
            Choosing(candidates, self.configs, self.data, len(self.tasks), device)
            if candidates
            else None
        )
        self._measured = Measurements(self._stream, self._method, len(configs))
        self._divergence = self._measured.divergence

    @property
    def data(self) -> DataDescription:
        """What is known of all the data, whether they have come or not."""
        return self._stream.data

    @property
    def tasks(self) -> Sequence[Task]:
        """The benchmark's tasks, or all of them as one; empty if tasks come one by one."""
        return self._stream.tasks

    @property
    def total_steps(self) -> int:
        """How many steps all tasks take that are known."""
        return int(self._stream.steps.sum()) * self._epochs

    @property
    def steps_done(self) -> int:
        """How many steps have been taken."""
        index, epoch, step = self.position
        earlier = self._steps_before(index)
        return earlier + (epoch * int(self._stream.steps[index]) if epoch else 0) + step

    def run(self) -> Iterator[Position]:
        """Learn the benchmark's tasks from where the stack stands, yielding after every step.

        At a yield the stack may be saved, and may be left for good.
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
        """The next task, of samples that are there only now; `learn` takes it.

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
        number = self.position.task
        return self._stream.new_task(number, inputs, labels, test, self._method.memory)

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
    def choices(self) -> list[tuple[Choice, ...]]:
        """What each trial chose after every task so far; empty unless its mask is "auto"."""
        if self._choosing is None:
            return [()] * len(self.configs)
        return self._choosing.choices(self.position.task)

    def learn(self, task: Task) -> None:
        """Learn one task from where the stack stands."""
        for _ in self.learn_steps(task):
            pass

    def learn_steps(
        self, task: Task, *, enough: Callable[[int], bool] | None = None
    ) -> Iterator[Position]:
        """Learn one task from where the stack stands, yielding after every step.

        At a yield the stack may be saved, and may be left for good; whoever restores it gives the
        same task again. The task is learnt when the iterator ends: after all epochs, or after the
        first for which `enough`, told how many have been learnt, says so.
        """
        index, begun, done = self.position
        self._stream.begin(task, index)
        self._feed.begin_task(index)
        masking = self._feed.masking(task)
        earlier = int(self._stream.counts[:index].sum())
        self._engine.class_sizes = self._stream.class_sizes(task)
        if begun == done == 0:
            self._enter(index, _BEGIN, lr=self._descent.rates(0))
            self._method.begin_task(task)
        extra = self._method.extra_rows(task) if self._method.extra_samples(task) else None
        steps = self._steps_of(task, 0 if extra is None else extra.shape[1])
        self._stream.note(task, index, steps)
        due = self._stream.points_of(index)
        if self._log is not None:
            self._log.begin_task(index, self._steps_before(index), steps * self._epochs)
        at_end = due.pop(steps * self._epochs, None)  # once the method has ended the task, too
        for epoch in range(begun, self._epochs):
            lr = self._descent.rates(epoch)
            plan = self._feed.plan(task.rows, (index, epoch), earlier, extra, begin=done)
            for number in range(done, steps):
                self._enter(index, epoch, number, lr=lr)
                step = self._feed.step(plan, number, masking, task)
                loss = self._descent.step(step, lr)
                self._feed.remember(plan, number, step)
                self._method.after_step(step)
                self.position = Position(index, epoch, number + 1)
                if self._divergence.note(loss):
                    self._divergence.look(self.steps_done)
                if self._log is not None:
                    self._log.after_step(loss, epoch * steps + number + 1)
                self._measured.within_task(task, due.get(epoch * steps + number + 1))
                yield self.position
            self.position = Position(index, epoch + 1)
            done = 0
            if enough is not None and enough(epoch + 1):
                break
        self._divergence.look(self.steps_done)
        if self._log is not None:
            self._log.close(self.steps_done - self._steps_before(index))
        self._feed.count_memory(earlier + len(task.rows))
        self._enter(index, _END, lr=self._descent.rates(self._epochs - 1))
        self._method.end_task(task)
        self._stream.keep(self._method.memory)
        self._choose(task, index)
        self._measured.within_task(task, at_end)
        self.position = Position(index + 1)

    def evaluate(self) -> None:
        """Measure all tasks so far that have test data, after the latest one that was learnt."""
        if not self.position.task:
            raise StreamError("nothing has been learnt yet: call learn() first")
        self._measured.after_task(self.position.task - 1)

    @property
    def memory_bytes(self) -> int:
        """What each trial keeps from task to task beside its net: samples, logits, copies of nets.

        Rows that a method keeps of a benchmark count as the samples that they stand for.
        """
        tensors = [t for n, t in self.state().items() if n.startswith(("memory/", "method/"))]
        kept = sum(tensor.nbytes for tensor in tensors) // len(self.configs)
        memory = self._method.memory
        if memory is None or self._stream.open:
            return kept
        inputs = self._stream.samples.inputs
        sample = inputs[:1].nbytes if isinstance(inputs, Tensor) else 0
        return kept + memory.filled * sample

    def finish(self) -> list[TrialResult]:
        """Train from where the stack stands to the end; returns what each trial has shown."""
        for _ in self.run():
            pass
        return self.results()

    def loss_points(self, since: int = 0) -> list[LossPoint]:
        """The losses of each trial so far, without the first `since` points; needs a `log`.

        Of candidates, the one that was chosen after the task tells; before that, none does.
        """
        if self._log is None:
            raise StreamError("this stack does not log its losses: make it with log=LossLog()")
        points = self._log.points[since:]
        if self._choosing is None:
            return points
        return [
            point._replace(values=point.values[self._choosing.networks(point.task + 1)])
            for point in points
            if point.task < self.position.task
        ]

    @property
    def loss_names(self) -> list[str]:
        """What the values of loss points are called."""
        return [] if self._log is None else self._log.names

    def task_points(self, since: int = 0) -> list[TaskPoint]:
        """The accuracies after each task that was learnt and measured, but the first `since`."""
        return [
            self._measured.task_point(index, self._steps_before(index + 1), self._nets_after(index))
            for index in range(since, self.position.task)
        ]

    def running_accuracy(self) -> float:
        """The mean Class-IL accuracy over trials and tasks after the latest task; NaN before."""
        return self._measured.running_accuracy()

    def results(self) -> list[TrialResult]:
        """What each trial has shown so far."""
        self._divergence.look(self.steps_done)
        losses = None
        if self._log is not None:
            losses = self._log.of_trials(self._nets_after, self._stream.number)
        return self._measured.results(
            self.configs,
            self._networks(),
            self.choices,
            self.position.task,
            self.memory_bytes,
            losses,
        )

    @torch.no_grad()
    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """How each trial rates the classes for inputs [B, *shape] of a task: [S, B, K]."""
        scores = self._method.scores(inputs, task)
        return scores if self._choosing is None else scores[self._networks()]

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
        return trial_tensors(self._net, self._method, self._networks()[trial])

    def state(self) -> dict[str, Tensor]:
        """Every tensor that changes during the run, by name; the live ones, not copies."""
        self._divergence.look(self.steps_done)
        parts = {"net": self._net.state(), "method": self._method.state()}
        if self._descent.adamw is not None:
            parts["optimizer"] = self._descent.adamw.state()
        if self._feed.reservoir is not None:
            parts["memory"] = self._feed.reservoir.state()
        parts |= self._measured.state()
        parts["stream"] = self._stream.state()
        if self._choosing is not None:
            parts["choices"] = self._choosing.state()
        if self._log is not None:
            parts["log"] = self._log.state()
        return {
            f"{part}/{name}": tensor
            for part, named in parts.items()
            for name, tensor in named.items()
        }

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor], position: Position) -> None:
        """Go back to a saved state; refuses one that does not fit before it changes anything.

        What was logged goes on if this stack logs, and is left out if it does not.
        """
        logged, state = _without_log(state)
        _, own = _without_log(self.state())
        if self._stream.open:
            check_fit(state, own, "this stack", growing=_GROWING)
            self._stream.grow_as(state)
            self._method.grow_as(state)
            if self._choosing is not None:
                self._choosing.grow_as(state)
            _, own = _without_log(self.state())
        check_fit(state, own, "this run")
        for name, tensor in own.items():
            tensor.copy_(state[name])
        if self._log is not None:
            self._log.restore(logged)
        self.position = Position(*position)
        self._measured.restored()

    def grow_from(self, state: dict[str, Tensor], position: Position) -> None:
        """Go on from a state that was saved with fewer classes, in a stack that has learnt nothing.

        Both stacks are the same but for `num_classes`, which is larger here. The nets say the same
        of the classes that were known, and 0 of the new ones; see `grown_state`. Raises StreamError
        or MethodError if the head cannot grow, and then changes nothing.
        """
        if self.position != Position():
            raise StreamError("only a stack that has learnt nothing yet can take over a state")
        grown = grown_state(
            _without_log(state)[1],
            _without_log(self.state())[1],
            net=self._net,
            method=self.method,
            absent_logits=self._feed.absent_logits(),
            input_shape=self.data.input_shape,
        )
        self.restore(grown, position)

    @property
    def growing(self) -> tuple[str, ...]:
        """How the names of tensors in `state()` begin that grow with the tasks."""
        return _GROWING if self._stream.open else ()

    def _steps_of(self, task: Task, extra: int) -> int:
        """How many steps an epoch of a task has, with so many samples besides its own."""
        return len(batch_sizes(len(task.rows) + extra, self._batch))

    def _steps_before(self, index: int) -> int:
        """How many steps the first so many tasks take."""
        return int(self._stream.steps[:index].sum()) * self._epochs

    def _enter(self, *key: int, lr: Tensor) -> None:
        """Come to a task, epoch and step: what is drawn from now on is named after them."""
        self._engine.lr = lr
        self._engine.name_draws(*key)

    def _choose(self, task: Task, index: int) -> None:
        """Let the best candidate of each trial go on, in the places of all its candidates."""
        if self._choosing is None:
            return
        apart, diverged = self._stream.apart_of(task), self._divergence.first_steps >= 0
        self._choosing.choose(self._method.own_scores, task, index, apart, diverged)
        state = self.state()
        self._choosing.spread([state[n] for n in state if not n.startswith(_SHARED)], index)

    def _networks(self) -> list[int]:
        """The network that stands for each trial; without candidates, its own."""
        if self._choosing is None:
            return list(range(len(self.configs)))
        return self._choosing.networks(self.position.task)

    def _nets_after(self, index: int) -> list[int]:
        """The network that stood for each trial once the task after `index` others was learnt."""
        if self._choosing is None or index >= self.position.task:
            return self._networks()
        return self._choosing.networks(index + 1)


def _without_log(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What was logged, by its own names, and everything else."""
    logged = {name.removeprefix(LOG): state[name] for name in state if name.startswith(LOG)}
    return logged, {name: state[name] for name in state if not name.startswith(LOG)}
