"""The methods that are newer than the paper, and masks that fade, against slow ones.

See `test_methods`, which has what slow methods are made of.
"""

import copy
from collections import Counter, deque
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import TrialStack
from remask.errors import SettingsError
from remask.experiments.configs import trial_configs
from remask.experiments.results import rerun_command
from remask.memory.reservoir import draw_distinct
from remask.methods import MethodError
from remask.randomness import generator
from remask.store import Store
from tests.command_line import CommandLine
from tests.engine.stack_samples import finish, small_mlp
from tests.methods.test_methods import (
    INF,
    SLOW,
    MakeConfig,
    Slow,
    SlowReplay,
    assert_same_outcome,
    run_noted,
    surprise,
    three_trials,
)


class SlowEREMA(SlowReplay):
    """A copy of the net, always behind it, teaches what it says of the replay, and predicts."""

    def begin_task(self, task: int) -> None:
        super().begin_task(task)
        if task == 0:
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
    """Two copies behind the net: the one that knows a sample better teaches it; one predicts."""

    def begin_task(self, task: int) -> None:
        super().begin_task(task)
        if task == 0:
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
    """Every logit is raised by the logarithm of how often its class came in the last steps."""

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
    """Is it new, and which of the new is it: two losses, and the first weighs less."""

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


class SlowDERpp(SlowReplay):
    """Two draws: what was said of one is to be said again, the labels of the other are relearnt."""

    memory: list[Any]
    """Of every sample its row, and what was said of it when it came."""

    def begin_epoch(self, task: int, epoch: int, sizes: list[int]) -> None:
        super().begin_epoch(task, epoch, sizes)
        size = self.config.replay_batch
        starts = self.presented + np.cumsum([0, *sizes[:-1]])
        filled = np.repeat(np.minimum(starts, self.config.buffer), 2)
        draws = draw_distinct(generator(self.config.seed, "replay", task, epoch), filled, size)
        self.draws = [
            own[: min(size, have)].tolist() for own, have in zip(draws, filled, strict=True)
        ]

    def step(self, task: int, rows: list[int]) -> None:
        recalled, relearnt = ([self.memory[i] for i in self.draws.pop(0)] for _ in range(2))
        said = {row: self.logits(self.images[row]).detach() for row in rows}
        loss = self.mean_of(self.stream_losses(task, rows))
        if recalled:
            squares = [
                (self.logits(self.images[row]) - before).square().mean() for row, before in recalled
            ]
            labels = self.losses(self.of_rows([row for row, _ in relearnt]))
            loss = loss + self.weight["alpha"] * self.mean_of(squares)
            loss = loss + self.weight["beta"] * self.mean_of(labels)
        self.move(self.gradient(loss))
        for row in rows:
            place, kept = self.places.pop(0), said[row]
            if self.config.mask_stored:
                absent = [k for k in self.every_class if k not in self.benchmark.tasks[task]]
                kept[absent] = float(self.config.mask or 0.0)
            if self.presented < self.config.buffer:
                self.memory.append((row, kept))
            elif place < self.config.buffer:
                self.memory[place] = (row, kept)
            self.presented += 1


@pytest.mark.parametrize("mask_stored", [False, True])
def test_der_stores_logits_raw_or_as_the_mask_leaves_them(
    mask_stored: bool, config: MakeConfig, tiny: Benchmark
) -> None:
    configs = [
        config(seed=seed, mask=mask, mask_stored=mask_stored, positive_mask=mask > 0)
        for seed, mask in enumerate((-1.0, 0.0, 0.5))
    ]
    stack, chance = run_noted(configs, tiny)
    for trial, own in enumerate(configs):
        slow = SlowDERpp(own, tiny, chance.of_trial(trial))
        slow.run()
        assert_same_outcome(stack, trial, slow)


def test_logits_are_stored_masked_only_where_there_are_some_and_a_finite_mask(
    config: MakeConfig, tiny: Benchmark
) -> None:
    for mask in (None, -INF):
        with pytest.raises(ValueError, match="needs a finite mask"):
            config(mask=mask, mask_stored=True)
    with pytest.raises(MethodError, match="ER stores no logits"):
        TrialStack([config(method="er", mask=-1.0, mask_stored=True)], tiny, build_net=small_mlp)

    def asked(method: str, *masks: float | None) -> list[TrialConfig]:
        return trial_configs(
            benchmark="split-digits",
            method=method,
            masks=masks,
            seeds=[0],
            overrides={"mask_stored": True},
        )

    with pytest.raises(SettingsError, match="ER has no setting 'mask_stored'"):
        asked("er", -1.0)
    with pytest.raises(SettingsError, match="needs a finite mask"):
        asked("derpp", -INF)
    assert [own.mask_stored for own in asked("derpp", -1.0, None)] == [True, False]


def test_a_positive_mask_is_asked_for_once_for_all_masks() -> None:
    def asked(**overrides: bool) -> list[TrialConfig]:
        return trial_configs(
            benchmark="split-digits",
            method="er",
            masks=[None, -1.0, 1.0],
            seeds=[0],
            overrides=overrides,
        )

    with pytest.raises(SettingsError, match="unless positive_mask is set"):
        asked()
    configs = asked(positive_mask=True)
    assert [own.positive_mask for own in configs] == [False, False, True]
    assert len({own.shape() for own in configs}) == 1  # they run as one stack


class SlowMIR(SlowReplay):
    """Tries a step on the stream, and replays the candidates to which it does most harm."""

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

    def begin_task(self, task: int) -> None:
        if task == 0:
            self.memory: dict[int, list[int]] = {}

    def loss(self, task: int, rows: list[int]) -> Tensor:
        own = self.benchmark.tasks[task]
        losses = self.stream_losses(task, rows, among=own)
        if task == 0:
            return self.mean_of(losses)
        kept = [row for label in sorted(self.memory) for row in self.memory[label]]
        filled, slots = self.given("draw")
        assert (filled, len(slots)) == (len(kept), min(len(kept), self.config.replay_batch))
        replayed = [kept[slot] for slot in slots]
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


NEWER: dict[str, type[Slow]] = {
    "mir": SlowMIR,
    "ss_il": SlowSSIL,
    "er_ema": SlowEREMA,
    "cls_er": SlowCLSER,
    "er_las": SlowERLAS,
    "lode": SlowLODE,
}
WEIGHTS: dict[str, dict[str, float]] = {
    "mir": {},
    "ss_il": {"distillation": 0.6},
    "er_ema": {"slowness": 0.7, "ramp": 0.5},
    "cls_er": {
        "plastic_slowness": 0.5,
        "plastic_rate": 0.7,
        "stable_slowness": 0.7,
        "stable_rate": 0.5,
    },
    "er_las": {"tau": 0.7, "window": 3.0},
    "lode": {"rho": 0.5},
}
"""With these every term matters."""
HAPPENS: dict[str, set[str]] = {
    "mir": {"retrieved"},
    "ss_il": set(),
    "er_ema": {"averaged", "averaged plainly"},
    "cls_er": {"plastic teaches", "stable teaches", "plastic waits", "stable waits"},
    "er_las": {"not in this step"},
    "lode": set(),
}
"""What must have happened in a run that is to tell right from wrong."""


def _slow(method: str) -> type[Slow]:
    return {**SLOW, **NEWER}[method]


@pytest.mark.thorough
@pytest.mark.parametrize("method", NEWER)
def test_a_newer_method_equals_a_slow_one_alone_and_in_a_stack(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    configs = [
        own.model_copy(
            update={
                "weights": tuple(
                    (name, value if name == "window" else value * factor)
                    for name, value in sorted(WEIGHTS[method].items())
                )
            }
        )
        for own, factor in zip(three_trials(config, method), (1.0, 0.7, 1.4), strict=True)
    ]
    if method == "er_las":  # windows of other lengths, side by side
        configs[1] = configs[1].model_copy(update={"weights": (("tau", 1.0), ("window", 1.0))})
    stack, chance = run_noted(configs, tiny)
    happened: Counter[str] = Counter()
    for trial, own in enumerate(configs):
        slow = NEWER[method](own, tiny, chance.of_trial(trial))
        slow.run()
        assert_same_outcome(stack, trial, slow)
        if trial == 0:
            assert_same_outcome(finish(TrialStack([own], tiny, build_net=small_mlp)), 0, slow)
        happened += slow.happened
    assert happened.keys() >= HAPPENS[method]


@pytest.mark.parametrize("window", [0.0, 0.5])
def test_er_las_needs_a_window_of_at_least_one_step(
    window: float, config: MakeConfig, tiny: Benchmark
) -> None:
    with pytest.raises(MethodError, match="window >= 1"):
        TrialStack(
            [config(method="er_las", weights={"tau": 1.0, "window": window})],
            tiny,
            build_net=small_mlp,
        )


@pytest.mark.parametrize("method", ["er_ema", "cls_er"])
def test_an_exported_net_is_the_slow_copy(method: str, config: MakeConfig, tiny: Benchmark) -> None:
    configs = [config(method=method, seed=seed) for seed in (0, 1)]
    stack = finish(TrialStack(configs, tiny, build_net=small_mlp))
    inputs = torch.rand(4, *tiny.input_shape)
    for trial in range(2):
        net = stack.net(trial)
        torch.testing.assert_close(net(inputs), stack.scores(inputs, 0)[trial])
        for name, weights in net.named_parameters():
            assert not torch.equal(weights, stack.state()[f"net/{name}"][trial])


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["er", "er_ema"])
def test_a_mask_fades_with_the_share_of_the_stream_in_memory(
    method: str, config: MakeConfig, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMASK_ENGINE", "torch")  # where methods that note their draws run
    # A stack in which masks fade at rates of their own, or never, and one trial has none. The
    # stream has 87 samples, each presented twice.
    configs = [
        config(method=method, seed=seed, mask=mask, fade=fade, fade_power=power)
        for seed, (mask, fade, power) in enumerate(
            [(-1.0, 1.0, 1.0), (-INF, 4.0, 1.0), (0.0, 1.0, 1.5), (0.0, 0.0, 1.0), (None, 0.0, 1.0)]
        )
    ]
    stack, chance = run_noted(configs, tiny)
    for trial, own in enumerate(configs):
        slow = _slow(method)(own, tiny, chance.of_trial(trial))
        slow.run()
        assert_same_outcome(stack, trial, slow)
        if own.fade:
            assert slow.happened["faded to 1"]
            assert slow.happened["half faded"]
    # To the other two, it is all the same.
    steady = [own.model_copy(update={"fade": 0.0, "fade_power": 1.0}) for own in configs]
    state = finish(TrialStack(steady, tiny, build_net=small_mlp)).state()
    for name, tensor in stack.state().items():
        if name.startswith("net/"):
            assert not torch.equal(tensor[:3], state[name][:3])
            # Their batches share products with those of other terms, which round differently.
            torch.testing.assert_close(tensor[3:], state[name][3:], rtol=1e-5, atol=1e-6)


def test_a_mask_cannot_fade_where_there_is_none_or_no_memory(
    config: MakeConfig, tiny: Benchmark
) -> None:
    with pytest.raises(ValueError, match="fade needs a mask"):
        config(method="er", fade=1.0)
    with pytest.raises(MethodError, match="SGD has no memory"):
        TrialStack([config(method="sgd", mask=-1.0, fade=1.0)], tiny, build_net=small_mlp)
    with pytest.raises(ValueError, match="fade_power needs fade"):
        config(method="er", mask=-1.0, fade_power=1.5)
    for method, message in (
        ("er", "fade needs a mask"),
        ("lode", "LODE has no setting 'fade'"),
        ("sgd", "SGD has no setting 'fade'"),
    ):
        with pytest.raises(SettingsError, match=message):
            trial_configs(
                benchmark="split-digits", method=method, seeds=[0], overrides={"fade": 4.0}
            )
    masked, plain = trial_configs(
        benchmark="split-digits",
        method="er",
        masks=[-1.0, None],
        seeds=[0],
        overrides={"fade": 4.0},
    )
    assert (masked.fade, plain.fade) == (4.0, 0.0)


def test_er_ema_wears_a_fading_mask_unless_told_otherwise() -> None:
    def asked(**changes: Any) -> list[TrialConfig]:
        return trial_configs(
            benchmark="split-mnist", method="er_ema", buffer=500, seeds=[0], **changes
        )

    (rule,) = asked()
    assert (rule.mask, rule.fade, rule.lr, rule.batch, rule.replay_batch) == (0, 4, 0.15, 10, 32)
    assert (rule.alpha, dict(rule.weights)) == (0.5, {"slowness": 0.995, "ramp": 9})
    (plain,) = asked(masks=[None])
    assert (plain.mask, plain.fade) == (None, 0)
    (steady,) = asked(overrides={"fade": 0.0})
    assert (steady.mask, steady.fade) == (0, 0)


def test_the_command_line_takes_what_a_mask_can_have_and_says_how_to_run_it_again(
    remask: CommandLine,
) -> None:
    small = ["--limit", "6", "--trials", "1", "--epochs", "1", "--workers", "1"]
    refused = remask("run", "--method", "er", "--mask", "1", *small)
    assert refused.code != 0
    assert "positive_mask" in refused.err
    masked = ["--method", "derpp", "--mask", "none,0.5", "--positive-mask", "--mask-stored"]
    answer = remask("run", *masked, "--fade", "2", *small)
    assert answer.code == 0
    assert "MSDER++(0.5)" in answer.out
    assert remask("run", "--method", "er_ema", "--mask", "none,0", *small).code == 0
    with Store(remask.store) as store:
        commands = {
            (own.method, own.mask): rerun_command(own, [0])
            for own in (record.config for record in store.records())
        }
    again = {name: command.split() for name, command in commands.items()}
    assert {"--mask=0.5", "--positive-mask", "--mask-stored"} <= set(again["derpp", 0.5])
    assert "--fade 2.0" in commands["derpp", 0.5]
    assert not {"--mask=none", "--fade", "--mask-stored"} & set(again["derpp", None])
    assert "--mask=none" in again["er_ema", None]
    assert not {"--fade", "--positive-mask"} & set(again["er_ema", 0.0])
