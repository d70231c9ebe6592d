"""Every method against a slow one, written from its equations for one trial and plain torch.

What chance decides (orders, draws, first anchors) is noted while the engine runs and given to the
slow method; all else it computes itself, sample by sample, in float64.
"""

import copy
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.data.samples import batch_sizes
from remask.engine import TrialStack
from remask.errors import SettingsError, UnknownNameError
from remask.experiments.configs import trial_configs
from remask.memory import choose_rows, herd
from remask.memory.reservoir import draw_distinct
from remask.methods import MASKED_NAMES, METHODS, Batch, Method, Step, Task, find_method
from remask.methods.gem import solve
from remask.metrics import forgetting
from remask.names import SUMMARIES, TITLES, Systems, systems_named
from remask.randomness import generator, torch_seed
from tests.engine.stack_samples import finish, small_mlp

INF = float("inf")
MASKS = (None, -1.0, -INF)
MakeConfig = Callable[..., TrialConfig]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Weights = list[Tensor]
"""A number for every parameter of a net, in its order."""


# ---- What chance decided ------------------------------------------------------------------------


class Chance:
    """What was random in a run, by kind, in the order in which it came; each [S, ...]."""

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
    """The method, with all that is random in its run noted."""
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
    """-log of the probability of a label, where only some classes compete and the others say m."""
    absent = torch.full((len(logits) - len(among),), others, dtype=logits.dtype)
    rivals = torch.cat([logits[list(among)], absent])
    return (rivals - logits[label]).exp().sum().log()


class Slow:
    """One trial of SGD; the others change what they do differently."""

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
        """How often a branch of the method was taken, so that a test can ask for it."""
        self.arrived: set[int] = set()
        """The rows that have come so far, in a stream that repeats itself in every epoch."""

    def given(self, kind: str) -> Any:
        """The next thing of a kind that chance decided."""
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

    def rows_of(self, task: int) -> list[int]:
        return [i for i, y in enumerate(self.labels) if y in self.benchmark.tasks[task]]

    def samples_of(self, task: int) -> list[int]:
        return self.rows_of(task)

    def seen(self, task: int) -> list[int]:
        """The classes of all tasks up to one."""
        return [k for earlier in self.benchmark.tasks[: task + 1] for k in earlier]

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
    """Pulls the weights to where the last task left them, the more they mattered."""

    def begin_task(self, task: int) -> None:
        if task == 0:
            self.importance, self.anchor = self.zeros(), self.zeros()

    def loss(self, task: int, rows: list[int]) -> Tensor:
        pulls = [
            (weight * (own - anchor).square()).sum()
            for weight, own, anchor in zip(
                self.importance, self.net.parameters(), self.anchor, strict=True
            )
        ]
        return super().loss(task, rows) + self.weight["penalty"] * torch.stack(pulls).sum()

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


class SlowSI(Slow):
    """Pulls like oEWC; a weight mattered by what moving it took off the loss."""

    def begin_task(self, task: int) -> None:
        if task == 0:
            self.anchor, self.path, self.importance = self.copies(), self.zeros(), self.zeros()

    def step(self, task: int, rows: list[int]) -> None:
        pulls = [
            (weight * (own - anchor).square()).sum()
            for weight, own, anchor in zip(
                self.importance, self.net.parameters(), self.anchor, strict=True
            )
        ]
        gradient = self.gradient(self.loss(task, rows) + self.weight["c"] * sum(pulls))
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
    """Asks of the new net what the old one said of the new samples, among the old classes."""

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
    """Keeps so many samples of every task, chosen when it ends."""

    def begin_task(self, task: int) -> None:
        if task == 0:
            self.memory: list[list[int]] = []

    def end_task(self, task: int) -> None:
        rows = self.rows_of(task)
        count = min(self.config.buffer // self.benchmark.num_tasks, len(rows))
        chosen = self.given("random memory").choice(len(rows), count, replace=False)
        self.memory.append([rows[i] for i in chosen])


def solve_by_trial(quadratic: Floats, linear: Floats, least: float) -> Floats:
    """min 1/2 v'Qv + p'v with every v >= least: try every set of those that stand at the bound."""
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
    """Turns the gradient until it opposes that of no task before."""

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
    """Takes out of the gradient what opposes that of a draw from memory."""

    def step(self, task: int, rows: list[int]) -> None:
        gradient = self.gradient(self.loss(task, rows))
        kept = [row for memory in self.memory for row in memory]
        if kept:
            filled, slots = self.given("draw")
            assert (filled, len(slots)) == (len(kept), min(len(kept), self.config.replay_batch))
            drawn = self.of_rows([kept[slot] for slot in slots])
            reference = self.gradient(self.mean_of(self.losses(drawn)))
            against = dot(gradient, reference)
            self.happened["projected" if against < 0 else "left alone"] += 1
            if against < 0:
                part = against / dot(reference, reference)
                gradient = [g - part * r for g, r in zip(gradient, reference, strict=True)]
        self.move(gradient)


class SlowICaRL(Slow):
    """Learns sigmoids, keeps exemplars by herding, answers by the nearest mean of exemplars."""

    def begin_task(self, task: int) -> None:
        if task == 0:
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
    """Take, one after the other, what brings the mean of those taken nearest to that of all."""
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
    """After the stream, a second step: back to what was said of samples of tasks before."""

    def begin_task(self, task: int) -> None:
        if task == 0:
            self.memory: list[list[tuple[int, Tensor]]] = []

    def step(self, task: int, rows: list[int]) -> None:
        super().step(task, rows)
        kept = [sample for memory in self.memory for sample in memory]
        if not kept:
            return
        filled, slots = self.given("draw")
        assert (filled, len(slots)) == (len(kept), min(len(kept), self.config.replay_batch))
        distances = []
        for row, before in (kept[slot] for slot in slots):
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

    def begin_task(self, task: int) -> None:
        if task == 0:
            self.memory: list[int] = []
            self.score: list[float] = []

    def loss(self, task: int, rows: list[int]) -> Tensor:
        losses = self.stream_losses(task, rows)
        if self.memory:
            filled, slots = self.given("draw")
            want = min(len(self.memory), self.config.replay_batch)
            assert (filled, len(slots)) == (len(self.memory), want)
            losses += self.losses(self.of_rows([self.memory[slot] for slot in slots]))
        return self.mean_of(losses)

    def step(self, task: int, rows: list[int]) -> None:
        super().step(task, rows)
        probes: list[Weights] = []
        if self.memory:
            filled, slots = self.given("draw")
            want = min(len(self.memory), int(self.weight["probes"]))
            assert (filled, len(slots)) == (len(self.memory), want)
            probes = [self.gradient_of([self.memory[slot]]) for slot in slots]
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

    def begin_task(self, task: int) -> None:
        if task == 0:
            self.memory: list[int] = []
            self.presented = 0

    def begin_epoch(self, task: int, epoch: int, sizes: list[int]) -> None:
        config = self.config
        starts = self.presented + np.cumsum([0, *sizes[:-1]])
        filled = np.minimum(starts, config.buffer)
        draws = draw_distinct(
            generator(config.seed, "replay", task, epoch), filled, config.replay_batch
        )
        self.draws = [
            drawn[: min(config.replay_batch, have)].tolist()
            for drawn, have in zip(draws, filled.tolist(), strict=True)
        ]
        numbers = self.presented + 1 + np.arange(sum(sizes))
        self.places = generator(config.seed, "reservoir", task, epoch).integers(0, numbers).tolist()

    def step(self, task: int, rows: list[int]) -> None:
        self.replayed = [self.memory[slot] for slot in self.draws.pop(0)]
        self.learn(task, rows)
        for row in rows:
            place = self.places.pop(0)
            if self.presented < self.config.buffer:
                self.memory.append(row)
            elif place < self.config.buffer:
                self.memory[place] = row
            self.presented += 1

    def learn(self, task: int, rows: list[int]) -> None:
        super().step(task, rows)

    def loss(self, task: int, rows: list[int]) -> Tensor:
        replayed = self.losses(self.of_rows(self.replayed))
        return self.mean_of(self.stream_losses(task, rows) + replayed)


class SlowHAL(SlowReplay):
    """Holds what it says of anchors: images it would forget most easily."""

    def begin_task(self, task: int) -> None:
        super().begin_task(task)
        if task == 0:
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
    """On the stream, the classes of the batch and those not met yet compete; on replay, all."""

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


SLOW: dict[str, type[Slow]] = {
    "sgd": Slow,
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
}

NOT_SLOW = {
    "joint": "SGD on all tasks at once",
    "der": "compared with a hand-written loop: test_images",
    "derpp": "compared with a hand-written loop: test_images",
    "pnn": "has nets of its own: test_pnn",
    "pnn-independent": "has nets of its own: test_pnn",
    **dict.fromkeys(["er_las", "lode", "cls_er", "er_ema", "mir", "ss_il"], "test_newer_methods"),
    **dict.fromkeys(["ncm", "slda", "ridge"], "takes no steps: test_closed_form"),
}
"""The methods without a slow twin here, and why."""


def test_every_method_has_a_slow_reference_or_a_reason_to_have_none() -> None:
    assert SLOW.keys().isdisjoint(NOT_SLOW)
    assert {*SLOW, *NOT_SLOW} == METHODS.keys()


WEIGHTS: dict[str, dict[str, float]] = {
    "oewc": {"penalty": 5.0, "gamma": 0.5},
    "si": {"c": 3.0, "xi": 0.1},
    "lwf": {"decay": 0.01},
    "gem": {"gamma": 0.3},
    "icarl": {"decay": 0.01},
    "icarl-dark": {"decay": 0.01},
    "gss": {"probes": 3.0},
    "hal": {"anchoring": 0.5, "gamma": 0.2},
}
"""With these every term matters."""
HAPPENS: dict[str, set[str]] = {
    "si": {"clipped"},
    "icarl-dark": {"darkened"},
    "gem": {"turned", "beyond the margin", "left alone"},
    "agem": {"projected", "left alone"},
    "gss": {"replaced", "turned away", "not looked at"},
}
"""What must have happened in a run that is to tell right from wrong."""


def masks_of(method: str) -> tuple[float | None, ...]:
    if METHODS[method].unmaskable:
        return (None,) * 3
    # At -inf a task of one class teaches nothing, and FDR's distance, which is then 0, has no
    # slope there, or that of a rounding error; and for MIR all candidates are equally harmed.
    return (None, -1.0, -5.0) if method in ("fdr", "mir") else MASKS


def three_trials(config: MakeConfig, method: str, **changes: Any) -> list[TrialConfig]:
    """Three trials that differ in all that trials of one stack may differ in."""
    return [
        config(
            method=method,
            seed=seed,
            mask=mask,
            lr=lr,
            alpha=0.7 * factor,
            beta=0.6 / factor,
            weights={
                name: value * (1 if name == "probes" else factor)
                for name, value in WEIGHTS.get(method, {}).items()
            },
            **changes,
        )
        for seed, mask, lr, factor in zip(
            (4, 0, 7), masks_of(method), (0.1, 0.2, 0.15), (1, 0.7, 1.4), strict=True
        )
    ]


def run_noted(configs: Sequence[TrialConfig], benchmark: Benchmark) -> tuple[TrialStack, Chance]:
    chance = Chance()
    kind = noting(configs[0].method, chance)
    return finish(TrialStack(configs, benchmark, method=kind, build_net=small_mlp)), chance


def assert_same_outcome(stack: TrialStack, trial: int, slow: Slow) -> None:
    """The same weights, and as many right answers."""
    state = stack.state()
    for name, value in slow.net.named_parameters():
        torch.testing.assert_close(
            state[f"net/{name}"][trial].double(), value.detach(), rtol=1e-5, atol=5e-6
        )
    result = stack.results()[trial]
    np.testing.assert_allclose(result.class_il, slow.class_il, atol=1e-9)
    np.testing.assert_allclose(result.task_il, slow.task_il, atol=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("method", SLOW)
def test_a_method_equals_a_slow_one_alone_and_in_a_stack(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    configs = three_trials(config, method)
    stack, chance = run_noted(configs, tiny)
    happened: Counter[str] = Counter()
    for trial, own in enumerate(configs):
        slow = SLOW[method](own, tiny, chance.of_trial(trial))
        slow.run()
        assert_same_outcome(stack, trial, slow)
        if trial == 0:
            assert_same_outcome(finish(TrialStack([own], tiny, build_net=small_mlp)), 0, slow)
        happened += slow.happened
    assert happened.keys() >= HAPPENS.get(method, set())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        # Room for more samples than a task, or a class, has.
        ("gem", {"buffer": 66}),
        ("agem", {"buffer": 66}),
        ("icarl", {"buffer": 60}),
        ("fdr", {"buffer": 60}),
        # A first batch that does not fit; a later one whose rest may take the place of others.
        ("gss", {"buffer": 4}),
        ("gss", {"buffer": 27}),
        # The learning rate of the moment, wherever a method uses it.
        ("si", {"lr_drops": (1,)}),
        ("lwf", {"lr_drops": (1,)}),
        ("fdr", {"lr_drops": (1,)}),
        ("hal", {"lr_drops": (1,)}),
    ],
)
def test_a_method_equals_a_slow_one_in_odd_settings(
    method: str, changes: dict[str, Any], config: MakeConfig, tiny: Benchmark
) -> None:
    (single,) = three_trials(config, method, **changes)[1:2]
    stack, chance = run_noted([single], tiny)
    slow = SLOW[method](single, tiny, chance.of_trial(0))
    slow.run()
    assert_same_outcome(stack, 0, slow)


def test_fdr_equals_a_slow_one_under_a_mask_of_minus_infinity(
    config: MakeConfig, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark(((3, 0), (4, 1), (2, 5)))
    single = config(method="fdr", mask=-INF)
    stack, chance = run_noted([single], benchmark)
    slow = SlowFDR(single, benchmark, chance.of_trial(0))
    slow.run()
    assert_same_outcome(stack, 0, slow)


# ---- What methods are made of -------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["apart", "nearly alike", "alike"])
def test_gem_s_solution_equals_an_exhaustive_search_over_active_bounds(
    kind: str, count: int
) -> None:
    random = np.random.default_rng(count)
    bound = {"some": 0, "none": 0}
    for number in range(60):
        past = random.standard_normal((count, 8))
        if kind != "apart":
            past[1:] = past[0] + (1e-7 if kind == "nearly alike" else 0) * past[1:]
        past *= 10.0 ** random.integers(-2, 3)
        own = random.standard_normal(8) * 10.0 ** random.integers(-2, 3)
        gram, linear, least = past @ past.T, past @ own, (0.0, 0.5, 1.0)[number % 3]
        found = solve(gram, linear, least)
        quadratic = gram + 1e-3 * np.eye(count)
        best = solve_by_trial(quadratic, linear, least)

        costs = [v @ quadratic @ v / 2 + linear @ v for v in (found, best)]
        size = np.abs(quadratic).max() * np.abs(best).max() ** 2 + np.abs(linear @ best)
        assert costs[0] == pytest.approx(costs[1], abs=1e-12 * size)
        if kind == "apart":
            np.testing.assert_allclose(found, best, rtol=1e-6, atol=1e-9)
        # Optimal: no v below the least, no slope downwards, and none at all above the least.
        slope = quadratic @ found + linear
        scale = np.abs(quadratic) @ np.abs(found) + np.abs(linear)
        assert (found >= least).all()
        assert (slope >= -1e-9 * scale).all()
        above = found > least + 1e-9 * (1 + np.abs(found))
        assert (np.abs(slope[above]) <= 1e-9 * scale[above]).all()
        bound["none" if above.all() else "some"] += 1
    assert bound["some"]
    assert bound["none"] or count > 3


@pytest.mark.parametrize("count", [2, 5])
def test_gem_s_solution_is_found_for_huge_parallel_gradients(count: int) -> None:
    random = np.random.default_rng(count)
    for _ in range(100):
        past = np.outer(random.uniform(0.5, 2, count), random.standard_normal(8)) * 1e7
        own = random.standard_normal(8) * 1e7
        gram, linear = past @ past.T, past @ own
        found = solve(gram, linear, 0.5)
        assert (found >= 0.5).all()
        # The kept gradient disagrees with no past one, but for what 0.5 of each adds anyway.
        bent = past @ (past.T @ found + own)
        assert (bent >= -1e-6 * np.abs(gram).max()).all()


def test_herding_equals_a_slow_greedy_search() -> None:
    features = torch.randn(3, 20, 5, generator=torch.Generator().manual_seed(2)).double()
    features[1] += 4  # a mean far from 0
    for count in (1, 7, 20, 33):
        chosen = herd(features, count)
        assert chosen.shape == (3, min(count, 20))
        for trial in range(3):
            assert chosen[trial].tolist() == slow_herd(list(features[trial]), count)


def test_choose_rows_draws_a_uniform_sample_or_everything() -> None:
    rows = torch.tensor([3, 5, 8, 13, 21, 34])

    def choose(quota: int) -> Tensor:
        return choose_rows([np.random.default_rng(seed) for seed in range(300)], rows, quota)

    few = choose(2)
    assert few.shape == (300, 2)
    assert all(len(set(own)) == 2 for own in few.tolist())
    counts = Counter(few.flatten().tolist())
    assert counts.keys() == set(rows.tolist())
    # Binomial: 300 trials of 1/3, a standard deviation of 8.2.
    assert all(abs(count - 100) < 40 for count in counts.values())
    for quota in (6, 9):
        assert all(sorted(own) == rows.tolist() for own in choose(quota).tolist())
    assert choose(0).shape == (300, 0)


# ---- Masks and streams without tasks ------------------------------------------------------------

MASKABLE = [name for name, kind in METHODS.items() if not kind.unmaskable]
UNMASKABLE = {
    "joint": "no absent class to mask",
    "icarl": "outputs are sigmoids",
    "icarl-dark": "outputs are sigmoids",
    "er_ace": "itself defines which classes compete",
    "er_las": "itself defines how classes compete",
    "lode": "itself defines how new classes compete",
    "ss_il": "itself separates the classes",
    **dict.fromkeys(["ncm", "slda", "ridge"], "no softmax loss"),
}
TOLD_OF_TASKS = [name for name, kind in METHODS.items() if kind.uses_tasks]
FREE_OF_TASKS = [name for name, kind in METHODS.items() if not kind.uses_tasks]


def test_which_methods_support_a_mask_and_which_need_no_tasks() -> None:
    assert UNMASKABLE.keys() == METHODS.keys() - MASKABLE
    assert set(FREE_OF_TASKS) == {
        "sgd", "joint", "er", "gss", "der", "derpp", "er_ace", "er_las", "cls_er", "er_ema",
        "mir", "ncm", "slda", "ridge",
    }  # fmt: skip


@pytest.mark.parametrize("method", MASKABLE)
def test_a_mask_changes_what_a_method_learns_and_never_breaks_it(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    configs = [config(method=method, mask=mask) for mask in MASKS]
    stack = finish(TrialStack(configs, tiny, build_net=small_mlp))
    for name, tensor in stack.state().items():
        if not name.startswith("metrics/"):
            assert tensor.isfinite().all(), name
    weights = torch.cat([v.flatten(1) for n, v in stack.state().items() if n.startswith("net/")], 1)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (weights[one] - weights[other]).abs().max() > 0.01
    for result in stack.results():
        assert result.diverged_at is None
        measured = np.tril_indices(3)
        assert np.isfinite(np.array(result.task_il)[measured]).all()
        # PNN answers only if told the task, and so has neither.
        assert np.isfinite(np.array(result.class_il)[measured]).all() == METHODS[method].class_il
        assert np.isfinite(result.confidence).all() == METHODS[method].confidence


@pytest.mark.parametrize("method", UNMASKABLE)
def test_a_method_without_support_for_a_mask_gives_the_reason(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    for mask in (-1.0, -INF):
        with pytest.raises(ValueError, match=f"does not support a mask: .*{UNMASKABLE[method]}"):
            TrialStack([config(method=method, mask=mask)], tiny, build_net=small_mlp)
        with pytest.raises(SettingsError, match=f"does not support a mask: .*{UNMASKABLE[method]}"):
            trial_configs(benchmark="split-digits", method=method, masks=[mask], seeds=[0])


@pytest.mark.parametrize("method", TOLD_OF_TASKS)
def test_a_method_that_needs_task_boundaries_refuses_a_task_free_stream(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    with pytest.raises(ValueError, match="needs task boundaries"):
        TrialStack([config(method=method, task_free=True)], tiny, build_net=small_mlp)


@pytest.mark.parametrize("method", FREE_OF_TASKS)
def test_other_methods_learn_the_same_without_task_boundaries(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    told, free = (
        finish(TrialStack([config(method=method, task_free=task_free)], tiny, build_net=small_mlp))
        for task_free in (False, True)
    )
    for name, tensor in told.state().items():
        torch.testing.assert_close(free.state()[name], tensor, rtol=0, atol=0, equal_nan=True)


# ---- Less forgetting on digits ------------------------------------------------------------------


@pytest.fixture(scope="module")
def forgotten(config: MakeConfig, digits: Benchmark) -> Callable[..., Floats]:
    """F_T of every seed, for a method with other settings; what was run once is kept."""
    known: dict[Any, list[Any]] = {}

    def run(setting: str, seeds: int, method: str, **changes: Any) -> Floats:
        key = (seeds, method, str(changes))
        if key not in known:
            configs = [
                config(
                    benchmark="split-digits", method=method, net="mlp", seed=seed, batch=10,
                    replay_batch=10, buffer=50, **changes,
                )
                for seed in range(seeds)
            ]  # fmt: skip
            known[key] = finish(TrialStack(configs, digits)).results()
        return forgetting(np.array([getattr(result, setting) for result in known[key]]))

    return run


WITH_A_MEMORY = [
    name
    for name, kind in METHODS.items()
    if kind.uses_buffer() and name != "agem"  # which helps only where the task is told: see below
]
HOLDING_ON: dict[str, dict[str, Any]] = {
    "oewc": {"weights": {"penalty": 200.0, "gamma": 1.0}},
    "si": {"weights": {"c": 3.0, "xi": 0.1}},
    "lwf": {"alpha": 1.0},
    "agem": {},
}
"""The methods that forget less if told the task, and weights with which they do."""
NOT_COMPARED_WITH_SGD = {
    "sgd": "is what the others are compared with",
    "joint": "learns all tasks at once, and can forget none",
    "pnn": "never changes what it has learnt: test_pnn",
    "pnn-independent": "never changes what it has learnt: test_pnn",
    **dict.fromkeys(["ncm", "slda", "ridge"], "trains no net: test_closed_form"),
}


def test_every_method_is_compared_with_sgd_or_has_a_reason_not_to_be() -> None:
    assert {*WITH_A_MEMORY, *HOLDING_ON, *NOT_COMPARED_WITH_SGD} == METHODS.keys()


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=() if name in ("er", "derpp") else pytest.mark.slow)
        for name in WITH_A_MEMORY
    ],
)
def test_a_method_with_a_memory_forgets_less_than_sgd(
    method: str, forgotten: Callable[..., Floats]
) -> None:
    # Measured: SGD forgets 99 points on average, the others between 11 and 33.
    sgd, own = (forgotten("class_il", 4, name, epochs=2) for name in ("sgd", method))
    assert sgd.mean() > 95
    assert (own < sgd - 30).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", HOLDING_ON)
def test_a_regularised_method_forgets_less_than_sgd_in_task_il(
    method: str, forgotten: Callable[..., Floats]
) -> None:
    # A-GEM shows it at a rate at which SGD forgets more.
    setting = {"epochs": 5, "lr": 0.1} if method == "agem" else {"epochs": 8, "lr": 0.06}
    seeds = 16 if method == "agem" else 10
    sgd = forgotten("task_il", seeds, "sgd", **setting)
    own = forgotten("task_il", seeds, method, **setting, **HOLDING_ON[method])
    # Measured: SGD 3.9 points on average, oEWC 1.6, SI 1.1, LwF 1.5; A-GEM 3.4 against 5.4.
    assert own.mean() < sgd.mean() - 1
    assert (own < sgd).sum() > (own > sgd).sum() + 3


# ---- Settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "buffer", "expected"),
    [
        ("oewc", None, {"lr": 0.03, "batch": 10, "penalty": 90, "gamma": 1}),
        ("si", None, {"lr": 0.1, "batch": 10, "c": 1, "xi": 0.9}),
        ("lwf", None, {"lr": 0.03, "batch": 10, "alpha": 1, "decay": 0.0005}),
        ("gem", 200, {"lr": 0.01, "batch": 10, "gamma": 1}),
        ("gem", 500, {"lr": 0.03, "batch": 10, "gamma": 0.5}),
        ("gem", 5120, {"lr": 0.1, "batch": 10, "gamma": 1}),
        ("agem", 200, {"lr": 0.1, "batch": 10, "replay_batch": 128}),
        ("agem", 5120, {"lr": 0.1, "batch": 10, "replay_batch": 128}),
        ("icarl", 500, {"lr": 0.1, "batch": 10, "decay": 0}),
        ("fdr", 200, {"lr": 0.03, "batch": 128, "replay_batch": 128}),
        ("fdr", 500, {"lr": 0.1, "batch": 128, "replay_batch": 128}),
        ("gss", 500, {"lr": 0.1, "batch": 128, "replay_batch": 10, "probes": 10}),
        ("gss", 5120, {"lr": 0.1, "batch": 128, "replay_batch": 128, "probes": 10}),
        ("hal", 200, {"batch": 128, "anchoring": 0.1, "beta": 0.7, "gamma": 0.5}),
        ("hal", 500, {"batch": 128, "anchoring": 0.1, "beta": 0.2, "gamma": 0.5}),
        ("hal", 5120, {"replay_batch": 128, "anchoring": 0.1, "beta": 0.7, "gamma": 0.5}),
        ("der", 500, {"lr": 0.03, "replay_batch": 128, "alpha": 1}),
        # Nothing is published for it: ER's.
        ("er_ace", 200, {"lr": 0.01, "batch": 10, "replay_batch": 10}),
        ("er_ace", 500, {"lr": 0.1, "batch": 10, "replay_batch": 10}),
        ("er_las", 500, {"lr": 0.1, "batch": 10, "replay_batch": 10, "tau": 1, "window": 1}),
        ("lode", 200, {"lr": 0.01, "batch": 10, "replay_batch": 10, "rho": 0.1}),
        ("cls_er", 200, {"lr": 0.03, "replay_batch": 128, "alpha": 2, "stable_rate": 0.9}),
        ("cls_er", 5120, {"lr": 0.1, "replay_batch": 32, "alpha": 2, "stable_rate": 0.8}),
        # Of the nearest buffer that has some.
        ("gem", 420, {"lr": 0.03, "gamma": 0.5}),
    ],
)
def test_the_published_settings_of_split_mnist_are_the_defaults(
    method: str, buffer: int | None, expected: dict[str, float]
) -> None:
    (config,) = trial_configs(benchmark="split-mnist", method=method, buffer=buffer, seeds=[0])
    settings = {**config.model_dump(), **dict(config.weights)}
    assert {name: settings[name] for name in expected} == expected
    assert config.epochs == 1
    assert {name for name, _ in config.weights} == {
        name for name in METHODS[method].weights if name not in ("alpha", "beta")
    }


@pytest.mark.parametrize(
    ("benchmark", "method", "buffer", "expected"),
    [
        ("split-cifar10", "oewc", None, {"lr": 0.03, "penalty": 10, "gamma": 1}),
        ("split-cifar10", "si", None, {"lr": 0.03, "c": 0.5, "xi": 1}),
        ("split-cifar10", "lwf", None, {"lr": 0.01, "alpha": 3, "decay": 0.0005}),
        ("split-cifar10", "icarl", 200, {"lr": 0.1, "decay": 1e-5}),
        ("split-cifar10", "icarl", 5120, {"lr": 0.03, "decay": 1e-5}),
        ("split-cifar10", "gss", 200, {"epochs": 50, "probes": 32}),
        ("split-cifar10", "gss", 5120, {"epochs": 1, "probes": 32}),
        ("split-cifar10", "hal", 200, {"anchoring": 0.2, "beta": 0.5, "gamma": 0.1}),
        ("split-cifar10", "hal", 500, {"anchoring": 0.1, "beta": 0.3, "gamma": 0.1}),
        # Their optimiser's weight decay w is the gradient of w / 2 |theta|^2.
        ("split-cifar100", "icarl", 500, {"decay": 5e-6}),
        ("split-cifar100", "lwf", None, {"decay": 0.00025}),
        ("split-cifar100", "er_ace", 500, {"lr": 0.03}),
        ("split-cifar100", "er", 500, {"lr_drops": (35, 45)}),
    ],
)
def test_other_benchmarks_have_their_own_published_settings(
    benchmark: str, method: str, buffer: int | None, expected: dict[str, float]
) -> None:
    (config,) = trial_configs(benchmark=benchmark, method=method, buffer=buffer, seeds=[0])
    settings = {**config.model_dump(), **dict(config.weights)}
    assert {name: settings[name] for name in expected} == expected


@pytest.mark.parametrize("name", METHODS)
def test_a_weight_that_a_method_does_not_have_is_refused(
    name: str, config: MakeConfig, tiny: Benchmark
) -> None:
    with pytest.raises(SettingsError, match="has no weight 'temper'"):
        trial_configs(
            benchmark="split-digits",
            method=name,
            seeds=[0],
            overrides={"weights": {"temper": 1.0}},
        )
    with pytest.raises(ValueError, match=r"has the weights .*, got .*'temper'"):
        TrialStack([config(method=name, weights={"temper": 1.0})], tiny, build_net=small_mlp)


def test_a_given_weight_replaces_the_published_one_and_leaves_the_others() -> None:
    (config,) = trial_configs(
        benchmark="split-mnist",
        method="hal",
        buffer=500,
        seeds=[0],
        overrides={"weights": {"gamma": 0.25}, "beta": 0.9},
    )
    assert dict(config.weights) == {"anchoring": 0.1, "gamma": 0.25}
    assert config.beta == 0.9


def test_names_known_without_torch_agree_with_the_methods() -> None:
    assert {name: kind.title for name, kind in METHODS.items()} == TITLES
    assert {*METHODS} == {*SUMMARIES} - {*MASKED_NAMES}
    for name, (method, _) in MASKED_NAMES.items():
        assert systems_named(name, METHODS) == [Systems(method, masked=True, mask=None)]


def test_a_masked_name_leads_to_its_method_and_mask() -> None:
    with pytest.raises(UnknownNameError, match="`--method er --mask -inf`"):
        find_method("mser")
    with pytest.raises(UnknownNameError, match="`--method derpp --mask -1`"):
        find_method("msderpp")
