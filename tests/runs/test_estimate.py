"""How long a job will take, from a few of its steps."""

import importlib
import time
from types import SimpleNamespace

import pytest

from remask.engine import TrialStack
from remask.methods import METHODS
from remask.planning import trial_configs
from remask.runs import Job, RunOptions, benchmark_of, estimate_seconds
from tests.engine.stack_samples import finish


def _job(method: str, **settings: object) -> Job:
    return Job(
        tuple(
            trial_configs(
                benchmark="split-digits", method=method, seeds=range(2), overrides=settings
            )
        )
    )


@pytest.fixture
def _cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the estimate count this process's work only, and not how busy the machine is."""
    estimating = importlib.import_module("remask.runs.estimate")
    monkeypatch.setattr(estimating, "time", SimpleNamespace(perf_counter=time.process_time))


# One of each kind: nothing but steps, work at the ends of tasks, work in every step, one long task.
@pytest.mark.thorough
@pytest.mark.usefixtures("_cpu_time")
@pytest.mark.parametrize("method", ["er", "lwf", "gem", "joint"])
def test_an_estimate_is_about_as_long_as_the_job(method: str) -> None:
    job = _job(method, epochs=3)
    estimate_seconds(job, RunOptions())  # once for what is slow the first time
    estimate = estimate_seconds(job, RunOptions())
    began = time.process_time()
    finish(TrialStack(job.configs, benchmark_of(job.configs[0])))
    seconds = time.process_time() - began
    assert seconds / 5 < estimate < seconds * 5  # even CPU time is noisy; an order it is not


@pytest.mark.usefixtures("_cpu_time")
def test_an_estimate_grows_with_the_epochs() -> None:
    short, long = (estimate_seconds(_job("er", epochs=epochs), RunOptions()) for epochs in (1, 100))
    assert long > 10 * short


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_can_be_estimated_even_if_its_tasks_are_tiny(method: str) -> None:
    assert estimate_seconds(_job(method, epochs=1, limit=3), RunOptions()) > 0
