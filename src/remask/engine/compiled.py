"""Compiled steps: what a method's terms and an epoch's plan are for the kernel.

They serve chains of linear layers with ReLU on a CPU, terms that depend on no logits, plain
gradient descent, and memories without merging. All other stacks take their steps in torch.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.data.tasks import DataDescription, Task
from remask.engine.compiling import (
    Constraint,
    Decoding,
    Kernel,
    Layout,
    Net,
    Plan,
    Samples,
    Teacher,
    Terms,
    kernel_for,
)
from remask.engine.descent import Optimizer
from remask.engine.linear_stack import LinearStack
from remask.engine.planned import Planned, PlannedTerms, draw_size
from remask.engine.steps import EpochPlan, Feed
from remask.methods.base import Method
from remask.methods.slow_copies import SlowCopies
from remask.methods.step import added
from remask.nets.stacked import StackedNet, State

_HOOKS = ("loss", "begin_step")
_DENSE = 0.5
"""Zeros are skipped if fewer pairs of neighbouring inputs than this have another number."""
_LOOKED_AT = 256  # samples
_MOST_LISTED = 65_535  # rows of a step, or inputs, of which zeros can be skipped


def can_compile(kind: type[Method]) -> bool:
    """Whether the kernel can take the steps of a method: its loss is terms, and no hook acts."""
    return (
        kind.trains_net
        and all(getattr(kind, hook) is getattr(Method, hook) for hook in _HOOKS)
        and (kind.slow_copy is not None or kind.after_step is Method.after_step)
        and (kind.ridge is not None or kind.adjust_gradients is Method.adjust_gradients)
    )


class CompiledSteps:
    """Takes the steps of a stack in the kernel."""

    @classmethod
    def of(
        cls,
        net: StackedNet,
        method: Method,
        feed: Feed,
        data: DataDescription,
        optimizer: Optimizer,
    ) -> "CompiledSteps | None":
        """Return None if the stack must take its steps in torch."""
        kind, memory = type(method), feed.reservoir
        if (
            not isinstance(net, LinearStack)
            or next(iter(net.parameters.values())).device.type != "cpu"
            or optimizer != "sgd"
            or not can_compile(kind)
            or data.augment
            or data.input_type not in (torch.uint8, torch.float32)
            or (memory is not None and memory.counts is not None)
            or os.environ.get("REMASK_ENGINE") == "torch"
        ):
            return None
        kernel = kernel_for(data.input_type)
        return None if kernel is None else cls(kernel, net, method, feed, data)

    def __init__(
        self,
        kernel: Kernel,
        net: LinearStack,
        method: Method,
        feed: Feed,
        data: DataDescription,
    ) -> None:
        self._kernel, self._method, self._feed, self._data = kernel, method, feed, data
        self._planned = PlannedTerms(method, feed, data)
        self._layout = Layout(net.parameters, net.layers)
        self._states, self._layouts = [net.parameters], [self._layout]
        if method.slow_copy is not None:
            self._states.append(getattr(method, method.slow_copy))
            self._layouts.append(Layout(self._states[1], net.layers))
        net.compiled = self._logits
        shape = (-1, *[1] * (len(data.input_shape) - 1))
        mean, std = (
            torch.tensor([other] if given is None else given).view(shape)
            for given, other in ((data.mean, 0.0), (data.std, 1.0))
        )
        ones = torch.ones(data.input_shape)
        self._scale = (ones * data.scale / std).flatten().numpy()
        self._shift = (ones * -mean / std).flatten().numpy()
        self._listable = (
            data.input_type == torch.uint8
            and not self._shift.any()
            and bool((self._scale == self._scale[0]).all())
            and len(self._scale) <= _MOST_LISTED
        )
        own = Method.scores if method.slow_copy is None else SlowCopies.scores
        known = self._listable and type(method).scores is own
        self.scores = self._logits_at if known else None
        """The method's scores of samples in some places, int64 [B] or [S, B]: [S, B, K]."""
        self._sparse = False
        self._inputs: NDArray[Any] = np.empty((0, 0))
        self._nothing = np.zeros((0, data.num_classes), np.float32)
        self.usable: bool | None = None
        """Whether terms can be computed before a step; None until the first step."""
        self._per_second = 100.0

    def begin(self, plan: EpochPlan, task: Task) -> bool:
        """Prepare for an epoch; returns whether its steps can be compiled."""
        inputs, memory = self._feed.samples.inputs, self._feed.reservoir
        if not isinstance(inputs, Tensor):
            return False
        if memory is not None and not isinstance(memory.inputs, Tensor):
            return False
        some = inputs[:: max(1, len(inputs) // _LOOKED_AT)].flatten(1).numpy() != 0
        pairs = some[:, : some.shape[1] - 1 : 2] | some[:, 1::2]
        # Both ways give the same bits.
        self._sparse = self._listable and pairs.size > 0 and float(pairs.mean()) < _DENSE
        self._inputs = inputs.flatten(1).contiguous().numpy()
        if self.usable is None:
            self.usable = self._planned.possible(plan, task)
        return self.usable

    def steps_in(self, seconds: float) -> int:
        """About how many steps can be taken in some time; at least one."""
        return max(1, int(seconds * self._per_second))

    def take(self, plan: EpochPlan, first: int, last: int, task: Task, lr: Tensor) -> Tensor:
        """Take the steps first to last of a plan; returns the losses [n, S], and logs terms."""
        began = time.perf_counter()
        fixed = self._method.fixed_terms and not self._feed.config.task_free
        planned = {} if fixed else self._planned.in_order(plan, first, last, task)

        def shape(number: int) -> tuple[Any, ...]:
            kinds = None if fixed else self._planned.kinds(*planned[number])
            is_full = (number + 1) * plan.batch <= plan.places.shape[1]
            return is_full, draw_size(plan, number), kinds

        losses = []
        for _, alike in groupby(range(first, last), shape):
            numbers = list(alike)
            if fixed:
                step = self._planned.step(plan, numbers[0], None, task)
                if plan.faded is not None:
                    step.faded = plan.faded[numbers[0] : numbers[-1] + 1]  # [n, S]
                steps = [(step, self._method.terms(step))]
            else:
                steps = [planned[number] for number in numbers]
            losses.append(self._take(plan, numbers, steps, lr))
        self._per_second = (last - first) / (time.perf_counter() - began)
        return torch.cat(losses)

    def _take(
        self,
        plan: EpochPlan,
        numbers: Sequence[int],
        planned: Sequence[Planned],
        lr: Tensor,
    ) -> Tensor:
        """Take steps with the same kinds of terms, given those of each, or of all in one."""
        first, last = numbers[0], numbers[-1] + 1
        steps, trials, classes = len(numbers), len(lr), self._data.num_classes
        kinds, batches, names = zip(*self._planned.kinds(*planned[0]), strict=True)
        weight = self._planned.field(
            planned, "weight", 1.0, steps if len(planned) == 1 else 1, trials
        )
        weight = weight.transpose(1, 2).reshape(steps, len(kinds), trials)
        active, shift, value = (
            self._planned.field(planned, name, missing, trials, 1, classes).squeeze(3)
            for name, missing in (("active", True), ("shift", 0.0), ("mask_value", -torch.inf))
        )
        adjusted = torch.where(active, shift, value)
        masked, stored_as = planned[0][0].active, -1
        if self._feed.config.mask_stored and masked is not None:
            own = [number for number, term in enumerate(planned[0][1]) if term.active is masked]
            stored_as = own[0] if own else -1
        samples, memory, reservoir = self._feed.samples, self._feed.reservoir, plan.reservoir
        columns = slice(first * plan.batch, last * plan.batch)
        places = plan.places[:, columns].reshape(trials, steps, -1).numpy()
        batch = places.shape[2]
        draws, slots = np.zeros((trials, steps, 0), np.int64), np.full((trials, steps, batch), -1)
        ends = [batch]
        if reservoir is not None:
            size = reservoir.size(first)
            draws = reservoir.chosen[:, first:last, :, :size]
            ends = [batch + size * draw for draw in range(draws.shape[2] + 1)]
            draws = draws.reshape(trials, steps, size * draws.shape[2])
            slots = reservoir.slots[:, columns].reshape(trials, steps, batch)
        method: Any = self._method
        constrained = method.ridge is not None and method.memory.filled > 0
        if constrained:
            draws, sizes = self._references(plan, numbers)
            ends = [batch, *(batch + own for own in accumulate(sizes))]
        losses = np.empty((trials, steps, len(kinds)), np.float32)
        layers = self._layout.layers
        past = self._kept(trials) if constrained else self._memories(trials)
        least = torch.as_tensor(method.gamma if constrained else 0.0).expand(trials).tolist()
        ridge = method.ridge if constrained else -1.0
        copies, shares = self._layout.flat[:, :0], torch.zeros(0, trials)
        if self._method.slow_copy is not None:
            copies, shares = self._layouts[1].flat, self._shares(steps)

        def run(trial: int) -> None:
            by_trial = (weight, active, adjusted)
            self._kernel.run_steps(
                Net(self._layout.flat[trial], layers),
                Teacher(Net(copies[trial], layers), shares[:, trial].contiguous().numpy()),
                Samples(self._inputs, samples.labels.numpy(), self._nothing),
                past[trial],
                Decoding(self._scale, self._shift, self._sparse and ends[-1] <= _MOST_LISTED),
                Plan(places[trial], draws[trial], slots[trial], np.array(ends)),
                Terms(
                    np.array(kinds),
                    np.array(batches),
                    stored_as,
                    *(own[:, :, trial].contiguous().numpy() for own in by_trial),
                ),
                Constraint(least[trial], ridge),
                np.float32(lr[trial]),
                losses[trial],
            )

        _in_threads(run, trials)
        if memory is not None and reservoir is not None:
            memory.filled = reservoir.filled[last]
            if reservoir.offers:
                memory.offer(plan.labels[:, columns])
        values = torch.from_numpy(losses).transpose(0, 1).unbind(2)
        context = self._method.context
        for name in dict.fromkeys(names if context.noted is not None else ()):
            of_kind = added([own for own, kind in zip(values, names, strict=True) if kind == name])
            for value in of_kind:
                context.note(name, value)
        return added(values)

    def _references(
        self, plan: EpochPlan, numbers: Sequence[int]
    ) -> tuple[NDArray[np.int64], list[int]]:
        """The slots that a method refers to, [S, n, size] for each step or [S, 1, size]; sizes."""
        method: Any = self._method
        slots, sizes = [], []
        for number in numbers[:1] if method.own_memory == "whole" else numbers:
            method.context.name_draws(*plan.key, number)
            own, sizes = method.references()
            slots.append(own)
        return torch.stack(slots, 1).numpy(), sizes

    def _kept(self, trials: int) -> list[Samples]:
        """The samples that a method keeps itself."""
        memory, samples = self._method.memory, self._feed.samples
        assert memory is not None
        places = samples.places(memory.rows())
        inputs, labels = self._inputs[places.numpy()], samples.labels[places].numpy()
        return [Samples(inputs[t], labels[t], self._nothing) for t in range(trials)]

    def _shares(self, steps: int) -> Tensor:
        """How far the teacher moves in each step, [n, S]; counts the steps."""
        method: Any = self._method
        before = method.steps
        method.steps = before + torch.arange(1.0, steps + 1).unsqueeze(1)
        shares: Tensor = method.following()
        method.steps = before.add_(steps)
        return shares

    def _logits(self, inputs: Tensor, state: State) -> Tensor | None:
        """The logits of inputs [S, B, D] with the parameters or the teacher's: [S, B, K]."""
        known = [
            layout for own, layout in zip(self._states, self._layouts, strict=True) if own is state
        ]
        if not known:
            return None
        places = torch.arange(inputs.shape[1]).expand(inputs.shape[:2])
        unit = np.ones(inputs.shape[2], np.float32)
        return self._compute(known[0], inputs, places, Decoding(unit, np.zeros_like(unit), False))

    def _logits_at(self, inputs: Tensor, places: Tensor) -> Tensor:
        trials = len(self._layout.flat)
        flat = inputs.flatten(1).contiguous().expand(trials, -1, -1)
        decoding = Decoding(self._scale, self._shift, self._sparse)
        return self._compute(self._layouts[-1], flat, places.expand(trials, -1), decoding)

    def _compute(
        self, layout: Layout, inputs: Tensor, places: Tensor, decoding: Decoding
    ) -> Tensor:
        """The logits of inputs [S, N, D] in some places, int64 [S, B]."""
        logits = np.empty((*places.shape, self._data.num_classes), np.float32)

        def run(trial: int) -> None:
            net, own = Net(layout.flat[trial], layout.layers), inputs[trial].contiguous().numpy()
            self._kernel.compute_logits(net, own, places[trial].numpy(), decoding, logits[trial])

        _in_threads(run, len(places))
        return torch.from_numpy(logits)

    def _memories(self, trials: int) -> list[Samples]:
        """The memory of each trial, whose arrays the kernel changes."""
        memory = self._feed.reservoir
        if memory is None:
            return [Samples(self._inputs[:0], np.zeros(0, np.int64), self._nothing)] * trials
        assert isinstance(memory.inputs, Tensor)
        logits = self._nothing if memory.logits is None else memory.logits.numpy()
        parts = memory.inputs.flatten(1).numpy(), memory.labels.numpy(), logits
        m = memory.capacity
        return [Samples(*(own[t * m : (t + 1) * m] for own in parts)) for t in range(trials)]


def _in_threads(run: Callable[[int], None], trials: int) -> None:
    """Run a function for each trial; the kernel releases the interpreter lock."""
    threads = min(torch.get_num_threads(), trials)
    with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
        deque((map if pool is None else pool.map)(run, range(trials)), maxlen=0)
