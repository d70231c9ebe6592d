"""What logging costs: the share of a job's CPU time that is spent on it.

    python benchmarks/log_cost.py [--rounds 5]

The job is DER++ on the embedded digits, whose steps are shorter than those of any other benchmark,
for as many steps as split-mnist has, as one trial and as a stack of ten. Losses and accuracies
are gathered, reported, and written to a CSV file. Every function that a job without a log does not
call is timed, so that what else the
machine does changes both sides alike; comparing whole runs with and without a log shows nothing on
a machine whose noise is larger than the difference.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import remask
from remask.engine.loss_log import LossLog
from remask.experiments import RunOptions, train
from remask.experiments.display import RunLog
from remask.experiments.jobs import Job, Run
from remask.experiments.train import run_job
from remask.machine import StopRequest
from remask.methods.base import Context

_LOGGING: list[tuple[Any, str]] = [
    (Context, "note"),
    (LossLog, "begin_task"),
    (LossLog, "after_step"),
    (LossLog, "close"),
    (LossLog, "of_trials"),
    (train._Reports, "now"),
    (RunLog, "take"),
]


class Timer:
    """Adds up the time in functions; one that is called by another counts once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inside = False

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed; a generator is run to its end."""

        def timed(*args: Any, **named: Any) -> Any:
            if self._inside:
                return function(*args, **named)
            self._inside, began = True, time.process_time()
            try:
                found = function(*args, **named)
                return list(found) if function.__name__ == "since_last" else found
            finally:
                self.seconds += time.process_time() - began
                self._inside = False

        return timed


def share(job: Job, file: Path, timer: Timer) -> float:
    """The share of the job's CPU time that goes into its log."""
    options = RunOptions(log=[f"csv:{file}"], progress=False)
    began, before = time.process_time(), timer.seconds
    with RunLog(Run(file.parent, [job], again=False), options) as log:
        for event in run_job(job, None, options, StopRequest()):
            log.take(event)
    logging = timer.seconds - before
    return logging / (time.process_time() - began - logging)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    timer = Timer()
    for owner, name in _LOGGING:
        setattr(owner, name, timer.around(getattr(owner, name)))
    settings = remask.settings("split-digits", "derpp", 20).model_copy(update={"epochs": 40})
    for trials in (1, 10):
        job = Job(tuple(settings.model_copy(update={"seed": n}) for n in range(trials)))
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / f"{number}.csv" for number in range(rounds + 1)]
            shares = [share(job, file, timer) for file in files][1:]  # the first loads the data
        print(f"{trials:2} trials: logging adds {statistics.median(shares):.1%}", flush=True)


if __name__ == "__main__":
    main()
