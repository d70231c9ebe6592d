"""A training step: its samples, the descent of the loss, and what memory keeps.

`Feed` plans an epoch as tensors and gathers each step from the plan. `Descent` turns the loss of a
step into updated networks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.data.samples import Samples, batch_sizes, epoch_order
from remask.data.tasks import DataDescription, Task
from remask.engine.linear_stack import LinearStack
from remask.errors import MethodError
from remask.memory import SPARSE, Reservoir, ReservoirPlan, StoredRows
from remask.methods.base import Method
from remask.methods.step import Batch, Joined, Step, Term, added
from remask.nets.stacked import Gradients, LossGradients, StackedNet, per_trial

_LR_DROP = 0.1
_FIRST, _SECOND, _EPSILON, _DECAY = 0.9, 0.999, 1e-8, 0.01  # of AdamW, as in torch

Optimizer = Literal["sgd", "adamw"]


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The samples of every step of an epoch, for all trials; depends on seeds and position only."""

    rows: Tensor
    """The rows of the stream in their order, as methods count them: int64 [S, N]."""
    places: Tensor
    """Their places among the samples: int64 [S, N]."""
    labels: Tensor
    """int64 [S, N]."""
    batch: int
    """The rows of a step; the last one may have fewer."""
    views: list[Tensor] | None
    """Per step, the augmentation of the stream and of the draws: int64 [S, B + D * R], or None."""
    reservoir: ReservoirPlan | None
    """The samples that are replayed and stored in each step; None without a reservoir."""
    merges: list[bool]
    """Per step, whether samples that are not stored are merged into the memory."""
    faded: Tensor | None
    """Per step, how far the masks have faded: [steps, S]; None if no mask fades."""
    active: Tensor | None
    """The active classes, bool [S, 1, K], all of them without a mask; None: no trial has one."""
    key: tuple[int, int]
    """The number of the task and of the epoch."""

    def columns(self, number: int) -> slice:
        """Those of the N rows that a step has."""
        return slice(number * self.batch, (number + 1) * self.batch)


class Feed:
    """The data side of a stack: from plans to steps, and from steps to the reservoir."""

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        method: type[Method],
        net: StackedNet,
        data: DataDescription,
        samples: Samples,
        device: torch.device,
        earlier_samples: Sequence[StoredRows] | None = None,
    ) -> None:
        self.config = config = configs[0]
        self._configs, self.samples, self._net, self._device = configs, samples, net, device
        self._seeds = [own.seed for own in configs]
        self._draws = method.draws
        self.reservoir = (
            Reservoir(
                trials=len(configs),
                capacity=config.buffer,
                input_shape=data.input_shape,
                input_type=data.input_type,
                num_classes=data.num_classes,
                stores_logits=method.stores_logits,
                balanced=config.memory == "balanced",
                merging=config.memory == "merging",
                earlier_samples=earlier_samples,
                device=device,
            )
            if method.draws
            else None
        )
        # Without batch statistics one forward gives the same as several, and is faster.
        self._online = self.config.protocol == "online"
        self._one_forward = not net.couples_samples or (method.one_forward and not self._online)
        masks = [own.mask for own in configs]
        values = [0.0 if mask is None else mask for mask in masks]
        self._unmasked = torch.tensor([mask is None for mask in masks], device=device).unsqueeze(1)
        self._mask_value = (
            torch.tensor(values, dtype=torch.float32, device=device).view(-1, 1, 1)
            if any(mask is not None for mask in masks)
            else None
        )

    def plan(
        self, task: Task, key: tuple[int, int], earlier: int, extra: Tensor | None, *, begin: int
    ) -> EpochPlan:
        """Draw the plan of one epoch over a task, and over `extra` rows [S, n] if given.

        `key` is (task, epoch), `earlier` the number of samples of the tasks before. Steps before
        `begin` have been taken already.
        """
        config, own, epoch, rows = self.config, len(task.rows), key[1], task.rows
        if extra is not None:
            rows = torch.cat([rows.expand(len(extra), -1), extra], dim=1)
        rows = epoch_order(rows, self._seeds, key)
        places = self.samples.places(rows)
        labels = self.samples.labels.index_select(0, places.flatten()).view(places.shape)
        places = places.to(self.samples.planned_on)
        sizes = batch_sizes(rows.shape[1], config.batch)
        arrived = torch.tensor(sizes).cumsum(0).clamp(max=own)
        so_far = earlier + (torch.full_like(arrived, own) if epoch else arrived)
        memory, reservoir, merges = self.reservoir, None, [False] * len(sizes)
        if memory is not None:
            reservoir = memory.plan(
                labels,
                sizes,
                seen=config.epochs * earlier + epoch * own,
                begin=begin,
                draws=self._draws,
                draw_size=config.replay_batch,
                seeds=self._seeds,
                key=key,
            )
            if memory.counts is not None:
                merges = (so_far > SPARSE * config.buffer).tolist()
        return EpochPlan(
            rows=rows,
            places=places,
            labels=labels,
            batch=config.batch,
            views=self.samples.plan_views(
                len(sizes), config.batch + self._draws * config.replay_batch, key
            ),
            reservoir=reservoir,
            merges=merges,
            faded=self._faded(so_far),
            active=None
            if self._mask_value is None
            else (task.classes | self._unmasked).unsqueeze(1),
            key=key,
        )

    def _faded(self, arrived: Tensor) -> Tensor | None:
        """min(1, fade * M / n)^power for every step; `arrived` is n, the samples so far."""
        if not any(config.fade for config in self._configs):
            return None
        covered = self.config.buffer / arrived
        fades = torch.tensor([config.fade for config in self._configs])
        shares = (covered.unsqueeze(1) * fades).clamp(max=1)
        for trial, config in enumerate(self._configs):
            if config.fade_power != 1:
                # The rounding of shares.pow() depends on the neighbours of a number.
                own = [share**config.fade_power for share in shares[:, trial].tolist()]
                shares[:, trial] = torch.tensor(own)
        return shares.to(self._device)

    def step(self, plan: EpochPlan, number: int, task: Task) -> Step:
        """Gather the samples of one step."""
        own = plan.columns(number)
        parts, every_label = [self.samples.take(plan.places[:, own])], [plan.labels[:, own]]
        recorded: list[Tensor | None] = [None]
        memory = self.reservoir
        if memory is not None and plan.reservoir is not None:
            memory.filled = plan.reservoir.filled[number]
            drawn = plan.reservoir.draws(number)
            if drawn is not None:
                recalled, past, logits = memory.recall(drawn)
                size = past.shape[1] // self._draws
                parts.append(recalled)
                every_label += torch.split(past, size, dim=1)
                recorded += (
                    [None] * self._draws if logits is None else torch.split(logits, size, dim=1)
                )
        inputs = self.samples.decode(None if plan.views is None else plan.views[number], *parts)
        return self.step_of(plan, number, task, self._batches(inputs, every_label, recorded))

    def step_of(self, plan: EpochPlan, number: int, task: Task, batches: Sequence[Batch]) -> Step:
        """Make a step of the stream and the draws."""
        stream, *replays = batches
        active = plan.active
        if active is not None and self.config.task_free:  # the classes of the batch
            present = torch.zeros_like(active.squeeze(1)).scatter_(1, stream.labels, True)
            active = (present | self._unmasked).unsqueeze(1)
        faded = None if plan.faded is None else plan.faded[number]
        rows = plan.rows[:, plan.columns(number)]
        return Step(stream, tuple(replays), active, self._mask_value, rows, task, faded)

    def _batches(
        self, inputs: Tensor, labels: Sequence[Tensor], recorded: Sequence[Tensor | None]
    ) -> list[Batch]:
        """The stream and the draws, which go through the net together or one by one.

        Under the online protocol, the draws go together.
        """
        sizes, count = [own.shape[1] for own in labels], len(labels)
        if self._one_forward or count == 1:
            groups = [range(count)]
        elif self._online:
            groups = [range(1), range(1, count)]
        else:
            groups = [range(number, number + 1) for number in range(count)]
        own_sizes = [[sizes[number] for number in group] for group in groups]
        parts = torch.split(inputs, [sum(own) for own in own_sizes], dim=1)
        joined = [Joined(seen, own, self._net) for seen, own in zip(parts, own_sizes, strict=True)]
        return [
            Batch(None, labels[number], recorded=recorded[number], place=(together, place))
            for together, group in zip(joined, groups, strict=True)
            for place, number in enumerate(group)
        ]

    def remember(self, plan: EpochPlan, number: int, step: Step) -> None:
        """Offer the step's stream to the reservoir, with the logits before the update."""
        memory = self.reservoir
        if memory is None or plan.reservoir is None:
            return
        memory.filled = plan.reservoir.filled[number + 1]
        labels, kept = step.stream.labels, plan.reservoir.kept(number)
        places = plan.places[:, plan.columns(number)].flatten()
        if plan.reservoir.offers:
            memory.offer(labels)
        if kept is None and not plan.merges[number]:
            return
        logits = step.stream.logits.detach()
        if self.config.mask_stored and step.active is not None and step.mask_value is not None:
            logits = torch.where(step.active, logits, step.mask_value)
        if plan.merges[number]:
            inputs = self.samples.take(places)
            memory.merge(kept, inputs, labels, logits, number=number)
        if kept is not None:
            samples = self.samples
            memory.insert(kept, places, samples.inputs, samples.labels, logits)

    def absent_logits(self) -> Tensor:
        """The stored logits of classes that did not exist yet: 0, or the stored mask: [S * M]."""
        stored = [(own.mask or 0.0) if own.mask_stored else 0.0 for own in self._configs]
        return torch.tensor(stored).repeat_interleave(self.config.buffer)


class Descent:
    """Minimises the loss of a method, with one learning rate per trial."""

    def __init__(
        self,
        net: StackedNet,
        method: Method,
        configs: Sequence[TrialConfig],
        device: torch.device,
        optimizer: Optimizer = "sgd",
    ) -> None:
        self.adamw = AdamW(net.parameters) if optimizer == "adamw" else None
        self._net, self._method = net, method
        self._lr = torch.tensor([config.lr for config in configs], device=device)
        self._drops = configs[0].lr_drops
        kind = type(method)
        self._has_terms = kind.loss is Method.loss  # not if a subclass overrides it
        self._linear = net if isinstance(net, LinearStack) and self._has_terms else None
        adjusts = kind.adjust_gradients is not Method.adjust_gradients
        self._needs_gradients = adjusts or self.adamw is not None

    def rates(self, epoch: int) -> Tensor:
        """The learning rates [S] in an epoch, counted from 0, of any task."""
        drops = sum(epoch >= drop for drop in self._drops)
        return self._lr * _LR_DROP**drops if drops else self._lr

    def step(self, step: Step, lr: Tensor) -> Tensor:
        """Update the networks; returns the losses, [S]."""
        linear, place = self._linear, step.stream.place
        if linear is None or place is None:
            loss = self._loss(step)
            self._move(step, self._net.gradients(loss), lr)
            return loss.detach()
        with torch.no_grad():
            trace = linear.trace(place[0].inputs)
            place[0].set_logits(trace.logits)
            terms = self._method.terms(step)
            losses, slope = losses_and_slope(terms, place[0])
            loss = self._sum(step, terms, losses)
        if self._needs_gradients:
            self._move(step, linear.trace_gradients(trace, slope), lr)
        else:
            linear.follow(trace, slope, lr)
        return loss

    def _move(self, step: Step, gradients: LossGradients, lr: Tensor) -> None:
        adjusted = self._method.adjust_gradients(step, gradients)
        self._net.move(adjusted if self.adamw is None else self.adamw.directions(adjusted), lr)

    def _loss(self, step: Step) -> Tensor:
        """The loss for autograd, [S]."""
        if self._has_terms:
            terms = self._method.terms(step)
            loss = self._sum(step, terms, [term.loss() for term in terms])
        else:
            loss = self._method.loss(step)
        if loss.shape != self._lr.shape:
            raise MethodError(
                f"the loss of {self._method.title} must have one entry per trial, shape "
                f"{list(self._lr.shape)}, got {list(loss.shape)}"
            )
        if not loss.requires_grad:
            raise MethodError(
                f"the loss of {self._method.title} does not depend on the network, so nothing "
                f"would be learnt"
            )
        return loss

    def _sum(self, step: Step, terms: Sequence[Term], losses: Sequence[Tensor]) -> Tensor:
        """The sum of the terms' losses, [S]; logs each kind of term."""
        context = self._method.context
        if context.noted is not None:
            kinds: dict[str, list[Tensor]] = {}
            for term, loss in zip(terms, losses, strict=True):
                kinds.setdefault(term.kind(step), []).append(loss)
            for name, of_kind in kinds.items():
                context.note(name, added(of_kind))
        return added(losses)


def losses_and_slope(terms: Sequence[Term], joined: Joined) -> tuple[list[Tensor], Tensor]:
    """Each term's loss [S], and the gradient of their sum in all samples' logits, [S, N, K]."""
    losses: list[Tensor] = []
    slopes: list[Tensor | None] = [None] * len(joined.sizes)
    for term in terms:
        if term.batch.place is None or term.batch.place[0] is not joined:
            raise MethodError(
                "terms must use the batches of the step; write any other loss as `loss`"
            )
        loss, slope = term.loss_and_slope()
        losses.append(loss)
        number = term.batch.place[1]
        earlier = slopes[number]
        slopes[number] = slope if earlier is None else earlier + slope
    if not losses:
        raise MethodError("a loss needs at least one term")
    parts = [
        slope.new_zeros(1, 1, 1).expand(len(slope), size, slope.shape[2]) if own is None else own
        for own, size in zip(slopes, joined.sizes, strict=True)
    ]
    return losses, parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class AdamW:
    """AdamW (Loshchilov and Hutter 2019) for all trials of a stack at once."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._parameters = {n: p for n, p in parameters.items() if p.requires_grad}
        self._means = {name: torch.zeros_like(p) for name, p in self._parameters.items()}
        self._squares = {name: torch.zeros_like(p) for name, p in self._parameters.items()}
        some = next(iter(self._parameters.values()))
        self._steps = torch.zeros(len(some), dtype=torch.float32, device=some.device)

    @torch.no_grad()
    def directions(self, gradients: Gradients) -> Gradients:
        """The directions of a step for gradients by name."""
        self._steps += 1
        found = {}
        for name, gradient in gradients.items():
            parameter = self._parameters[name]
            mean, square = self._means[name], self._squares[name]
            mean.mul_(_FIRST).add_(gradient, alpha=1 - _FIRST)
            square.mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
            steps = per_trial(self._steps, parameter)
            step = mean / (1 - _FIRST**steps)
            step /= (square / (1 - _SECOND**steps)).sqrt_().add_(_EPSILON)
            found[name] = step.add_(parameter, alpha=_DECAY)
        return found

    def state(self) -> dict[str, Tensor]:
        """The tensors to save and restore; the live ones, not copies."""
        return {
            "steps": self._steps,
            **{f"mean/{name}": tensor for name, tensor in self._means.items()},
            **{f"square/{name}": tensor for name, tensor in self._squares.items()},
        }
