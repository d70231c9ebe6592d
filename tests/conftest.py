"""What the tests share: one thread, small configs, small benchmarks, and honest tiers."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy.testing  # noqa: F401  (here, as NumPy 1 runs lscpu at the first import)
import pytest
import torch

from remask.config import COMMON_WEIGHTS, TrialConfig
from remask.data.benchmark import Benchmark, load_benchmark
from remask.engine.validation import require_bfloat16
from remask.machine import provenance
from remask.methods import METHODS
from tests.command_line import CommandLine

_STARTING_A_PROCESS = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen"}
_MAY_START_PROCESSES = {"processes", "slow", "data", "paper", "faults", "integrations", "ray"}
_FONT_LIST = "fc-list"
"""What matplotlib runs once per machine, in whichever test draws first."""
_running: list[str] = []
"""The test that runs, if it must not start a process."""


def _refuse_processes(event: str, details: tuple[Any, ...]) -> None:
    if _running and event in _STARTING_A_PROCESS and _FONT_LIST not in map(str, details):
        raise RuntimeError(
            f"{_running[-1]} starts a process ({event}): mark it with @pytest.mark.processes, and "
            f"the fast tests leave it out"
        )


sys.addaudithook(_refuse_processes)


@pytest.fixture(autouse=True)
def _no_process_unmarked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hold the tests that `make test-fast` may run to starting none."""
    if _MAY_START_PROCESSES.isdisjoint(mark.name for mark in request.node.iter_markers()):
        _running.append(request.node.nodeid)
    yield
    _running.clear()


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Nets of this size only lose by threads, and sums keep one order."""
    provenance()  # asks git once, and no test has to
    require_bfloat16()  # tries once, in a process, before torch's layers are used
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def config() -> Callable[..., TrialConfig]:
    """Make the config of a short run, with any field changed."""

    def make(**changes: Any) -> TrialConfig:
        fields: dict[str, Any] = {
            "benchmark": "tiny",
            "method": "derpp",
            "net": "small",  # the tests' own; tests that build no net use "mlp"
            "buffer": 12,
            "lr": 0.1,
            "batch": 5,
            "replay_batch": 4,
            "epochs": 2,
            "alpha": 0.3,
            "beta": 0.7,
        }
        kind = METHODS.get(changes.get("method", fields["method"]))
        if kind is not None:
            own = {n: v for n, v in kind.weights.items() if n not in COMMON_WEIGHTS}
            fields["weights"] = own
            if not kind.trains_net:
                fields["epochs"] = 1
        return TrialConfig(**(fields | changes))

    return make


@pytest.fixture(scope="session")
def tiny_benchmark() -> Callable[..., Benchmark]:
    """Noisy blobs: class k has 7 + 3k train and 3 + k test samples, in mixed order."""

    def make(
        tasks: tuple[tuple[int, ...], ...] = ((3, 0), (4,), (1, 2, 5)),
        shape: tuple[int, ...] = (1, 3, 3),
    ) -> Benchmark:
        num_classes = sum(map(len, tasks))
        generator = torch.Generator().manual_seed(11)
        centres = torch.randint(60, 200, (num_classes, *shape), generator=generator)

        def part(sizes: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
            labels = torch.repeat_interleave(torch.arange(num_classes), torch.tensor(sizes))
            labels = labels[torch.randperm(len(labels), generator=generator)]
            noise = torch.randint(-55, 56, (len(labels), *shape), generator=generator)
            return (centres[labels] + noise).to(torch.uint8), labels

        train_inputs, train_labels = part([7 + 3 * k for k in range(num_classes)])
        test_inputs, test_labels = part([3 + k for k in range(num_classes)])
        return Benchmark(
            "tiny", train_inputs, train_labels, test_inputs, test_labels, tasks, scale=1 / 255
        )

    return make


@pytest.fixture(scope="session")
def tiny(tiny_benchmark: Callable[..., Benchmark]) -> Benchmark:
    """Six classes in tasks of two, one and three; 23, 19 and 45 train samples."""
    return tiny_benchmark()


@pytest.fixture(scope="session")
def digits() -> Benchmark:
    return load_benchmark("split-digits")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository; a test that asks for it is skipped where there is none."""
    from tests.repository import ROOT

    return ROOT


@pytest.fixture
def nothing_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the test in a folder where a `Payload` would leave its file."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield
    assert not list(Path.cwd().iterdir())


@pytest.fixture
def remask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> CommandLine:
    """The command line, with a store of the test's own."""
    return CommandLine(tmp_path / "results.db", monkeypatch, capfd)
