"""Slow methods, written from their equations for one trial and plain torch.

What chance decides (orders, draws, first anchors) is noted while the engine runs and given to the
slow method; all else it computes itself, sample by sample, in float64.
"""

import copy
import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.data.samples import batch_sizes
from remask.engine import TrialStack
from remask.memory.reservoir import draw_distinct
from remask.methods import Batch, Method, Step, Task, find_method
from remask.randomness import generator, torch_seed
from tests.engine.stack_samples import finish, small_mlp

INF = float("inf")
Floats = np.ndarray[Any, np.dtype[np.float64]]
Weights = list[Tensor]
"""A number for every parameter of a net, in its order."""


# ---- What chance decided ------------------------------------------------------------------------


class Chance:
    """The random choices of a run by kind, in order; each [S, ...]."""

    def __init__(self) -> None:
        self.noted: defaultdict[str, list[Any]] = defaultdict(list)

    def of_trial(self, trial: int) -> dict[str, list[Any]]:
        return {kind: [every[trial] for every in noted] for kind, noted in self.noted.items()}


class NotingContext:
    """A context that records every draw."""

    def __init__(self, context: Any, chance: Chance) -> None:
        self._context, self._noted = context, chance.noted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def draw(self, filled: int, size: int) -> Tensor:
        drawn: Tensor = self._context.draw(filled, size)
        self._noted["draw"].append([(filled, own.tolist()) for own in drawn])
        return drawn

    def generators(self, purpose: str) -> list[np.random.Generator]:
        randoms: list[np.random.Generator] = self._context.generators(purpose)
        self._noted[f"random {purpose}"].append(copy.deepcopy(randoms))
        return randoms

    def shuffled(self, task: Task, purpose: str) -> Iterator[Tensor]:
        batches = list(self._context.shuffled(task, purpose))
        orders = [[rows[trial].tolist() for rows in batches] for trial in range(len(batches[0]))]
        self._noted[f"shuffled {purpose}"].append(orders)
        yield from batches

    def recall(self, size: int) -> Batch:
        batch: Batch = self._context.recall(size)
        self._noted["recall"].append(list(zip(batch.inputs, batch.labels, strict=True)))
        return batch


def noting(method: str, chance: Chance) -> type[Method]:
    """Return the method with its random choices recorded."""
    base = find_method(method)

    class Noting(base):  # type: ignore[misc, valid-type]
        context: Any

        def prepare(self) -> None:
            self.context = NotingContext(self.context, chance)
            super().prepare()

        def loss(self, step: Step) -> Tensor:
            chance.noted["rows"].append(step.rows.tolist())
            loss: Tensor = super().loss(step)
            return loss

    return Noting


# ---- Slow methods -------------------------------------------------------------------------------


def surprise(logits: Tensor, label: int, among: Sequence[int], others: float = -INF) -> Tensor:
    """-log of the probability of a label, among some classes and m for each of the others."""
    absent = torch.full((len(logits) - len(among),), others, dtype=logits.dtype)
    rivals = torch.cat([logits[list(among)], absent])
    return (rivals - logits[label]).exp().sum().log()


class Slow:
    """One trial of SGD; other methods override what differs."""

    def __init__(
        self, config: TrialConfig, benchmark: Benchmark, chance: dict[str, list[Any]]
    ) -> None:
        self.config, self.benchmark, self.chance = config, benchmark, chance
        self.weight = {**dict(config.weights), "alpha": config.alpha, "beta": config.beta}
        self.images = benchmark.train_inputs.double() / 255
        self.labels = benchmark.train_labels.tolist()
        self.every_class = range(benchmark.num_classes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(config.seed, "init"))
            net = small_mlp(benchmark.input_shape, benchmark.num_classes).double()
        assert isinstance(net, nn.Sequential)
        self.net = net
        self.lr = config.lr
        self.class_il = np.full((benchmark.num_tasks, benchmark.num_tasks), np.nan)
        self.task_il = np.full((benchmark.num_tasks, benchmark.num_tasks), np.nan)
        self.happened: Counter[str] = Counter()
        """How often each branch of the method was taken."""
        self.arrived: set[int] = set()
        """The rows so far, in a stream that repeats itself in every epoch."""
        self.prepare()

    def given(self, kind: str) -> Any:
        """The next random choice of a kind."""
        return self.chance[kind].pop(0)

    def run(self) -> None:
        for task in range(self.benchmark.num_tasks):
            self.lr = self.config.lr
            self.begin_task(task)
            for epoch in range(self.config.epochs):
                self.lr = self.config.lr * 0.1 ** sum(epoch >= d for d in self.config.lr_drops)
                expected = sorted(self.samples_of(task))
                came: list[int] = []
                sizes = batch_sizes(len(expected), self.config.batch)
                self.begin_epoch(task, epoch, sizes)
                for size in sizes:
                    rows = self.given("rows")
                    assert len(rows) == size
                    self.arrived.update(rows)
                    self.step(task, rows)
                    came += rows
                assert sorted(came) == expected
            self.end_task(task)
            self.evaluate(task)
        assert not any(self.chance.values())  # nothing was drawn that has no use here

    def drawn(self, kept: Sequence[Any], size: int | None = None) -> list[Any]:
        """The next draw from a memory, of `replay_batch` samples unless a size is given."""
        filled, slots = self.given("draw")
        want = self.config.replay_batch if size is None else size
        assert (filled, len(slots)) == (len(kept), min(len(kept), want))
        return [kept[slot] for slot in slots]

    def rows_of(self, task: int) -> list[int]:
        return [i for i, y in enumerate(self.labels) if y in self.benchmark.tasks[task]]

    def samples_of(self, task: int) -> list[int]:
        return self.rows_of(task)

    def seen(self, task: int) -> list[int]:
        """The classes of all tasks up to one."""
        return [k for earlier in self.benchmark.tasks[: task + 1] for k in earlier]

    def prepare(self) -> None: ...

    def begin_task(self, task: int) -> None: ...

    def begin_epoch(self, task: int, epoch: int, sizes: list[int]) -> None: ...

    def end_task(self, task: int) -> None: ...

    def step(self, task: int, rows: list[int]) -> None:
        self.move(self.gradient(self.loss(task, rows)))

    def loss(self, task: int, rows: list[int]) -> Tensor:
        return self.mean_of(self.stream_losses(task, rows))

    # -- What they are made of

    @property
    def parameters(self) -> Weights:
        return list(self.net.parameters())

    def copies(self) -> Weights:
        return [value.detach().clone() for value in self.net.parameters()]

    def zeros(self) -> Weights:
        return [torch.zeros_like(value) for value in self.net.parameters()]

    def put(self, values: Weights) -> None:
        with torch.no_grad():
            for own, value in zip(self.net.parameters(), values, strict=True):
                own.copy_(value)

    def gradient(self, loss: Tensor) -> Weights:
        return list(torch.autograd.grad(loss, self.parameters))

    def move(self, gradient: Weights) -> None:
        with torch.no_grad():
            for own, slope in zip(self.net.parameters(), gradient, strict=True):
                own.sub_(self.lr * slope)

    def logits(self, image: Tensor) -> Tensor:
        said: Tensor = self.net(image[None])[0]
        return said

    def features(self, image: Tensor) -> Tensor:
        hidden: Tensor = self.net[:-1](image[None])[0]
        return hidden

    @staticmethod
    def mean_of(values: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(values)).sum() / len(values)

    def stream_losses(
        self, task: int, rows: list[int], among: Sequence[int] | None = None
    ) -> list[Tensor]:
        """The cross-entropy of every sample of the stream; the mask acts here."""
        competing: Sequence[int] = self.every_class if among is None else among
        if self.config.mask is None:
            return [
                surprise(self.logits(self.images[row]), self.labels[row], competing) for row in rows
            ]
        own, others = self.benchmark.tasks[task], float(self.config.mask)
        covered = min(1.0, self.config.fade * self.config.buffer / len(self.arrived))
        faded = covered**self.config.fade_power
        self.happened[f"faded to {faded:.0f}" if faded in (0, 1) else "half faded"] += 1
        losses = []
        for row in rows:
            logits, label = self.logits(self.images[row]), self.labels[row]
            masked = surprise(logits, label, own, others)
            losses.append((1 - faded) * masked + faded * surprise(logits, label, competing))
        return losses

    def losses(self, samples: Sequence[tuple[Tensor, int]]) -> list[Tensor]:
        """Their cross-entropies, where all classes compete."""
        return [surprise(self.logits(image), y, self.every_class) for image, y in samples]

    def of_rows(self, rows: Sequence[int]) -> list[tuple[Tensor, int]]:
        return [(self.images[row], self.labels[row]) for row in rows]

    def squared_weights(self) -> Tensor:
        return torch.stack([value.square().sum() for value in self.net.parameters()]).sum()

    def scores(self, image: Tensor) -> list[float]:
        said: list[float] = self.logits(image).tolist()
        return said

    def evaluate(self, after: int) -> None:
        images = self.benchmark.test_inputs.double() / 255
        for task in range(after + 1):
            own = self.benchmark.tasks[task]
            of_all, of_task, count = 0, 0, 0
            for image, label in zip(images, self.benchmark.test_labels.tolist(), strict=True):
                if label in own:
                    scores = self.scores(image)
                    of_all += max(self.every_class, key=scores.__getitem__) == label
                    of_task += max(own, key=scores.__getitem__) == label
                    count += 1
            self.class_il[after, task] = 100 * of_all / count
            self.task_il[after, task] = 100 * of_task / count


def dot(one: Weights, other: Weights) -> float:
    return sum(float((a * b).sum()) for a, b in zip(one, other, strict=True))


class SlowOEWC(Slow):
    """Pulls the weights to their values after the last task, the more they mattered."""

    def prepare(self) -> None:
        self.importance, self.anchor = self.zeros(), self.copies()

    def pull(self) -> Tensor:
        parts = zip(self.importance, self.parameters, self.anchor, strict=True)
        return torch.stack([(w * (own - old).square()).sum() for w, own, old in parts]).sum()

    def loss(self, task: int, rows: list[int]) -> Tensor:
        return super().loss(task, rows) + self.weight["penalty"] * self.pull()

    def end_task(self, task: int) -> None:
        rows, fisher = self.rows_of(task), self.zeros()
        for sample in self.of_rows(rows):
            (loss,) = self.losses([sample])
            chance = math.exp(-loss.item())
            for total, slope in zip(fisher, self.gradient(loss), strict=True):
                total += chance * slope.square()
        presented = len(batch_sizes(len(rows), self.config.batch)) * self.config.batch
        self.importance = [
            self.weight["gamma"] * old + new / presented
            for old, new in zip(self.importance, fisher, strict=True)
        ]
        self.anchor = self.copies()


class SlowSI(SlowOEWC):
    """Pulls as oEWC does; a weight matters by how much its changes lowered the loss."""

    def prepare(self) -> None:
        super().prepare()
        self.path = self.zeros()

    def loss(self, task: int, rows: list[int]) -> Tensor:
        return self.mean_of(self.stream_losses(task, rows))

    def step(self, task: int, rows: list[int]) -> None:
        gradient = self.gradient(self.loss(task, rows) + self.weight["c"] * self.pull())
        clipped = [slope.clamp(-1, 1) for slope in gradient]
        self.happened["clipped"] += any((g.abs() > 1).any().item() for g in gradient)
        self.move(clipped)
        for path, slope in zip(self.path, clipped, strict=True):
            path += self.lr * slope.square()

    def end_task(self, task: int) -> None:
        for importance, path, own, anchor in zip(
            self.importance, self.path, self.net.parameters(), self.anchor, strict=True
        ):
            moved = (own.detach() - anchor).square()
            importance += path / (moved + self.weight["xi"])
        self.anchor, self.path = self.copies(), self.zeros()


class SlowLwF(Slow):
    """Distils the old net's outputs on the new samples, among the old classes."""

    def begin_task(self, task: int) -> None:
        if task == 0:
            return
        head = self.net[-1]
        own = self.benchmark.tasks[task]
        for _ in range(self.config.epochs):
            batches = self.given("shuffled warm-up")
            assert sorted(row for rows in batches for row in rows) == self.rows_of(task)
            for rows in batches:
                losses = [
                    surprise(head(self.features(image).detach()), label, own)
                    for image, label in self.of_rows(rows)
                ]
                for value, slope in zip(
                    head.parameters(),
                    torch.autograd.grad(self.mean_of(losses), list(head.parameters())),
                    strict=True,
                ):
                    value.data -= self.lr * slope
        self.recorded = {row: self.logits(self.images[row]).detach() for row in self.rows_of(task)}

    def loss(self, task: int, rows: list[int]) -> Tensor:
        loss = self.mean_of(self.stream_losses(task, rows, among=self.seen(task)))
        loss = loss + self.weight["decay"] * self.squared_weights()
        if task == 0:
            return loss
        old = self.seen(task - 1)
        distances = []
        for row in rows:
            before = self.softened(self.recorded[row][old].softmax(0))
            now = self.softened(self.logits(self.images[row])[old].softmax(0))
            distances.append(-(before * now.log()).sum())
        return loss + self.weight["alpha"] * self.mean_of(distances)

    @staticmethod
    def softened(chances: Tensor) -> Tensor:
        return chances.sqrt() / chances.sqrt().sum()


class SlowQuota(Slow):
    """Keeps equally many samples of every task, chosen when it ends."""

    def prepare(self) -> None:
        self.memory: list[list[int]] = []

    def end_task(self, task: int) -> None:
        rows = self.rows_of(task)
        count = min(self.config.buffer // self.benchmark.num_tasks, len(rows))
        chosen = self.given("random memory").choice(len(rows), count, replace=False)
        self.memory.append([rows[i] for i in chosen])


def solve_by_trial(quadratic: Floats, linear: Floats, least: float) -> Floats:
    """min 1/2 v'Qv + p'v with every v >= least: try every set of active bounds."""
    count = len(linear)
    best, lowest = np.full(count, least), INF
    for bits in range(2**count):
        free = [i for i in range(count) if bits >> i & 1]
        bound = [i for i in range(count) if not bits >> i & 1]
        v = np.full(count, least)
        if free:
            pushed = linear[free] + quadratic[np.ix_(free, bound)].sum(1) * least
            v[free] = np.linalg.solve(quadratic[np.ix_(free, free)], -pushed)
        value = float(v @ quadratic @ v / 2 + linear @ v)
        if (v >= least - 1e-12).all() and value < lowest:
            best, lowest = v, value
    return best


class SlowGEM(SlowQuota):
    """Rotates the gradient until it opposes that of no earlier task."""

    def step(self, task: int, rows: list[int]) -> None:
        gradient = self.gradient(self.loss(task, rows))
        past = [self.gradient(self.mean_of(self.losses(self.of_rows(m)))) for m in self.memory]
        products = [dot(gradient, old) for old in past]
        if any(product < 0 for product in products):
            self.happened["turned"] += 1
            gram = np.array([[dot(a, b) for b in past] for a in past])
            quadratic = gram + 1e-3 * np.eye(len(past))
            v = solve_by_trial(quadratic, np.array(products), self.weight["gamma"])
            self.happened["beyond the margin"] += bool((v > self.weight["gamma"]).any())
            for weight, old in zip(v.tolist(), past, strict=True):
                gradient = [g + weight * o for g, o in zip(gradient, old, strict=True)]
        else:
            self.happened["left alone"] += bool(past)
        self.move(gradient)


class SlowAGEM(SlowQuota):
    """Removes the component that opposes the gradient of a draw from memory."""

    def step(self, task: int, rows: list[int]) -> None:
        gradient = self.gradient(self.loss(task, rows))
        kept = [row for memory in self.memory for row in memory]
        if kept:
            drawn = self.of_rows(self.drawn(kept))
            reference = self.gradient(self.mean_of(self.losses(drawn)))
            against = dot(gradient, reference)
            self.happened["projected" if against < 0 else "left alone"] += 1
            if against < 0:
                part = against / dot(reference, reference)
                gradient = [g - part * r for g, r in zip(gradient, reference, strict=True)]
        self.move(gradient)


class SlowICaRL(Slow):
    """Learns sigmoids, keeps exemplars by herding, predicts the nearest mean of exemplars."""

    def prepare(self) -> None:
        self.exemplars: dict[int, list[int]] = {}
        self.old: nn.Module | None = None

    def samples_of(self, task: int) -> list[int]:
        kept = [row for rows in self.exemplars.values() for row in rows]
        return self.rows_of(task) + kept

    def loss(self, task: int, rows: list[int]) -> Tensor:
        own, losses = self.benchmark.tasks[task], []
        for row in rows:
            image, label = self.shown(task, row), self.labels[row]
            logits = self.logits(image)
            for k in self.seen(task):
                if k in own:
                    target = float(label == k)
                else:
                    assert self.old is not None
                    target = self.old(image[None])[0, k].sigmoid().item()
                yes = logits[k].sigmoid()
                losses.append(-(target * yes.log() + (1 - target) * (1 - yes).log()))
        return self.mean_of(losses) + self.weight["decay"] * self.squared_weights()

    def shown(self, task: int, row: int) -> Tensor:
        return self.images[row]

    def end_task(self, task: int) -> None:
        self.old = copy.deepcopy(self.net)
        quota = self.config.buffer // len(self.seen(task))
        for rows in self.exemplars.values():
            del rows[quota:]
        for k in self.benchmark.tasks[task]:
            rows = [row for row in self.rows_of(task) if self.labels[row] == k]
            features = [self.features(self.images[row]).detach() for row in rows]
            self.exemplars[k] = [rows[i] for i in slow_herd(features, quota)]
        self.means = {
            k: self.mean_of([self.features(self.images[row]).detach() for row in rows])
            for k, rows in self.exemplars.items()
        }

    def mean_of(self, values: Sequence[Tensor]) -> Tensor:  # type: ignore[override]
        return torch.stack(list(values)).sum(0) / len(values)

    def scores(self, image: Tensor) -> list[float]:
        here = self.features(image).detach()
        return [
            -float((here - self.means[k]).square().sum()) if k in self.means else -INF
            for k in self.every_class
        ]


class SlowDarkICaRL(SlowICaRL):
    """In training, all but the brightest pixels of exemplars are black."""

    def shown(self, task: int, row: int) -> Tensor:
        image = super().shown(task, row)
        if int(self.labels[row]) in self.benchmark.tasks[task]:
            return image
        self.happened["darkened"] += 1
        return torch.where(image >= 1, 1.0, 0.0).to(image)


def slow_herd(features: Sequence[Tensor], count: int) -> list[int]:
    """Choose one sample at a time: the one that brings the mean closest to that of all."""
    mean = torch.stack(list(features)).mean(0)
    taken: list[int] = []
    while len(taken) < min(count, len(features)):
        distances = {
            i: float((mean - torch.stack([features[j] for j in [*taken, i]]).mean(0)).norm())
            for i in range(len(features))
            if i not in taken
        }
        taken.append(min(distances, key=distances.__getitem__))
    return taken


class SlowFDR(Slow):
    """Takes a second step, which restores the outputs on samples of earlier tasks."""

    def prepare(self) -> None:
        self.memory: list[list[tuple[int, Tensor]]] = []

    def step(self, task: int, rows: list[int]) -> None:
        super().step(task, rows)
        kept = [sample for memory in self.memory for sample in memory]
        if not kept:
            return
        distances = []
        for row, before in self.drawn(kept):
            now = self.logits(self.images[row]).softmax(0)
            squared = (now - before.softmax(0)).square().sum()
            distances.append(squared.sqrt() if squared > 0 else squared)  # no slope at 0
        self.move(self.gradient(self.mean_of(distances)))

    def end_task(self, task: int) -> None:
        quota = self.config.buffer // (task + 1)
        for memory in self.memory:
            del memory[quota:]
        order = [row for rows in self.given("shuffled memory") for row in rows]
        assert sorted(order) == self.rows_of(task)
        self.memory.append([(row, self.logits(self.images[row]).detach()) for row in order[:quota]])


class SlowGSS(Slow):
    """Keeps samples whose gradients point in many directions."""

    def prepare(self) -> None:
        self.memory: list[int] = []
        self.score: list[float] = []

    def loss(self, task: int, rows: list[int]) -> Tensor:
        losses = self.stream_losses(task, rows)
        if self.memory:
            losses += self.losses(self.of_rows(self.drawn(self.memory)))
        return self.mean_of(losses)

    def step(self, task: int, rows: list[int]) -> None:
        super().step(task, rows)
        probes: list[Weights] = []
        if self.memory:
            drawn = self.drawn(self.memory, int(self.weight["probes"]))
            probes = [self.gradient_of([row]) for row in drawn]
        score = self.likeness(rows, probes) if probes else 0.1
        late = bool(probes) and len(self.memory) + len(rows) > self.config.buffer
        random = self.given("random replace") if late else None
        for row in rows:
            if len(self.memory) < self.config.buffer:
                self.memory.append(row)
                self.score.append(score)
                continue
            if score >= 1 or random is None:  # or it is the rest of the very first batch
                self.happened["not looked at"] += 1
                continue
            own = self.likeness([row], probes)
            shares = np.array(self.score) / np.sum(self.score)
            victim = int(random.choice(len(shares), p=shares))
            if random.random() < self.score[victim] / (self.score[victim] + own):
                self.memory[victim], self.score[victim] = row, own
                self.happened["replaced"] += 1
            else:
                self.happened["turned away"] += 1

    def gradient_of(self, rows: list[int]) -> Weights:
        return self.gradient(self.mean_of(self.losses(self.of_rows(rows))))

    def likeness(self, rows: list[int], probes: list[Weights]) -> float:
        """1 + the largest cosine between the gradient of samples and those of the probes."""
        own = self.gradient_of(rows)
        return 1 + max(
            dot(own, probe) / math.sqrt(dot(own, own) * dot(probe, probe)) for probe in probes
        )


class SlowReplay(Slow):
    """Keeps a reservoir of samples, and replays a draw of it in every step."""

    draws_per_step = 1

    def prepare(self) -> None:
        self.memory: list[int] = []
        self.presented = 0

    def begin_epoch(self, task: int, epoch: int, sizes: list[int]) -> None:
        config = self.config
        starts = self.presented + np.cumsum([0, *sizes[:-1]])
        filled = np.repeat(np.minimum(starts, config.buffer), self.draws_per_step)
        chosen = draw_distinct(
            generator(config.seed, "replay", task, epoch), filled, config.replay_batch
        )
        self.draws = [
            own[: min(config.replay_batch, have)].tolist()
            for own, have in zip(chosen, filled.tolist(), strict=True)
        ]
        numbers = self.presented + 1 + np.arange(sum(sizes))
        self.places = generator(config.seed, "reservoir", task, epoch).integers(0, numbers).tolist()

    def step(self, task: int, rows: list[int]) -> None:
        self.replayed = [self.memory[slot] for slot in self.draws.pop(0)]
        self.learn(task, rows)
        self.insert(rows)

    def insert(self, samples: Sequence[Any]) -> None:
        for sample in samples:
            place = self.places.pop(0)
            if self.presented < self.config.buffer:
                self.memory.append(sample)
            elif place < self.config.buffer:
                self.memory[place] = sample
            self.presented += 1

    def learn(self, task: int, rows: list[int]) -> None:
        super().step(task, rows)

    def loss(self, task: int, rows: list[int]) -> Tensor:
        replayed = self.losses(self.of_rows(self.replayed))
        return self.mean_of(self.stream_losses(task, rows) + replayed)


class SlowHAL(SlowReplay):
    """Keeps its outputs on anchors: images that it would forget most easily."""

    def prepare(self) -> None:
        super().prepare()
        self.anchors: list[Tensor] = []
        self.mean_features = torch.zeros(7, dtype=torch.float64)

    def learn(self, task: int, rows: list[int]) -> None:
        gradient = self.gradient(self.loss(task, rows))
        if self.anchors:
            here = self.copies()
            self.move(gradient)
            targets = [self.logits(anchor).detach() for anchor in self.anchors]
            self.put(here)
            squares = [
                (target - self.logits(anchor)).square()
                for target, anchor in zip(targets, self.anchors, strict=True)
            ]
            moved = self.weight["anchoring"] * torch.stack(squares).mean()
            gradient = [g + h for g, h in zip(gradient, self.gradient(moved), strict=True)]
        self.move(gradient)
        now = self.mean_features_of(rows)
        beta = self.weight["beta"]
        self.mean_features = beta * self.mean_features + (1 - beta) * now

    def mean_features_of(self, rows: list[int]) -> Tensor:
        return torch.stack([self.features(self.images[row]).detach() for row in rows]).mean(0)

    def end_task(self, task: int) -> None:
        inputs, labels = self.given("recall")
        filled = min(self.presented, self.config.buffer)
        assert len(labels) == min(self.config.batch, filled)
        for image, label in zip(inputs, labels.tolist(), strict=True):
            assert any(
                label == self.labels[row] and (image - self.images[row]).abs().max() < 1e-6
                for row in self.memory
            )
        drawn = list(zip(inputs.double(), labels.tolist(), strict=True))
        forgetful = copy.deepcopy(self)
        forgetful.move(forgetful.gradient(forgetful.mean_of(forgetful.losses(drawn))))
        random = self.given("random anchors")
        shape = self.benchmark.input_shape
        for k in sorted(self.benchmark.tasks[task]):
            anchor = torch.from_numpy(random.random(shape))
            for _ in range(100):
                anchor.requires_grad_(True)
                features = self.features(anchor)
                wanted = surprise(self.net[-1](features), k, self.every_class)
                forgotten = surprise(forgetful.logits(anchor), k, self.every_class)
                apart = (features - self.mean_features).square().sum()
                loss = wanted - forgotten + self.weight["gamma"] * apart
                (slope,) = torch.autograd.grad(loss, anchor)
                anchor = (anchor - self.lr * slope).detach()
            self.anchors.append(anchor)
        self.mean_features = torch.zeros_like(self.mean_features)


class SlowERACE(SlowReplay):
    """On the stream, the batch's classes and unseen ones compete; on replay, all classes."""

    def loss(self, task: int, rows: list[int]) -> Tensor:
        came = {self.labels[row] for row in rows}
        self.met: set[int] = (self.met if self.presented else set()) | came
        competing = [k for k in self.every_class if k in came or k not in self.met]
        losses = [
            surprise(self.logits(self.images[row]), self.labels[row], competing) for row in rows
        ]
        if not self.replayed:
            return self.mean_of(losses)
        return self.mean_of(losses) + self.mean_of(self.losses(self.of_rows(self.replayed)))


class SlowEREMA(SlowReplay):
    """A slow copy of the net teaches the replay and predicts."""

    def prepare(self) -> None:
        super().prepare()
        self.slow, self.taken = copy.deepcopy(self.net), 0

    def loss(self, task: int, rows: list[int]) -> Tensor:
        loss = super().loss(task, rows)
        if not self.replayed:
            return loss
        squares = [
            (self.logits(image) - self.slow(image[None])[0].detach()).square().mean()
            for image, _ in self.of_rows(self.replayed)
        ]
        return loss + self.weight["alpha"] * self.mean_of(squares)

    def learn(self, task: int, rows: list[int]) -> None:
        super().learn(task, rows)
        self.taken += 1
        ramp = self.weight["ramp"]
        keep = min(1 - (1 + ramp) / (self.taken + 1 + ramp), self.weight["slowness"])
        self.happened["averaged plainly" if keep < self.weight["slowness"] else "averaged"] += 1
        for slow, fast in zip(self.slow.parameters(), self.net.parameters(), strict=True):
            slow.data = keep * slow.data + (1 - keep) * fast.data

    def scores(self, image: Tensor) -> list[float]:
        said: list[float] = self.slow(image[None])[0].tolist()
        return said


class SlowCLSER(SlowReplay):
    """Two slow copies of the net: the better one per sample teaches it; one predicts."""

    def prepare(self) -> None:
        super().prepare()
        self.copies_of_net = {kind: copy.deepcopy(self.net) for kind in ("plastic", "stable")}
        self.taken = 0

    def loss(self, task: int, rows: list[int]) -> Tensor:
        loss = super().loss(task, rows)
        if not self.replayed:
            return loss
        squares = []
        for image, label in self.of_rows(self.replayed):
            said = {kind: net(image[None])[0].detach() for kind, net in self.copies_of_net.items()}
            sure = {kind: float(logits.softmax(0)[label]) for kind, logits in said.items()}
            better = "stable" if sure["stable"] > sure["plastic"] else "plastic"
            self.happened[f"{better} teaches"] += 1
            squares.append((self.logits(image) - said[better]).square().mean())
        return loss + self.weight["alpha"] * self.mean_of(squares)

    def learn(self, task: int, rows: list[int]) -> None:
        super().learn(task, rows)
        self.taken += 1
        random = self.given("random update")
        for kind, net in self.copies_of_net.items():
            if random.random() >= self.weight[f"{kind}_rate"]:
                self.happened[f"{kind} waits"] += 1
                continue
            keep = min(1 - 1 / (self.taken + 1), self.weight[f"{kind}_slowness"])
            for slow, fast in zip(net.parameters(), self.net.parameters(), strict=True):
                slow.data = keep * slow.data + (1 - keep) * fast.data

    def scores(self, image: Tensor) -> list[float]:
        said: list[float] = self.copies_of_net["stable"](image[None])[0].tolist()
        return said


class SlowERLAS(SlowReplay):
    """Adds to each logit the logarithm of its class's count in the latest steps."""

    def loss(self, task: int, rows: list[int]) -> Tensor:
        samples = self.of_rows(rows + self.replayed)
        if not self.presented:
            self.recent: deque[list[int]] = deque(maxlen=int(self.weight["window"]))
        self.recent.append([label for _, label in samples])
        counts = Counter(label for labels in self.recent for label in labels)
        self.happened["not in this step"] += bool(counts.keys() - {label for _, label in samples})
        raised = torch.zeros(len(self.every_class), dtype=torch.float64)
        for label, count in counts.items():
            raised[label] = self.weight["tau"] * torch.tensor(float(count)).double().log()
        return self.mean_of(
            [surprise(self.logits(image) + raised, y, sorted(counts)) for image, y in samples]
        )


class SlowLODE(SlowReplay):
    """Two losses: whether a sample is of a new class, which has less weight, and of which."""

    def loss(self, task: int, rows: list[int]) -> Tensor:
        old = self.seen(task - 1) if task else []
        new = [k for k in self.every_class if k not in old]
        losses = []
        for image, label in self.of_rows(rows):
            chances = self.logits(image).softmax(0)
            is_new = -chances[new].sum().log()
            which = -(chances[label] / chances[new].sum()).log()
            weight = self.weight["rho"] * len(self.benchmark.tasks[task]) / len(old) if old else 1.0
            losses.append(which + weight * is_new)
        if not self.replayed:
            return self.mean_of(losses)
        replayed = self.mean_of(self.losses(self.of_rows(self.replayed)))
        return (self.mean_of(losses) + replayed) / 2


class SlowDER(SlowReplay):
    """The logits of a draw are distilled."""

    memory: list[Any]
    """Of every sample its row, and the logits that it had when it arrived."""

    def step(self, task: int, rows: list[int]) -> None:
        drawn = [self.draws.pop(0) for _ in range(self.draws_per_step)]
        recalled, *relearnt = ([self.memory[slot] for slot in slots] for slots in drawn)
        said = {row: self.logits(self.images[row]).detach() for row in rows}
        loss = self.mean_of(self.stream_losses(task, rows))
        if recalled:
            squares = [
                (self.logits(self.images[row]) - before).square().mean() for row, before in recalled
            ]
            loss = loss + self.weight["alpha"] * self.mean_of(squares)
        for samples in filter(None, relearnt):
            labels = self.losses(self.of_rows([row for row, _ in samples]))
            loss = loss + self.weight["beta"] * self.mean_of(labels)
        self.move(self.gradient(loss))
        if self.config.mask_stored:
            absent = [k for k in self.every_class if k not in self.benchmark.tasks[task]]
            for kept in said.values():
                kept[absent] = float(self.config.mask or 0.0)
        self.insert([(row, said[row]) for row in rows])


class SlowDERpp(SlowDER):
    """The labels of a second draw are learnt again."""

    draws_per_step = 2


class SlowMIR(SlowReplay):
    """Tries a step on the stream, and replays the candidates that it harms most."""

    def loss(self, task: int, rows: list[int]) -> Tensor:
        stream = self.mean_of(self.stream_losses(task, rows))
        if not self.memory:
            return stream
        images, labels = self.given("recall")
        candidates = list(zip(images.double(), labels.tolist(), strict=True))
        assert len(candidates) == min(len(self.memory), 5 * self.config.replay_batch)
        before, here = self.losses(candidates), self.copies()
        self.move(self.gradient(stream))
        after = self.losses(candidates)
        self.put(here)
        harm = [(new - old).item() for new, old in zip(after, before, strict=True)]
        worst = sorted(range(len(harm)), key=lambda place: -harm[place])
        chosen = [candidates[place] for place in worst[: self.config.replay_batch]]
        self.happened["retrieved"] += len(chosen) < len(candidates)
        # A new graph: the step that was tried has changed the weights in place.
        return self.mean_of(self.stream_losses(task, rows)) + self.mean_of(self.losses(chosen))


class SlowSSIL(Slow):
    """New classes compete in the stream and old ones in the replay; past tasks are distilled."""

    def prepare(self) -> None:
        self.memory: dict[int, list[int]] = {}

    def loss(self, task: int, rows: list[int]) -> Tensor:
        own = self.benchmark.tasks[task]
        losses = self.stream_losses(task, rows, among=own)
        if task == 0:
            return self.mean_of(losses)
        kept = [row for label in sorted(self.memory) for row in self.memory[label]]
        replayed = self.drawn(kept)
        losses += [
            surprise(self.logits(image), label, self.seen(task - 1))
            for image, label in self.of_rows(replayed)
        ]
        distances = []
        for image, _ in self.of_rows(rows + replayed):
            before, now = self.old(image[None])[0].detach() / 2, self.logits(image) / 2
            for classes in map(list, self.benchmark.tasks[:task]):
                wanted, said = before[classes].softmax(0), now[classes].softmax(0)
                distances.append(4 * (wanted * (wanted / said).log()).sum())
        distance = torch.stack(distances).sum() / len(rows + replayed)
        return self.mean_of(losses) + self.weight["distillation"] * distance

    def end_task(self, task: int) -> None:
        self.old = copy.deepcopy(self.net)
        quota = self.config.buffer // len(self.seen(task))
        for kept in self.memory.values():
            del kept[quota:]
        for label in sorted(self.benchmark.tasks[task]):
            rows = [row for row in self.rows_of(task) if self.labels[row] == label]
            count = min(quota, len(rows))
            chosen = self.given("random memory").choice(len(rows), count, replace=False)
            self.memory[label] = [rows[i] for i in chosen]


SLOW: dict[str, type[Slow]] = {
    "sgd": Slow,
    "der": SlowDER,
    "derpp": SlowDERpp,
    "oewc": SlowOEWC,
    "si": SlowSI,
    "lwf": SlowLwF,
    "er": SlowReplay,
    "gem": SlowGEM,
    "agem": SlowAGEM,
    "icarl": SlowICaRL,
    "icarl-dark": SlowDarkICaRL,
    "fdr": SlowFDR,
    "gss": SlowGSS,
    "hal": SlowHAL,
    "er_ace": SlowERACE,
    "mir": SlowMIR,
    "ss_il": SlowSSIL,
    "er_ema": SlowEREMA,
    "cls_er": SlowCLSER,
    "er_las": SlowERLAS,
    "lode": SlowLODE,
}


def run_noted(configs: Sequence[TrialConfig], benchmark: Benchmark) -> tuple[TrialStack, Chance]:
    chance = Chance()
    kind = noting(configs[0].method, chance)
    return finish(TrialStack(configs, benchmark, method=kind, build_net=small_mlp)), chance


def assert_same_outcome(stack: TrialStack, trial: int, slow: Slow) -> None:
    """Compare the weights and the accuracies."""
    state = stack.state()
    for name, value in slow.net.named_parameters():
        torch.testing.assert_close(
            state[f"net/{name}"][trial].double(), value.detach(), rtol=1e-5, atol=5e-6
        )
    result = stack.results()[trial]
    np.testing.assert_allclose(result.class_il, slow.class_il, atol=1e-9)
    np.testing.assert_allclose(result.task_il, slow.task_il, atol=1e-9)
