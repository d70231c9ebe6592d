"""The feed: turns a planned epoch into the batches of each step, and fills the memory behind it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.memory import (
    EMPTY,
    SPARSE,
    Reservoir,
    ReservoirPlan,
    StoredRows,
    plan_balanced,
    plan_reservoir,
)
from remask.methods import Batch, Joined, Method, Step
from remask.nets import StackedNet
from remask.streams import DataDescription, Samples, Task, batch_sizes, epoch_batches


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """What every step of an epoch takes, for all trials; a pure function of seeds and place."""

    rows: list[Tensor]
    """Per step, rows of what is learnt from, as the method counts them: int64 [S * B]."""
    places: list[Tensor]
    """Per step, where they stand among the samples: int64 [S * B]."""
    labels: list[Tensor]
    """Per step, their labels: int64 [S, B]."""
    views: list[Tensor] | None
    """Per step, how its samples are seen, the stream's, then the draws': int64 [S, B + D * R];
    None: as they are."""
    reservoir: ReservoirPlan | None
    """What is replayed and kept in each step; None without a reservoir."""
    faded: Tensor | None
    """Per step, how far the masks have faded: [steps, S]; None where none does."""
    merges: list[bool]
    """Per step, whether samples that are not kept are merged into the memory."""


@dataclass(frozen=True, eq=False)
class Masking:
    """The masks of a task, for all trials; None where no trial of the stack has one."""

    active: Tensor | None
    """bool [S, 1, K]; all true for a trial without a mask."""
    value: Tensor | None
    """[S, 1, 1]."""
    unmasked: Tensor | None
    """bool [S, 1]: the trials that have no mask."""


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
        shape = configs[0]
        self._samples = samples
        self.reservoir = (
            Reservoir(
                trials=len(configs),
                capacity=shape.buffer,
                input_shape=data.input_shape,
                input_type=data.input_type,
                num_classes=data.num_classes,
                stores_logits=method.stores_logits,
                balanced=shape.memory == "balanced",
                merging=shape.memory == "merging",
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
        self._mask_stored = shape.mask_stored
        self._batch, self._epochs, self._task_free = shape.batch, shape.epochs, shape.task_free
        self._draws, self._draw_size = method.draws, shape.replay_batch
        self._capacity = shape.buffer
        self._net = net
        # Without batch statistics one forward gives what several would, and is faster.
        self._one_forward = method.one_forward or not net.couples_samples
        self._device = device

    def begin_task(self, number: int) -> None:
        """Be ready to keep some of the samples of a task that are loaded."""
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

        It is named by its `key`, (task, epoch). The tasks before it had `earlier` samples. The
        stack stands before step `begin` of the epoch, and the plan is for that one and all later.
        """
        own, epoch = len(rows), key[1]
        if extra is not None:
            rows = torch.cat([rows.expand(len(extra), -1), extra], dim=1)
        sizes = batch_sizes(rows.shape[-1], self._batch)
        batches = epoch_batches(rows, self._batch, self._seeds, key)
        places = [self._samples.places(batch).to(self._samples.planned_on) for batch in batches]
        labels = self._labels(places)
        seen_at_once = self._batch + self._draws * self._draw_size
        views = self._samples.plan_views(len(batches), seen_at_once, key)
        arrived = torch.tensor(sizes).cumsum(0).clamp(max=own)
        so_far = earlier + (torch.full_like(arrived, own) if epoch else arrived)
        faded = self._faded(so_far)
        memory = self.reservoir
        if memory is None:
            return EpochPlan(batches, places, labels, views, None, faded, [])
        if memory.offered is None:
            reservoir = plan_reservoir(
                capacity=self._capacity,
                seen=self._epochs * earlier + epoch * own,
                sizes=sizes,
                draws=self._draws,
                draw_size=self._draw_size,
                seeds=self._seeds,
                key=key,
                device=memory.planned_on,
            )
        else:
            reservoir = plan_balanced(
                classes=memory.classes.cpu().numpy(),
                offered=memory.offered.cpu().numpy(),
                labels=torch.cat(labels, dim=1).cpu().numpy(),
                sizes=sizes,
                begin=begin,
                draws=self._draws,
                draw_size=self._draw_size,
                seeds=self._seeds,
                key=key,
                device=memory.planned_on,
            )
        merges = (so_far > SPARSE * self._capacity) & (memory.counts is not None)
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
        covered = self._capacity / arrived
        shares = (covered.unsqueeze(1) * torch.tensor(self._fades)).clamp(max=1)
        for trial, power in enumerate(self._fade_powers):
            if power != 1:
                # Not shares.pow(): how it rounds depends on what lies beside a number.
                own = [share**power for share in shares[:, trial].tolist()]
                shares[:, trial] = torch.tensor(own)
        return shares.to(self._device)

    def masking(self, task: Task) -> Masking:
        """Which classes each trial's loss on the stream lets compete in a task."""
        if all(mask is None for mask in self._masks):
            return Masking(None, None, None)
        unmasked = torch.tensor([mask is None for mask in self._masks], device=self._device)
        values = [0.0 if mask is None else mask for mask in self._masks]
        return Masking(
            (task.classes | unmasked[:, None]).unsqueeze(1),
            torch.tensor(values, device=self._device).view(-1, 1, 1),
            unmasked.unsqueeze(1),
        )

    def _active(self, masking: Masking, labels: Tensor) -> Tensor | None:
        """The active classes of a step, [S, 1, K]: the task's, or if task-free the batch's."""
        if not self._task_free or masking.active is None or masking.unmasked is None:
            return masking.active
        present = torch.zeros_like(masking.active.squeeze(1)).scatter_(1, labels, True)
        return (present | masking.unmasked).unsqueeze(1)

    def step(self, plan: EpochPlan, number: int, masking: Masking, task: Task) -> Step:
        """Gather what one step learns from."""
        trials = len(self._seeds)
        drawn = None if plan.reservoir is None else plan.reservoir.draws[number]
        rows = plan.rows[number].view(trials, -1)
        arrived = self._samples.take(plan.places[number])
        labels = plan.labels[number]
        views = None if plan.views is None else plan.views[number]
        faded = None if plan.faded is None else plan.faded[number]
        memory = self.reservoir
        if memory is not None and plan.reservoir is not None:
            memory.filled = plan.reservoir.filled[number]
        if drawn is None or memory is None:
            joined = Joined(self._samples.decode(views, arrived), [labels.shape[1]], self._net)
            stream = Batch(None, labels, place=(joined, 0))
            active = self._active(masking, labels)
            return Step(stream, (), active, masking.value, rows, task, faded)

        slots = drawn.flatten()
        recalled = memory.take(slots)
        slots = slots.to(self._device)
        past_labels = memory.labels.index_select(0, slots).view(trials, -1)
        past_logits = (
            None
            if memory.logits is None
            else memory.logits.index_select(0, slots).view(trials, recalled.shape[1], -1)
        )
        inputs = self._samples.decode(views, arrived, recalled)
        draw = recalled.shape[1] // self._draws
        sizes = [labels.shape[1], *[draw] * self._draws]
        past = torch.split(past_labels, draw, dim=1)
        said = (
            [None] * self._draws if past_logits is None else torch.split(past_logits, draw, dim=1)
        )
        if self._one_forward:
            joined = Joined(inputs, sizes, self._net)
            stream = Batch(None, labels, place=(joined, 0))
            replays = [
                Batch(None, own, recorded=recorded, place=(joined, number))
                for number, (own, recorded) in enumerate(zip(past, said, strict=True), start=1)
            ]
        else:
            first, *others = torch.split(inputs, sizes, dim=1)
            stream = Batch(first, labels, self._net)
            replays = [
                Batch(seen, own, self._net, recorded)
                for seen, own, recorded in zip(others, past, said, strict=True)
            ]
        active = self._active(masking, labels)
        return Step(stream, tuple(replays), active, masking.value, rows, task, faded)

    def absent_logits(self) -> Tensor:
        """What stored logits are for a class that was not there: 0, or the stored mask: [S * M]."""
        stored = [(mask or 0.0) if self._mask_stored else 0.0 for mask in self._masks]
        return torch.tensor(stored).repeat_interleave(self._capacity)

    def count_memory(self, arrived: int) -> None:
        """Know how much the memory holds after so many samples, where no step has told it."""
        memory = self.reservoir
        if memory is not None and memory.offered is None:
            memory.filled = min(self._capacity, self._epochs * arrived)
        elif memory is not None:
            memory.filled = int((memory.classes[0] != EMPTY).sum())

    def remember(self, plan: EpochPlan, number: int, step: Step) -> None:
        """Offer the step's stream to the reservoir, with the logits of before the update."""
        if self.reservoir is None or plan.reservoir is None:
            return
        self.reservoir.filled = plan.reservoir.filled[number + 1]
        if plan.reservoir.offers:
            self.reservoir.count(step.stream.labels)
        kept = plan.reservoir.kept[number]
        if kept is None and not plan.merges[number]:
            return
        logits = step.stream.logits.detach()
        if self._mask_stored and step.active is not None and step.mask_value is not None:
            logits = torch.where(step.active, logits, step.mask_value)
        if plan.merges[number]:
            self.reservoir.merge(
                kept,
                inputs=self._samples.take(plan.places[number]),
                labels=step.stream.labels,
                logits=logits,
                number=number,
            )
        if kept is not None:
            self.reservoir.insert(
                kept,
                rows=plan.places[number],
                inputs=self._samples.inputs,
                labels=self._samples.labels,
                logits=logits,
            )
