"""Measure stacked DER++ trials on Split-MNIST against a textbook loop and bare matmuls.

Run with ``python benchmarks/stacked_trials.py``. One process and one thread; CPU time. The
contestants go through the same stretch of the stream and take turns in small blocks of steps, so
that a busy machine slows them alike; medians of the ratios within each round of turns.

- stacked: the engine, all trials at once.
- textbook: plain PyTorch, one trial after the other: a DataLoader over float tensors, three
  forwards, torch.optim.SGD, and a reservoir that offers one sample at a time.
- matmuls: what the stacked step cannot do without: the matrix products of its forward, its weight
  gradients and its input gradients, into memory that is already there.

All that belongs to a training step counts: planning or shuffling, loading, replay, insertion.
Evaluation does not, except with ``--full``, which runs complete trials.

``--check`` measures stacks of 1, 10 and 40 trials, and MSDER++ against DER++, and exits with 1 if a
ratio is more than 15 % worse than its bound in ``BOUNDS``.
"""

import argparse
import functools
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from remask.benchmarks import Benchmark, DataError, load_benchmark, split_classes
from remask.config import TrialConfig
from remask.engine import TrialStack

TRIALS = 10
BLOCK = 50
"""Steps of each contestant in a round."""
BOUNDS = {
    "S=1: textbook / stacked": 2.2,
    "S=10: textbook / stacked": 5.6,
    "S=10: stacked / matmuls": 1.5,
    "S=40: stacked / matmuls": 1.25,
    "S=10: MSDER++ / DER++": 1.03,
}
"""What `--check` holds each ratio to: those over textbook at least, all others at most."""
_TOLERANCE = 1.15


# ---- The textbook loop --------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def float_tasks(benchmark: Benchmark) -> list[tuple[TensorDataset, TensorDataset]]:
    """The train and test set of each task as float tensors, ready before the clock starts."""

    def part(inputs: Tensor, labels: Tensor, rows: Tensor) -> TensorDataset:
        return TensorDataset(inputs[rows].float() * benchmark.scale, labels[rows])

    return [
        (
            part(benchmark.train_inputs, benchmark.train_labels, benchmark.train_indices(task)),
            part(benchmark.test_inputs, benchmark.test_labels, benchmark.test_indices(task)),
        )
        for task in range(benchmark.num_tasks)
    ]


class TextbookBuffer:
    """A reservoir as it is commonly written."""

    def __init__(self, size: int, shape: tuple[int, ...], num_classes: int) -> None:
        self.size, self.seen = size, 0
        self.examples = torch.zeros(size, *shape)
        self.labels = torch.zeros(size, dtype=torch.int64)
        self.logits = torch.zeros(size, num_classes)

    def add_data(self, examples: Tensor, labels: Tensor, logits: Tensor) -> None:
        """Offer the samples of a batch one by one."""
        for i in range(len(examples)):
            index = self.seen if self.seen < self.size else np.random.randint(0, self.seen + 1)
            self.seen += 1
            if index < self.size:
                self.examples[index] = examples[i]
                self.labels[index] = labels[i]
                self.logits[index] = logits[i]

    def get_data(self, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draw without replacement: (examples, labels, logits)."""
        filled = min(self.seen, self.size)
        choice = np.random.choice(filled, size=min(size, filled), replace=False)
        return self.examples[choice], self.labels[choice], self.logits[choice]


class TextbookTrial:
    """One DER++ trial in plain PyTorch."""

    def __init__(self, config: TrialConfig, benchmark: Benchmark) -> None:
        self.config = config
        self.tasks = float_tasks(benchmark)
        torch.manual_seed(config.seed)
        np.random.seed(config.seed)
        shape, num_classes = benchmark.input_shape, benchmark.num_classes
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(int(np.prod(shape)), 100),
            nn.ReLU(),
            nn.Linear(100, 100),
            nn.ReLU(),
            nn.Linear(100, num_classes),
        )
        for layer in self.net:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        self.optimiser = torch.optim.SGD(self.net.parameters(), lr=config.lr)
        self.buffer = TextbookBuffer(config.buffer, shape, num_classes)

    def steps(self, *, evaluate: bool = False) -> Iterator[None]:
        """Train task after task, yielding after every step."""
        config = self.config
        for task, (train, _) in enumerate(self.tasks):
            for _ in range(config.epochs):
                for inputs, labels in DataLoader(
                    train, batch_size=config.batch, shuffle=True, num_workers=0
                ):
                    self.step(inputs, labels)
                    yield
            if evaluate:
                self.accuracy(task + 1)

    def step(self, inputs: Tensor, labels: Tensor) -> None:
        """Learn from a batch and two draws, then remember the batch."""
        config, buffer = self.config, self.buffer
        self.optimiser.zero_grad()
        outputs = self.net(inputs)
        loss = F.cross_entropy(outputs, labels)
        if buffer.seen:
            examples, _, logits = buffer.get_data(config.replay_batch)
            loss = loss + config.alpha * F.mse_loss(self.net(examples), logits)
            examples, old_labels, _ = buffer.get_data(config.replay_batch)
            loss = loss + config.beta * F.cross_entropy(self.net(examples), old_labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        buffer.add_data(inputs, labels, outputs.detach())

    @torch.no_grad()
    def accuracy(self, tasks: int) -> float:
        """The mean Class-IL accuracy of the first tasks, in percent."""
        shares = []
        for _, test in self.tasks[:tasks]:
            right = 0
            for inputs, labels in DataLoader(test, batch_size=256):
                right += int((self.net(inputs).argmax(1) == labels).sum())
            shares.append(100 * right / len(test))
        return statistics.mean(shares)

    def finish(self) -> float:
        """Run to the end, testing after every task, and return the final accuracy."""
        for _ in self.steps(evaluate=True):
            pass
        return self.accuracy(len(self.tasks))


# ---- Bare matmuls ------------------------------------------------------------------------------


def matmul_steps(trials: int, batch: int, widths: Sequence[int]) -> Iterator[None]:
    """The matrix products of one stacked step, without end."""
    torch.manual_seed(0)
    layers = list(itertools.pairwise(widths))
    inputs = [torch.randn(trials, batch, width) for width in widths[:-1]]
    gradients = [torch.randn(trials, batch, width) for width in widths[1:]]
    weights = [torch.randn(trials, wide, narrow) for narrow, wide in layers]
    outputs = [torch.empty_like(gradient) for gradient in gradients]
    weight_gradients = [torch.empty_like(weight) for weight in weights]
    input_gradients = [torch.empty_like(layer_inputs) for layer_inputs in inputs]
    while True:
        for x, w, out in zip(inputs, weights, outputs, strict=True):
            torch.bmm(x, w.transpose(1, 2), out=out)
        for layer in reversed(range(len(layers))):
            g = gradients[layer]
            torch.bmm(g.transpose(1, 2), inputs[layer], out=weight_gradients[layer])
            if layer:  # the images need no gradient
                torch.bmm(g, weights[layer], out=input_gradients[layer])
        yield


# ---- The contest --------------------------------------------------------------------------------


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def take(steps: Iterator[object], count: int) -> None:
    for _ in range(count):
        next(steps)


def split_mnist() -> tuple[Benchmark, str]:
    """Split-MNIST, or random images of its shape where it cannot be had."""
    try:
        return load_benchmark("split-mnist"), "Split-MNIST"
    except DataError as problem:
        print(f"no MNIST here ({problem})")
    generator = torch.Generator().manual_seed(0)

    def part(count: int) -> tuple[Tensor, Tensor]:
        images = torch.randint(256, (count, 1, 28, 28), dtype=torch.uint8, generator=generator)
        return images, torch.arange(count) % 10

    benchmark = Benchmark("random", *part(60_000), *part(10_000), split_classes(10, 5), 1 / 255)
    return benchmark, "random images of MNIST's shape, because MNIST is not available"


def stretch(benchmark: Benchmark, samples: int) -> Benchmark:
    """The same benchmark with the first `samples` train samples of each task."""
    by_task = [benchmark.train_indices(task) for task in range(benchmark.num_tasks)]
    if min(map(len, by_task)) < samples:
        raise SystemExit(f"the smallest task has {min(map(len, by_task))} samples, not {samples}")
    rows = torch.cat([task_rows[:samples] for task_rows in by_task])
    return Benchmark(
        benchmark.name,
        benchmark.train_inputs[rows],
        benchmark.train_labels[rows],
        benchmark.test_inputs,
        benchmark.test_labels,
        benchmark.tasks,
        benchmark.scale,
    )


def trial_configs(count: int) -> list[TrialConfig]:
    return [
        TrialConfig(
            benchmark="split-mnist",
            method="derpp",
            seed=seed,
            buffer=200,
            lr=0.03,
            batch=10,
            replay_batch=10,
            epochs=1,
            alpha=0.2,
            beta=1.0,
        )
        for seed in range(count)
    ]


def contest(
    benchmark: Benchmark, blocks_per_task: int, trials: int = TRIALS, textbook_trials: int = TRIALS
) -> dict[str, float]:
    """Milliseconds per step of all trials, and the ratios; textbook trials are counted up."""
    configs = trial_configs(trials)
    size = configs[0].batch + 2 * configs[0].replay_batch
    short = stretch(benchmark, blocks_per_task * BLOCK * configs[0].batch)
    widths = (784, 100, 100, 10)

    def contestants() -> dict[str, list[Iterator[object]]]:
        return {
            "stacked": [TrialStack(configs, short).run()],
            "textbook": [
                TextbookTrial(config, short).steps() for config in configs[:textbook_trials]
            ],
            "matmuls": [matmul_steps(trials, size, widths)],
        }

    for warming in contestants().values():
        for steps in warming:
            take(steps, 10)

    running = contestants()
    seconds: dict[str, list[float]] = {name: [] for name in running}
    for _task in range(short.num_tasks):
        for _block in range(blocks_per_task):
            for name, members in running.items():
                # The textbook trials share the global random streams; their speed doesn't care.
                work = [functools.partial(take, steps, BLOCK) for steps in members]
                scale = trials / len(work) if name == "textbook" else 1.0
                seconds[name].append(scale * sum(map(cpu_seconds, work)))
        # A task is a whole number of blocks, so this is the evaluation, and off the clock.
        next(running["stacked"][0])

    def ratio(one: str, other: str) -> float:
        pairs = zip(seconds[one], seconds[other], strict=True)
        return statistics.median(a / b for a, b in pairs)

    measured = {f"{name}_ms": 1e3 * statistics.median(v) / BLOCK for name, v in seconds.items()}
    total = {name: sum(values) for name, values in seconds.items()}
    return measured | {
        "steps": float(BLOCK * len(seconds["stacked"])),
        "textbook_over_stacked": ratio("textbook", "stacked"),
        "stacked_over_matmuls": ratio("stacked", "matmuls"),
        "textbook_over_stacked_in_total": total["textbook"] / total["stacked"],
        "stacked_over_matmuls_in_total": total["stacked"] / total["matmuls"],
    }


def mask_ratio(benchmark: Benchmark, rounds: int = 20) -> float:
    """How much longer a step of MSDER++ takes than one of DER++."""
    short = stretch(benchmark, 10 * rounds * 10)
    plain = trial_configs(TRIALS)
    masked = [config.model_copy(update={"mask": -1.0}) for config in plain]
    runs = [TrialStack(configs, short).run() for configs in (plain, masked)]
    for steps in runs:
        take(steps, 50)
    ratios = []
    for _ in range(rounds - 5):
        without, with_mask = (cpu_seconds(functools.partial(take, run, 10)) for run in runs)
        ratios.append(with_mask / without)
    return statistics.median(ratios)


def check(benchmark: Benchmark) -> bool:
    """Measure every ratio that has a bound, print it, and say whether all keep to theirs."""
    found = {}
    for trials in (1, 10, 40):
        measured = contest(benchmark, 1, trials, textbook_trials=1)
        found[f"S={trials}: textbook / stacked"] = measured["textbook_over_stacked"]
        found[f"S={trials}: stacked / matmuls"] = measured["stacked_over_matmuls"]
    found["S=10: MSDER++ / DER++"] = mask_ratio(benchmark)
    kept = True
    for name, value in found.items():
        bound = BOUNDS.get(name)
        good = bound is None or (
            value >= bound / _TOLERANCE if "textbook" in name else value <= bound * _TOLERANCE
        )
        kept &= good
        verdict = "" if bound is None else f"bound {bound:5.2f}  {'kept' if good else 'MISSED'}"
        print(f"{name:26s} {value:6.2f}  {verdict}")
    return kept


def complete(benchmark: Benchmark, textbook_trials: int) -> dict[str, float]:
    """CPU seconds per trial of complete runs, evaluation after every task included."""
    stack = TrialStack(trial_configs(TRIALS), benchmark)
    stacked = cpu_seconds(lambda: list(stack.run()))
    float_tasks(benchmark)
    accuracies: list[float] = []
    textbook = cpu_seconds(
        lambda: accuracies.extend(
            TextbookTrial(config, benchmark).finish() for config in trial_configs(textbook_trials)
        )
    )
    return {
        "full_steps": float(stack.total_steps),
        "full_stacked_seconds_per_trial": stacked / TRIALS,
        "full_textbook_seconds_per_trial": textbook / textbook_trials,
        "full_textbook_over_stacked": textbook / textbook_trials / (stacked / TRIALS),
        "full_stacked_accuracy": stack.running_accuracy(),
        "full_textbook_accuracy": statistics.mean(accuracies),
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--blocks-per-task", type=int, default=5, help=f"of {BLOCK} steps each")
    parser.add_argument("--check", action="store_true", help="compare ratios with their bounds")
    parser.add_argument("--full", action="store_true", help="run complete trials too")
    parser.add_argument("--textbook-trials", type=int, default=2, help="with --full, at least 1")
    options = parser.parse_args(arguments)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        benchmark, source = split_mnist()
        if options.check:
            raise SystemExit(0 if check(benchmark) else 1)
        measured = contest(benchmark, options.blocks_per_task)
        print(f"{TRIALS} DER++ trials, buffer 200, replay 10, batch 10, MLP 784-100-100-10")
        print(f"{source}; {measured['steps']:.0f} steps; 1 thread, CPU time, without evaluation")
        print()
        print(f"{'':10s} {'ms per step, 10 trials':>22s}   ratio to stacked: median   in total")
        over, bare = "textbook_over_stacked", "stacked_over_matmuls"
        for name, median, in_total in (
            ("stacked", 1.0, 1.0),
            ("textbook", measured[over], measured[f"{over}_in_total"]),
            ("matmuls", 1 / measured[bare], 1 / measured[f"{bare}_in_total"]),
        ):
            print(f"{name:10s} {measured[f'{name}_ms']:22.3f} {median:26.2f} {in_total:10.2f}")
        print()
        print(f"textbook / stacked  {measured[over]:5.2f}   (target: at least 5)")
        print(f"stacked / matmuls   {measured[bare]:5.2f}   (target: at most 2)")
        if options.full:
            measured |= complete(benchmark, options.textbook_trials)
            print()
            print(
                f"complete runs of {measured['full_steps']:.0f} steps, evaluation included: "
                f"{TRIALS} stacked trials against {options.textbook_trials} textbook trials, "
                "CPU seconds per trial"
            )
            for name in ("stacked", "textbook"):
                print(
                    f"{name:10s} {measured[f'full_{name}_seconds_per_trial']:8.2f} s   "
                    f"Class-IL accuracy {measured[f'full_{name}_accuracy']:.1f}"
                )
            print(f"textbook / stacked  {measured['full_textbook_over_stacked']:5.2f}")
    finally:
        torch.set_num_threads(threads)
    return measured


if __name__ == "__main__":
    main()
