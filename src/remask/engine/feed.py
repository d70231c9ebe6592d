"""The feed: turns a planned epoch into the batches of each step, and fills the memory behind it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.benchmarks import Benchmark
from remask.config import TrialConfig
from remask.engine.stacked_net import StackedNet
from remask.memory import Reservoir, plan_reservoir
from remask.methods import Batch, Method, Step, Task
from remask.streams import Part, Phase, batch_sizes, epoch_batches
from remask.streams.augmentation import Cropper, Standardise, plan_views


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """Which rows every step of an epoch takes, for all trials. Pure function of seeds and place."""

    rows: list[Tensor]
    """Per step, rows of what is learnt from, as the method counts them: int64 [S * B]."""
    arriving: list[Tensor]
    """Per step, where they stand in the benchmark's train set: int64 [S * B]."""
    replayed: list[Tensor | None]
    """Per step, rows of the memory: int64 [S, D * R]; None while it is empty."""
    kept: list[tuple[Tensor, Tensor] | None]
    """Per step, (rows of the batch, rows of the memory they go to)."""
    views: list[Tensor] | None
    """Per step, how its samples are seen, the stream's, then the draws': what the cropper takes,
    int64 [S, B + D * R]; None: as they are."""
    faded: Tensor | None
    """Per step, how far the masks have faded: [steps, S]; None where none does."""


@dataclass(frozen=True, eq=False)
class Masking:
    """The masks of a phase, for all trials; None where no trial of the stack wears one."""

    active: Tensor | None
    """bool [S, 1, K]; all true for a trial without a mask."""
    value: Tensor | None
    """[S, 1, 1]."""
    unmasked: Tensor | None
    """bool [S, 1]: the trials that wear no mask."""


class Feed:
    """The data side of a stack: train set, memory, and what is drawn from them."""

    def __init__(
        self,
        benchmark: Benchmark,
        learnt: Part,
        configs: Sequence[TrialConfig],
        method: type[Method],
        phases: Sequence[Phase],
        net: StackedNet,
        device: torch.device,
    ) -> None:
        shape = configs[0]
        self._phases = phases
        self.inputs = benchmark.train_inputs.to(device)
        """All of the benchmark's train set, also what is not learnt from."""
        self._labels = benchmark.train_labels.to(device)
        self._learnt_labels = learnt.labels.to(device)
        self._learnt_places = None if learnt.places is None else learnt.places.to(device)
        self._scale = benchmark.scale
        self._standardise = Standardise.of(benchmark, device)
        self._padding, self._flip = benchmark.crop_padding, benchmark.flip
        self._crop = Cropper(benchmark.input_shape, self._padding) if benchmark.augment else None
        self._seeds = [config.seed for config in configs]
        self._masks = [config.mask for config in configs]
        self._fades = [config.fade for config in configs]
        self._mask_stored = shape.mask_stored
        self._batch, self._epochs = shape.batch, shape.epochs
        self._task_free = shape.task_free
        self._draws, self._draw_size = method.draws, shape.replay_batch
        self._capacity = shape.buffer
        self._net = net
        # Without batch statistics one forward gives what several would, and is faster.
        self._one_forward = method.one_forward or not net.couples_samples
        self._device = device
        self.memory = (
            Reservoir(
                trials=len(configs),
                capacity=shape.buffer,
                input_shape=benchmark.input_shape,
                input_type=benchmark.train_inputs.dtype,
                num_classes=benchmark.num_classes,
                stores_logits=method.stores_logits,
                device=device,
            )
            if method.draws
            else None
        )

    def plan(self, phase: int, epoch: int, more: Tensor | None = None) -> EpochPlan:
        """Draw the plan of one epoch of a phase, with `more` rows [S, n] than the phase has."""
        rows = self._phases[phase].rows
        if more is not None:
            rows = torch.cat([rows.expand(len(more), -1), more.cpu()], dim=1)
        batches = epoch_batches(rows, self._batch, self._seeds, (phase, epoch))
        batches = [batch.to(self._device) for batch in batches]
        arriving = [self._places(batch) for batch in batches]
        samples = self._batch + self._draws * self._draw_size
        views = self._views(len(arriving), samples, (phase, epoch)) if self._crop else None
        faded = self._faded(phase, epoch, batches)
        if self.memory is None:
            nothing: list[None] = [None] * len(arriving)
            return EpochPlan(batches, arriving, [*nothing], [*nothing], views, faded)
        presented = self._epochs * sum(len(earlier.rows) for earlier in self._phases[:phase])
        reservoir = plan_reservoir(
            capacity=self._capacity,
            seen=presented + epoch * len(rows),
            sizes=batch_sizes(len(rows), self._batch),
            draws=self._draws,
            draw_size=self._draw_size,
            seeds=self._seeds,
            key=(phase, epoch),
            device=self._device,
        )
        return EpochPlan(batches, arriving, reservoir.draws, reservoir.kept, views, faded)

    def masking(self, phase: Phase) -> Masking:
        """Which classes each trial's loss on the stream lets compete in a phase."""
        if all(mask is None for mask in self._masks):
            return Masking(None, None, None)
        unmasked = torch.tensor([mask is None for mask in self._masks])
        values = torch.tensor([0.0 if mask is None else mask for mask in self._masks])
        active = phase.active | unmasked[:, None]
        return Masking(
            active.unsqueeze(1).to(self._device),
            values.view(-1, 1, 1).to(self._device),
            unmasked.unsqueeze(1).to(self._device),
        )

    def _faded(self, phase: int, epoch: int, batches: Sequence[Tensor]) -> Tensor | None:
        """min(1, fade * M / n) for every step of an epoch, n the different samples so far."""
        if not any(self._fades):
            return None
        sizes = [len(other.rows) for other in self._phases]
        arrived = torch.tensor([len(batch) // len(self._seeds) for batch in batches]).cumsum(0)
        if epoch:
            arrived = torch.full_like(arrived, sizes[phase])
        covered = self._capacity / (sum(sizes[:phase]) + arrived)
        return (covered.unsqueeze(1) * torch.tensor(self._fades)).clamp(max=1).to(self._device)

    def _active(self, masking: Masking, labels: Tensor) -> Tensor | None:
        """The active classes of a step, [S, 1, K]: the phase's, or if task-free the batch's."""
        if not self._task_free or masking.active is None or masking.unmasked is None:
            return masking.active
        present = torch.zeros_like(masking.active.squeeze(1)).scatter_(1, labels, True)
        return (present | masking.unmasked).unsqueeze(1)

    def batch(self, rows: Tensor, *, views_key: tuple[int, ...] | None) -> Batch:
        """Samples to learn from, int64 [S, n], augmented by the random numbers of that name."""
        places = self._places(rows)
        inputs = self.inputs[places]
        views = None
        if self._crop is not None and views_key is not None:
            (views,) = self._views(1, rows.shape[1], views_key)
        return Batch(self._decode(views, inputs), self._labels[places], self._net)

    def filled(self, phase: int) -> int:
        """How many samples the memory holds after a phase."""
        presented = self._epochs * sum(len(earlier.rows) for earlier in self._phases[: phase + 1])
        return min(self._capacity, presented)

    def recall(self, slots: Tensor, *, views_key: tuple[int, ...]) -> Batch:
        """Samples of the memory, by slots int64 [S, n] of each trial's own."""
        if self.memory is None:
            raise ValueError("there is no reservoir: the method must set draws")
        first = torch.arange(len(slots), device=self._device).unsqueeze(1) * self._capacity
        inputs, labels = self.memory.inputs[slots + first], self.memory.labels[slots + first]
        views = self._views(1, slots.shape[1], views_key)[0] if self._crop else None
        return Batch(self._decode(views, inputs), labels, self._net)

    def labels(self, rows: Tensor) -> Tensor:
        """The labels of rows of what is learnt from."""
        return self._learnt_labels[rows]

    def _places(self, rows: Tensor) -> Tensor:
        """Where in the benchmark's train set rows stand, trial by trial: [S * n] or [S, n]."""
        if self._learnt_places is None:
            return rows
        return self._learnt_places.gather(1, rows.reshape(len(self._seeds), -1)).view(rows.shape)

    def step(self, plan: EpochPlan, number: int, masking: Masking, task: Task) -> Step:
        """Gather what one step learns from."""
        trials = len(self._seeds)
        places, drawn = plan.arriving[number], plan.replayed[number]
        rows = plan.rows[number].view(trials, -1)
        arrived = self.inputs.index_select(0, places)
        arrived = arrived.view(trials, -1, *arrived.shape[1:])
        labels = self._labels.index_select(0, places).view(trials, -1)
        views = None if plan.views is None else plan.views[number]
        faded = None if plan.faded is None else plan.faded[number]
        if drawn is None or self.memory is None:
            stream = Batch(self._decode(views, arrived), labels, self._net)
            active = self._active(masking, labels)
            return Step(stream, (), active, masking.value, rows, task, faded)

        slots = drawn.flatten()
        recalled = self.memory.inputs.index_select(0, slots).view(trials, -1, *arrived.shape[2:])
        past_labels = self.memory.labels.index_select(0, slots).view(trials, -1)
        past_logits = (
            None
            if self.memory.logits is None
            else self.memory.logits.index_select(0, slots).view(trials, recalled.shape[1], -1)
        )
        inputs = self._decode(views, arrived, recalled)
        logits = self._net(inputs) if self._one_forward else None

        arrivals, draw = labels.shape[1], recalled.shape[1] // self._draws
        batches = [Batch(inputs[:, :arrivals], labels, self._net)]
        for start in range(0, recalled.shape[1], draw):
            part = slice(start, start + draw)
            recorded = None if past_logits is None else past_logits[:, part]
            begin = arrivals + start
            batches.append(
                Batch(inputs[:, begin : begin + draw], past_labels[:, part], self._net, recorded)
            )
        if logits is not None:
            sizes = [batch.labels.shape[1] for batch in batches]
            for batch, part_logits in zip(batches, torch.split(logits, sizes, dim=1), strict=True):
                batch.logits = part_logits
        active = self._active(masking, labels)
        return Step(batches[0], tuple(batches[1:]), active, masking.value, rows, task, faded)

    def remember(self, plan: EpochPlan, number: int, step: Step) -> None:
        """Offer the step's stream to the memory, with the logits of before the update."""
        kept = plan.kept[number]
        if self.memory is None or kept is None:
            return
        logits = step.stream.logits.detach()
        if self._mask_stored and step.active is not None and step.mask_value is not None:
            logits = torch.where(step.active, logits, step.mask_value)
        self.memory.insert(
            kept,
            rows=plan.arriving[number],
            inputs=self.inputs,
            labels=self._labels,
            logits=logits,
        )

    def _views(self, steps: int, samples: int, key: tuple[int, ...]) -> list[Tensor]:
        assert self._crop is not None
        views = plan_views(
            steps=steps,
            samples=samples,
            padding=self._padding,
            flip=self._flip,
            seeds=self._seeds,
            key=key,
            device=self._device,
        )
        return list(self._crop.starts(views))

    def _decode(self, views: Tensor | None, *parts: Tensor) -> Tensor:
        """Parts [S, b, *shape] as they are kept, side by side, to what the network sees."""
        if self._crop is not None and views is not None:
            parts = (self._crop(torch.cat(parts, dim=1), views),)
        first = parts[0]
        size = sum(part.shape[1] for part in parts)
        inputs = torch.empty((len(first), size, *first.shape[2:]), device=self._device)
        start = 0
        for part in parts:
            inputs[:, start : start + part.shape[1]] = part
            start += part.shape[1]
        inputs.mul_(self._scale)
        return inputs if self._standardise is None else self._standardise(inputs)
