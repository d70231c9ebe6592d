"""A stack of trials: everything that changes while they run, and the loop that changes it.

All state lives in the tensors that `state()` names and in a `Position`. Random numbers have none
(see `remask.randomness`), so saving those two saves the run.
"""

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from remask.benchmarks import Benchmark
from remask.config import TrialConfig
from remask.engine.agreement import (
    check_benchmark,
    check_config,
    check_method,
    check_net,
    check_same_shape,
)
from remask.engine.bench import Bench
from remask.engine.evaluation import Evaluator
from remask.engine.feed import Feed
from remask.engine.fitting import check_fit
from remask.engine.predictors import assemble, check_predictor, trial_tensors
from remask.engine.showing import Position, TrialResult
from remask.engine.stacking import stack_nets
from remask.methods import Method, MethodError, Step, Task, find_method
from remask.names import title_of
from remask.nets import NetBuilder, net_builder
from remask.randomness import torch_seed
from remask.streams import Part, Phase, batch_sizes, hold_out, task_phases, union_phase

_STEPS_BETWEEN_CHECKS = 100
_LR_DROP = 0.1
_BEGIN, _END = -1, -2  # moments of a task that no epoch has


class TrialStack:
    """S trials that run as one. They may differ in seed, mask, learning rate and loss weights.

    `method` and `build_net` are a method and a net that no name leads to; the configs call them by
    names that remask does not use. Raises ContradictionError if a config says something else than
    what it is run with.
    """

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        benchmark: Benchmark,
        *,
        method: type[Method] | None = None,
        build_net: NetBuilder | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        check_same_shape(configs)
        kind = method or find_method(configs[0].method)
        for config in configs:
            check_config(config, kind, benchmark)
        # What the trials of a stack may differ in contradicts nothing.
        check_benchmark(configs[0], benchmark)
        if method is not None:
            check_method(configs[0], method)
        if build_net is not None:
            check_net(configs[0], build_net)
        device = torch.device(device)
        trials, tasks = len(configs), benchmark.num_tasks
        self.configs = list(configs)
        self.benchmark = benchmark
        self.method = kind
        self.position = Position()
        self._method = kind(
            {
                name: _per_trial([config.weight(name) for config in configs], device)
                for name in kind.weights
            }
        )
        self._bends = kind.bend is not Method.bend
        self._lr = _per_trial([config.lr for config in configs], device)
        builder = kind.adapt_net(build_net or net_builder(configs[0].net), tasks)
        nets = [_seeded_net(builder, benchmark, config.seed) for config in configs]
        seeds = [config.seed for config in configs]
        self._net = stack_nets(nets, device, seeds=seeds, name=configs[0].net)
        learnt, held_out = hold_out(benchmark, configs[0].validation, seeds)
        phases_of = task_phases if kind.learns == "tasks" else union_phase
        self._phases = phases_of(benchmark, learnt.labels)
        self._feed = Feed(benchmark, learnt, configs, kind, self._phases, self._net, device)
        test = Part(benchmark.test_labels)
        self._test = Evaluator(benchmark, benchmark.test_inputs, test, trials, device)
        self._validation = (
            Evaluator(benchmark, self._feed.inputs, held_out, trials, device) if held_out else None
        )
        self._epochs, self._lr_drops = configs[0].epochs, configs[0].lr_drops
        self._tasks = _tasks_of(self._phases, device)
        self._bench = Bench(benchmark, learnt, configs, self._net, self._feed, self._lr)
        self._method.bench = self._bench
        self._method.prepare()
        self._steps_in_epoch = [
            len(batch_sizes(len(task.rows) + self._method.more_samples(task), configs[0].batch))
            for task in self._tasks
        ]

        self._confidence = torch.full(
            (trials, benchmark.num_classes), torch.nan, dtype=torch.float64
        )
        self._diverged_at = torch.full((trials,), -1, dtype=torch.int64)
        self._unchecked: list[Tensor] = []  # the losses [S] of the latest steps

    @property
    def num_phases(self) -> int:
        """How many times the run stops to be evaluated: once a task, or once in all."""
        return len(self._phases)

    @property
    def total_steps(self) -> int:
        """How many steps the whole run takes."""
        return sum(self._steps_in_epoch) * self._epochs

    @property
    def steps_done(self) -> int:
        """How many steps have been taken."""
        phase, epoch, step = self.position
        earlier = sum(self._steps_in_epoch[:phase]) * self._epochs
        return earlier + (epoch * self._steps_in_epoch[phase] if epoch else 0) + step

    def run(self) -> Iterator[Position]:
        """Train from where the stack stands to the end, yielding after every step.

        At a yield the stack may be saved, and may be left for good.
        """
        while self.position.phase < len(self._phases):
            index, epoch, done = self.position
            phase, task = self._phases[index], self._tasks[index]
            masking = self._feed.masking(phase)
            if epoch < self._epochs:
                lr = self._learning_rates(epoch)
                if epoch == done == 0:
                    self._bench.at(lr, index, _BEGIN)
                    self._method.begin_task(task)
                more = self._method.more_rows(task) if self._method.more_samples(task) else None
                plan = self._feed.plan(index, epoch, more)
                for number in range(done, self._steps_in_epoch[index]):
                    self._bench.at(lr, index, epoch, number)
                    step = self._feed.step(plan, number, masking, task)
                    loss = self._descend(step, lr)
                    self._feed.remember(plan, number, step)
                    self._method.after_step(step)
                    self._unchecked.append(loss)
                    self.position = Position(index, epoch, number + 1)
                    if len(self._unchecked) == _STEPS_BETWEEN_CHECKS:
                        self._check_losses()
                    yield self.position
                self.position = Position(index, epoch + 1)
            else:
                self._check_losses()
                self._bench.at(self._learning_rates(epoch - 1), index, _END)
                self._method.end_task(task)
                self._evaluate(phase.task, last=index + 1 == len(self._phases))
                self.position = Position(index + 1)
                yield self.position

    def finish(self) -> list[TrialResult]:
        """Train from where the stack stands to the end; returns what each trial has shown."""
        for _ in self.run():
            pass
        return self.results()

    def running_accuracy(self) -> float:
        """The mean Class-IL accuracy over trials and tasks after the latest task; NaN before."""
        rows = self._test.class_il.nanmean(dim=(0, 2))
        measured = rows[~rows.isnan()]
        return float(measured[-1]) if len(measured) else float("nan")

    def results(self) -> list[TrialResult]:
        """What each trial has shown so far."""
        self._check_losses()
        title, held_out = str(self._method.title), self._validation
        return [
            TrialResult(
                config=config,
                class_il=self._test.class_il[trial].tolist(),
                task_il=self._test.task_il[trial].tolist(),
                validation_class_il=held_out.class_il[trial].tolist() if held_out else [],
                validation_task_il=held_out.task_il[trial].tolist() if held_out else [],
                confidence=self._confidence[trial].tolist(),
                tasks=self.benchmark.tasks,
                class_names=self.benchmark.class_names,
                diverged_at=None if step < 0 else step,
                title=None if title == title_of(config.method) else title,
            )
            for trial, (config, step) in enumerate(
                zip(self.configs, self._diverged_at.tolist(), strict=True)
            )
        ]

    @torch.no_grad()
    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """How each trial rates the classes for inputs [B, *shape] of a task: [S, B, K]."""
        return self._method.scores(inputs, task)

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
        return trial_tensors(self._net, self._method, trial)

    def state(self) -> dict[str, Tensor]:
        """Every tensor that changes during the run, by name; the live ones, not copies."""
        self._check_losses()
        parts = {"net": self._net.state(), "method": self._method.state()}
        if self._feed.memory is not None:
            parts["memory"] = self._feed.memory.state()
        parts["metrics"] = {
            "class_il": self._test.class_il,
            "task_il": self._test.task_il,
            "confidence": self._confidence,
            "diverged_at": self._diverged_at,
        }
        if self._validation is not None:
            parts["validation"] = {
                "class_il": self._validation.class_il,
                "task_il": self._validation.task_il,
            }
        return {
            f"{part}/{name}": tensor
            for part, named in parts.items()
            for name, tensor in named.items()
        }

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor], position: Position) -> None:
        """Go back to a saved state; refuses one that does not fit before it changes anything."""
        own = self.state()
        check_fit(state, own, "this run")
        for name, tensor in own.items():
            tensor.copy_(state[name])
        self.position = Position(*position)

    def _descend(self, step: Step, lr: Tensor) -> Tensor:
        """Update the networks; returns the losses, [S]."""
        loss = self._method.loss(step)
        if loss.shape != lr.shape:
            raise MethodError(
                f"the loss of {self._method.title} must have one entry a trial, "
                f"{list(lr.shape)}, not the shape {list(loss.shape)}"
            )
        if not loss.requires_grad:
            raise MethodError(
                f"the loss of {self._method.title} does not depend on the network: nothing would "
                f"be learnt"
            )
        if self._bends:
            self._net.move(self._method.bend(step, self._net.gradients(loss)), lr)
        else:  # the same, without ever writing the gradients down
            self._net.descend(loss, lr)
        return loss.detach()

    def _learning_rates(self, epoch: int) -> Tensor:
        """The trials' learning rates [S] in an epoch, counted from 0, of any task."""
        drops = sum(epoch >= drop for drop in self._lr_drops)
        return self._lr * _LR_DROP**drops if drops else self._lr

    @torch.no_grad()
    def _evaluate(self, task: int, *, last: bool) -> None:
        self._test.measure(self._method.scores, task, class_il=self._method.class_il)
        if self._validation is not None:
            self._validation.measure(self._own_scores, task, class_il=self._method.class_il)
        if last and self._method.confidence:
            self._confidence.copy_(self._test.confidence(self._method.scores))

    def _own_scores(self, inputs: Tensor, task: int) -> Tensor:
        """How each trial rates the classes for inputs of its own, [S, B, *shape]: [S, B, K]."""
        if type(self._method).scores is Method.scores:
            return self._net.evaluate(inputs)
        # What a method computes in its own way it computes for inputs that all trials share.
        each = [self._method.scores(own, task)[trial] for trial, own in enumerate(inputs)]
        return torch.stack(each)

    def _check_losses(self) -> None:
        """Note the first step at which a trial's loss was not a number, trial by trial.

        Its neighbours go on: nothing of theirs is computed from its numbers.
        """
        if not self._unchecked:
            return
        broken = ~torch.stack(self._unchecked).isfinite().cpu()  # [steps, S]
        first_step = self.steps_done - len(self._unchecked)
        found = broken.any(0) & (self._diverged_at < 0)
        self._diverged_at[found] = first_step + broken.int().argmax(0)[found]
        self._unchecked.clear()


def _tasks_of(phases: Sequence[Phase], device: torch.device) -> list[Task]:
    """What a method is told of each phase."""
    seen = torch.zeros_like(phases[0].active)
    tasks = []
    for phase in phases:
        seen = seen | phase.active
        own = [tensor.to(device) for tensor in (phase.rows, phase.active, seen)]
        tasks.append(Task(phase.task, *own))
    return tasks


def _per_trial(values: Sequence[float], device: torch.device) -> Tensor:
    """One setting of every trial, [S]."""
    return torch.tensor(values, dtype=torch.float32, device=device)


def _seeded_net(build: NetBuilder, benchmark: Benchmark, seed: int) -> nn.Module:
    """A net whose initial weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "init"))
        return build(benchmark.input_shape, benchmark.num_classes)
