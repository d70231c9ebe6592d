"""The samples of training steps: an epoch is planned as tensors, and steps are gathered from it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.data.samples import Samples, batch_sizes, epoch_order
from remask.data.tasks import DataDescription, Task
from remask.memory import SPARSE, Reservoir, ReservoirPlan, StoredRows
from remask.methods.base import Method
from remask.methods.step import Batch, Joined, Step
from remask.nets.stacked import StackedNet


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
            Batch(labels[number], together, place, recorded[number])
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
