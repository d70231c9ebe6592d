"""The feed: turns a planned epoch into the batches of each step, and fills the memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.data.samples import DataDescription, Samples, batch_sizes, epoch_batches
from remask.data.tasks import Task
from remask.memory import (
    SPARSE,
    Reservoir,
    ReservoirPlan,
    StoredRows,
)
from remask.methods.base import Method
from remask.methods.step import Batch, Joined, Step
from remask.nets.stacked import StackedNet


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The samples of every step of an epoch, for all trials; depends on seeds and position only."""

    rows: list[Tensor]
    """Per step, the rows of the stream, as methods count them: int64 [S * B]."""
    places: list[Tensor]
    """Per step, their places among the samples: int64 [S * B]."""
    labels: list[Tensor]
    """Per step, their labels: int64 [S, B]."""
    views: list[Tensor] | None
    """Per step, the augmentation of the stream and of the draws: int64 [S, B + D * R], or None."""
    reservoir: ReservoirPlan | None
    """The samples that are replayed and stored in each step; None without a reservoir."""
    faded: Tensor | None
    """Per step, how far the masks have faded: [steps, S]; None if no mask fades."""
    merges: list[bool]
    """Per step, whether samples that are not stored are merged into the memory."""


@dataclass(frozen=True, eq=False)
class Masking:
    """The masks of a task, for all trials."""

    active: Tensor
    """bool [S, 1, K]; all true for a trial without a mask."""
    value: Tensor
    """[S, 1, 1]."""
    unmasked: Tensor
    """bool [S, 1]: the trials without a mask."""


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
        self._config = configs[0]
        self._samples = samples
        self.reservoir = (
            Reservoir(
                trials=len(configs),
                capacity=self._config.buffer,
                input_shape=data.input_shape,
                input_type=data.input_type,
                num_classes=data.num_classes,
                stores_logits=method.stores_logits,
                balanced=self._config.memory == "balanced",
                merging=self._config.memory == "merging",
                earlier_samples=earlier_samples,
                device=device,
            )
            if method.draws
            else None
        )
        self._seeds = [config.seed for config in configs]
        self._masks = [config.mask for config in configs]
        self._fades = [config.fade for config in configs]
        self._fade_powers = [config.fade_power for config in configs]
        self._draws = method.draws
        self._net = net
        # Without batch statistics one forward gives the same as several, and is faster.
        self._one_forward = method.one_forward or not net.couples_samples
        self._device = device

    def begin_task(self, number: int) -> None:
        """Prepare the reservoir for the samples of a task, which are loaded."""
        if self.reservoir is not None:
            self.reservoir.begin_task(number, self._samples.inputs)

    def plan(
        self,
        rows: Tensor,
        key: tuple[int, int],
        earlier: int,
        extra: Tensor | None = None,
        *,
        begin: int = 0,
    ) -> EpochPlan:
        """Draw the plan of one epoch over rows [N], and over `extra` rows [S, n] if given.

        `key` is (task, epoch), `earlier` the number of samples of the tasks before. Steps before
        `begin` have been taken already.
        """
        config, own, epoch = self._config, len(rows), key[1]
        if extra is not None:
            rows = torch.cat([rows.expand(len(extra), -1), extra], dim=1)
        sizes = batch_sizes(rows.shape[-1], config.batch)
        batches = epoch_batches(rows, config.batch, self._seeds, key)
        places = [self._samples.places(batch).to(self._samples.planned_on) for batch in batches]
        labels = self._labels(places)
        seen_at_once = config.batch + self._draws * config.replay_batch
        views = self._samples.plan_views(len(batches), seen_at_once, key)
        arrived = torch.tensor(sizes).cumsum(0).clamp(max=own)
        so_far = earlier + (torch.full_like(arrived, own) if epoch else arrived)
        faded = self._faded(so_far)
        memory = self.reservoir
        if memory is None:
            return EpochPlan(batches, places, labels, views, None, faded, [])
        reservoir = memory.plan(
            labels,
            seen=config.epochs * earlier + epoch * own,
            begin=begin,
            draws=self._draws,
            draw_size=config.replay_batch,
            seeds=self._seeds,
            key=key,
        )
        merges = (so_far > SPARSE * config.buffer) & (memory.counts is not None)
        return EpochPlan(batches, places, labels, views, reservoir, faded, merges.tolist())

    def _labels(self, places: Sequence[Tensor]) -> list[Tensor]:
        """The labels in places of each step, [S * B] -> [S, B], gathered for all steps at once."""
        found = self._samples.labels.index_select(0, torch.cat(list(places)).to(self._device))
        by_step = torch.split(found, [len(step) for step in places])
        return [labels.view(len(self._seeds), -1) for labels in by_step]

    def _faded(self, arrived: Tensor) -> Tensor | None:
        """min(1, fade * M / n)^power for every step; `arrived` is n, the samples so far."""
        if not any(self._fades):
            return None
        covered = self._config.buffer / arrived
        shares = (covered.unsqueeze(1) * torch.tensor(self._fades)).clamp(max=1)
        for trial, power in enumerate(self._fade_powers):
            if power != 1:
                # The rounding of shares.pow() depends on the neighbours of a number.
                own = [share**power for share in shares[:, trial].tolist()]
                shares[:, trial] = torch.tensor(own)
        return shares.to(self._device)

    def masking(self, task: Task) -> Masking | None:
        """The masks of a task; None if no trial has one."""
        if all(mask is None for mask in self._masks):
            return None
        unmasked = torch.tensor([mask is None for mask in self._masks], device=self._device)
        values = [0.0 if mask is None else mask for mask in self._masks]
        return Masking(
            (task.classes | unmasked[:, None]).unsqueeze(1),
            torch.tensor(values, device=self._device).view(-1, 1, 1),
            unmasked.unsqueeze(1),
        )

    def _active(self, masking: Masking | None, labels: Tensor) -> Tensor | None:
        """The active classes of a step, [S, 1, K]: the task's, or if task-free the batch's."""
        if masking is None:
            return None
        if not self._config.task_free:
            return masking.active
        present = torch.zeros_like(masking.active.squeeze(1)).scatter_(1, labels, True)
        return (present | masking.unmasked).unsqueeze(1)

    def step(self, plan: EpochPlan, number: int, masking: Masking | None, task: Task) -> Step:
        """Gather the samples of one step."""
        trials, labels = len(self._seeds), plan.labels[number]
        arrived = self._samples.take(plan.places[number])
        views = None if plan.views is None else plan.views[number]
        memory, drawn = self.reservoir, None
        if memory is not None and plan.reservoir is not None:
            memory.filled = plan.reservoir.filled[number]
            drawn = plan.reservoir.draws[number]
        if memory is None or drawn is None:
            joined = Joined(self._samples.decode(views, arrived), [labels.shape[1]], self._net)
            batches = [Batch(None, labels, place=(joined, 0))]
        else:
            slots = drawn.flatten()
            recalled = memory.take(slots)
            slots = slots.to(self._device)
            draw = recalled.shape[1] // self._draws
            past = memory.labels.index_select(0, slots).view(trials, -1)
            recorded: list[Tensor | None] = [None] * self._draws
            if memory.logits is not None:
                logits = memory.logits.index_select(0, slots).view(trials, recalled.shape[1], -1)
                recorded = [*torch.split(logits, draw, dim=1)]
            inputs = self._samples.decode(views, arrived, recalled)
            every_label = [labels, *torch.split(past, draw, dim=1)]
            batches = self._batches(inputs, every_label, [None, *recorded])
        stream, *replays = batches
        active, value = self._active(masking, labels), None if masking is None else masking.value
        faded = None if plan.faded is None else plan.faded[number]
        rows = plan.rows[number].view(trials, -1)
        return Step(stream, tuple(replays), active, value, rows, task, faded)

    def _batches(
        self, inputs: Tensor, labels: Sequence[Tensor], recorded: Sequence[Tensor | None]
    ) -> list[Batch]:
        """The stream and the draws, which go through the net together or one by one."""
        sizes = [own.shape[1] for own in labels]
        if self._one_forward:
            joined = Joined(inputs, sizes, self._net)
            return [
                Batch(None, own, recorded=logits, place=(joined, place))
                for place, (own, logits) in enumerate(zip(labels, recorded, strict=True))
            ]
        parts = torch.split(inputs, sizes, dim=1)
        return [
            Batch(seen, own, self._net, logits)
            for seen, own, logits in zip(parts, labels, recorded, strict=True)
        ]

    def absent_logits(self) -> Tensor:
        """The stored logits of classes that did not exist yet: 0, or the stored mask: [S * M]."""
        stored = [(mask or 0.0) if self._config.mask_stored else 0.0 for mask in self._masks]
        return torch.tensor(stored).repeat_interleave(self._config.buffer)

    def count_memory(self, arrived: int) -> None:
        """Set the number of samples in the memory after `arrived` samples of the stream."""
        if self.reservoir is not None:
            self.reservoir.count_filled(self._config.epochs * arrived)

    def remember(self, plan: EpochPlan, number: int, step: Step) -> None:
        """Offer the step's stream to the reservoir, with the logits before the update."""
        if self.reservoir is None or plan.reservoir is None:
            return
        self.reservoir.filled = plan.reservoir.filled[number + 1]
        if plan.reservoir.offers:
            self.reservoir.offer(step.stream.labels)
        kept = plan.reservoir.kept[number]
        if kept is None and not plan.merges[number]:
            return
        logits = step.stream.logits.detach()
        if self._config.mask_stored and step.active is not None and step.mask_value is not None:
            logits = torch.where(step.active, logits, step.mask_value)
        if plan.merges[number]:
            self.reservoir.merge(
                kept,
                self._samples.take(plan.places[number]),
                step.stream.labels,
                logits,
                number=number,
            )
        if kept is not None:
            self.reservoir.insert(
                kept, plan.places[number], self._samples.inputs, self._samples.labels, logits
            )
