"""A stack of trials: the public interface, the training loop, and what is saved.

`stream.py` has the tasks, `steps.py` the samples of a step, `descent.py` what is done with its
loss, and `measurements.py` what is measured.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.data.tasks import DataDescription, StreamError, Task
from remask.engine.checkpoints import check_fit
from remask.engine.choosing import SHARE_APART, Choosing, concrete_configs
from remask.engine.compiled import CompiledSteps
from remask.engine.descent import Descent, Optimizer
from remask.engine.growing import grown_state
from remask.engine.linear_stack import stack_nets
from remask.engine.loss_log import LOG, LossLog
from remask.engine.measurements import GROWING, POINTS, Measurements
from remask.engine.saved_nets import assemble, check_predictor, trial_tensors
from remask.engine.steps import EpochPlan, Feed
from remask.engine.stream import Position, Stream
from remask.engine.validation import check_earlier_samples, check_stack
from remask.memory import StoredRows
from remask.methods.base import Context, Method
from remask.nets.builders import NetBuilder, initial_net, net_builder
from remask.record import MaskChoice, TrialRecord

_OPEN = ("stream/", "method/", "choices/")  # what also grows if tasks come one by one
_SHARED = ("stream/counts", "stream/steps", "choices/", POINTS)  # by the candidates of a trial
_BEGIN, _END = -1, -2  # in place of an epoch, in the names of random numbers
_PACE = 1.0  # seconds between positions that nobody looks at


class TrialStack:
    """S trials that run as one. They may differ in seed, mask, learning rate and loss weights.

    They learn the tasks of a benchmark, with `run`, or one by one with `learn` and `evaluate`. With
    a `DataDescription` instead of a benchmark, `new_task` makes each task when its data arrive.

    With the mask "auto", several candidates of each trial are trained side by side, and after every
    task the best one on held-out samples continues; see `choices`.

    `method` and `build_net` are for a method and a net that cannot be imported by name; the configs
    then use names of their own. Raises ContradictionError if a config contradicts its benchmark,
    method or net.

    `earlier_samples`, for reservoir methods and tasks that come one by one, leaves the inputs of
    the memory where they are: in these rows, usually `MappedRows` of files, and in those of the
    tasks that are learnt. The state then has `memory/sources`, row numbers that count through them,
    instead of `memory/inputs`. Pass an empty sequence at first. To restore a state in another
    stack, pass the same rows in the same order: its earlier samples, then those of its tasks.

    `optimizer` is "sgd" (plain gradient descent, as in all published runs) or "adamw". A `log`
    collects the losses.
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
        device, config = torch.device(device), configs[0]
        self.configs, self.method = list(configs), kind
        auto = config.mask == "auto"
        configs = concrete_configs(configs) if auto else configs
        share_apart = SHARE_APART if len(configs) > len(self.configs) else 0.0
        self._stream = stream = Stream(benchmark, configs, kind, device, share_apart)
        self.data = stream.data
        """The description of all data, including what has not arrived yet."""
        self.tasks: Sequence[Task] = stream.tasks
        """The benchmark's tasks, or all of them as one; empty if tasks come one by one."""
        builder = build_net or net_builder(config.net)
        if self.data.num_tasks is not None:
            builder = kind.adapt_net(builder, self.data.num_tasks)
        seeds = [own.seed for own in configs]
        nets = [initial_net(builder, self.data, seed) for seed in seeds]
        self._net = stack_nets(
            nets, device, seeds=seeds, name=config.net, precision=config.precision
        )
        self._feed = Feed(
            configs, kind, self._net, self.data, stream.samples, device, earlier_samples
        )
        given = {name: torch.tensor([own.weight(name) for own in configs]) for name in kind.weights}
        self._method = kind({name: own.float().to(device) for name, own in given.items()})
        self._descent = Descent(self._net, self._method, configs, device, optimizer)
        self._context = self._method.context = Context(
            configs,
            self.data,
            net=self._net,
            samples=stream.samples,
            reservoir=self._feed.reservoir,
            lr=self._descent.rates(0),
            class_sizes=stream.counts.sum(0),
            largest_task=max((len(task.rows) for task in self.tasks), default=0),
        )
        self._log = log
        self._context.noted = None if log is None else log.noted
        self._method.prepare()
        stream.keep(self._method.memory)
        for index, task in enumerate(self.tasks):
            stream.plan_steps(index, task, self._method.extra_samples(task))
        self._compiled = CompiledSteps.of(self._net, self._method, self._feed, self.data, optimizer)
        for evaluator in stream.evaluators.values():
            evaluator.compiled = None if self._compiled is None else self._compiled.scores
        known = len(self.tasks)
        self._choosing = Choosing(self.configs, self.data, known, device) if auto else None
        self.measured = Measurements(self.configs, stream, self._method, self._choosing, log)
        """Losses and accuracies so far."""

    @property
    def position(self) -> Position:
        """The next step to take."""
        return self._stream.position

    @property
    def total_steps(self) -> int:
        """The number of steps of all known tasks."""
        return self._stream.steps_before(len(self._stream.steps))

    @property
    def steps_done(self) -> int:
        """The number of steps taken."""
        return self._stream.steps_done

    # ---- Learning ------------------------------------------------------------------------------

    def finish(self) -> list[TrialRecord]:
        """Learn the rest of the benchmark; returns the record of each trial."""
        for _ in self.run(_PACE):
            pass
        return self.results()

    def run(self, pace: float = 0.0) -> Iterator[Position]:
        """Learn the rest of the benchmark; yields as `learn_steps` does, and after evaluations."""
        return chain.from_iterable(self._parts(pace))

    def _parts(self, pace: float) -> Iterator[Iterable[Position]]:
        while self.position.task < len(self.tasks):
            yield self.learn_steps(self.tasks[self.position.task], pace=pace)
            self.evaluate()
            yield [self.position]

    def new_task(
        self,
        inputs: Tensor | StoredRows,
        labels: Tensor,
        *,
        test_inputs: Tensor | None = None,
        test_labels: Tensor | None = None,
    ) -> Task:
        """Make the next task from samples that have just arrived, for `learn`.

        Inputs are [N, *shape]; `MappedRows` stay in their file and are read batch by batch. The
        labels define the classes of the task. With test data it is measured, now and after every
        later task. Raises StreamError if the data do not match the description, and MethodError if
        the method has no room for another task.
        """
        test = None
        if test_inputs is not None and test_labels is not None:
            test = (test_inputs, test_labels)
        elif test_inputs is not None or test_labels is not None:
            raise StreamError("give both test_inputs and test_labels, or neither")
        return self._stream.new_task(inputs, labels, test, self._method.memory)

    def learn(self, task: Task) -> None:
        """Learn one task from the current position."""
        for _ in self.learn_steps(task, pace=_PACE):
            pass

    def learn_steps(
        self,
        task: Task,
        *,
        enough: Callable[[int], bool] | None = None,
        pace: float = 0.0,
    ) -> Iterator[Position]:
        """Learn one task from the current position, yielding after every step.

        Compiled steps yield about every `pace` seconds, which does not change the results. At a
        yield the stack may be saved or abandoned; after a restore, call this with the same task
        again. The task is learnt when the iterator ends: after all epochs, or as soon as `enough`,
        called after each with the number of epochs so far, returns True.
        """
        stream, feed, method, measured = self._stream, self._feed, self._method, self.measured
        index, begun, done = stream.position
        extra = self._begin(task)
        epochs = self._context.epochs
        steps = stream.plan_steps(index, task, 0 if extra is None else extra.shape[1])
        measured.begin_task(steps * epochs)
        earlier = int(stream.counts[:index].sum())
        for epoch in range(begun, epochs):
            lr = self._descent.rates(epoch)
            plan = feed.plan(task, (index, epoch), earlier, extra, begin=done)
            compiled = self._compiled
            if compiled is not None and not compiled.begin(plan, task):
                compiled = None
            while done < steps:
                before = epoch * steps
                self._enter(index, epoch, done, lr=lr)
                if compiled is None:
                    losses, done = self._step(plan, done, task, lr), done + 1
                else:
                    last = min(steps, measured.next_look(before + done) - before)
                    last = min(last, done + compiled.steps_in(pace))
                    losses, done = compiled.take(plan, done, last, task, lr), last
                stream.position = Position(index, epoch, done)
                measured.after_steps(task, losses, before + done)
                yield stream.position
            stream.position = Position(index, epoch + 1)
            done = 0
            if enough is not None and enough(epoch + 1):
                break
        measured.after_last_step()
        if feed.reservoir is not None:
            feed.reservoir.count_filled(epochs * (earlier + len(task.rows)))
        self._enter(index, _END, lr=self._descent.rates(epochs - 1))
        method.end_task(task)
        stream.keep(method.memory)
        self._choose(task)
        measured.end_task(task)
        stream.position = Position(index + 1)

    def _step(self, plan: EpochPlan, number: int, task: Task, lr: Tensor) -> Tensor | None:
        """Take one step in torch; returns the losses [1, S], if there are any."""
        step = self._feed.step(plan, number, task)
        self._method.begin_step(step)
        loss = self._descent.step(step, lr) if self._method.trains_net else None
        self._feed.remember(plan, number, step)
        self._method.after_step(step)
        return None if loss is None else loss.unsqueeze(0)

    def _begin(self, task: Task) -> Tensor | None:
        """Start or resume a task; returns the rows that the method adds to it, [S, n], if any."""
        index, *steps_taken = self.position
        self._stream.begin(task)
        if self._feed.reservoir is not None:
            self._feed.reservoir.begin_task(index, self._stream.samples.inputs)
        self._context.class_sizes = self._stream.counts.sum(0)
        if not any(steps_taken):
            self._enter(index, _BEGIN, lr=self._descent.rates(0))
            self._method.begin_task(task)
        return self._method.extra_rows(task) if self._method.extra_samples(task) else None

    def _enter(self, *key: int, lr: Tensor) -> None:
        """Name the random numbers drawn from now on by task, epoch and step."""
        self._context.lr = lr
        self._context.name_draws(*key)

    def _choose(self, task: Task) -> None:
        """Copy the best candidate of each trial to all its candidates."""
        if self._choosing is None:
            return
        index, apart = self.position.task, self._stream.apart_of(task)
        scores, diverged = self._method.own_scores, self.measured.diverged
        self._choosing.choose(scores, task, index, apart, diverged)
        own = [tensor for name, tensor in self._tensors().items() if not name.startswith(_SHARED)]
        self._choosing.spread(own, index)

    # ---- Measuring and predicting --------------------------------------------------------------

    def evaluate(self) -> None:
        """Measure all tasks so far that have test data, after the latest task learnt."""
        if not self.position.task:
            raise StreamError("nothing has been learnt yet: call learn() first")
        self.measured.evaluate()

    def test_on(self, task: int, inputs: Tensor, labels: Tensor) -> None:
        """Measure a task on these samples from now on, as after a restore."""
        self._stream.test_on(task, inputs, labels)

    def choose_on(self, inputs: Tensor, labels: Tensor) -> None:
        """Also compare candidates on these samples of earlier tasks from now on.

        They are not part of the state: pass them again after a restore. Raises StreamError unless
        the mask is "auto".
        """
        if self._choosing is None:
            raise StreamError('choose_on needs trials with the mask "auto"')
        self._choosing.choose_on(inputs, labels)

    @property
    def choices(self) -> list[tuple[MaskChoice, ...]]:
        """Each trial's choice after every task so far; empty unless the mask is "auto"."""
        return self.measured.choices

    def results(self) -> list[TrialRecord]:
        """The record of each trial so far; its time is counted from when the stack was made.

        Raises StreamError before anything is learnt of a stream without known tasks.
        """
        compiled = self._compiled is not None and self._compiled.usable
        return self.measured.results("kernel" if compiled else "torch")

    @property
    def diverged_at(self) -> list[int | None]:
        """The step, from 0, at which the loss of each trial was not finite; None: none so far."""
        return self.measured.diverged_at

    @torch.no_grad()
    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """Each trial's scores of the classes for inputs [B, *shape] of a task: [S, B, K]."""
        return self._method.scores(inputs, task)[self.measured.networks]

    def net(self, trial: int) -> nn.Module:
        """A copy of one trial's net that predicts as the trial does now.

        It maps inputs [B, *shape] as the nets see them, `(raw * scale - mean) / std` of the
        benchmark, to scores [B, K]; that of PNN is called as `net(inputs, task)`. Raises
        MethodError if the method overrides `scores` without `predictor`.
        """
        return assemble(self.method, copy.deepcopy(self._net.module), self.net_tensors(trial))

    def net_tensors(self, trial: int) -> dict[str, Tensor]:
        """Copies of all tensors that one trial predicts with, by name."""
        check_predictor(self.method)
        return trial_tensors(self._net, self._method, self.measured.networks[trial])

    # ---- Saving --------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Every tensor that changes during the run, by name; the live ones, not copies.

        Random numbers have no state, so these and a position are all there is to save.
        """
        log = {} if self._log is None else self._log.state()
        return self._tensors() | {f"{LOG}{name}": tensor for name, tensor in log.items()}

    def _tensors(self) -> dict[str, Tensor]:
        """The state without logged losses."""
        named = {"net": self._net.state(), "method": self._method.state()}
        if self._descent.adamw is not None:
            named["optimizer"] = self._descent.adamw.state
        if self._feed.reservoir is not None:
            named["memory"] = self._feed.reservoir.state()
        named["metrics"] = self.measured.state()
        named["stream"] = self._stream.state()
        if self._choosing is not None:
            named["choices"] = self._choosing.state()
        return {
            f"{part}/{name}": tensor for part, own in named.items() for name, tensor in own.items()
        }

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor], position: Position) -> None:
        """Go back to a saved state; raises ValueError if it does not fit, and changes nothing.

        Logged losses are restored if this stack has a log, and ignored otherwise.
        """
        (saved, logged), own = _apart(state), self._tensors()
        check_fit(saved, own, "this run", self.growing)
        for name, tensor in own.items():
            if tensor.shape != saved[name].shape:  # more tasks were learnt
                tensor.resize_(saved[name].shape)
            tensor.copy_(saved[name])
        self._stream.position = Position(*position)
        for evaluator in self._stream.evaluators.values():
            evaluator.kept.clear()
        if self._log is not None:
            self._log.restore(logged)

    def grow_from(self, state: dict[str, Tensor], position: Position) -> None:
        """Restore a state that was saved with fewer classes, in a stack that has learnt nothing.

        Both stacks are the same except for `num_classes`. The nets compute the same logits for the
        known classes, and 0 for the new ones; see `grown_state`. Raises StreamError or MethodError
        if the head cannot grow, and then changes nothing.
        """
        if self.position != Position():
            raise StreamError("grow_from needs a stack that has learnt nothing")
        grown = grown_state(
            _apart(state)[0],
            self._tensors(),
            net=self._net,
            method=self.method,
            absent_logits=self._feed.absent_logits(),
            input_shape=self.data.input_shape,
        )
        self.restore(grown, position)

    @property
    def growing(self) -> tuple[str, ...]:
        """The prefixes of the names in `state()` whose tensors grow with the tasks."""
        return (*GROWING, LOG, *(_OPEN if self._stream.open else ()))


def _apart(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors of a state without those of the log, and those of the log."""
    logged = {n.removeprefix(LOG): t for n, t in state.items() if n.startswith(LOG)}
    return {n: t for n, t in state.items() if not n.startswith(LOG)}, logged
