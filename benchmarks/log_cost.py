"""What logging costs: CPU time of the same job with and without it, one after the other.

    python benchmarks/log_cost.py [--rounds 12]

The job is DER++ on the embedded digits, whose steps are shorter than those of any other benchmark,
as one trial and as a stack of ten. With logging, losses and accuracies are gathered, reported,
and written to a CSV file. Without it is measured twice, so that the noise of the ratio shows.
"""

import argparse
import tempfile
import time
from pathlib import Path

import remask
from remask.runs import Job, Run, RunOptions, StopRequest, run_job
from remask.runs.run_log import RunLog


def seconds(job: Job, folder: Path, places: list[str]) -> float:
    """The CPU time of the job, with what it logs written to these places."""
    options = RunOptions(log=places, progress=False)
    began = time.process_time()
    with RunLog(Run(folder, [job], again=False), options) as log:
        for event in run_job(job, None, options, StopRequest()):
            log.take(event)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds
    settings = remask.settings("split-digits", "derpp", 20)
    for trials in (1, 10):
        job = Job(tuple(settings.model_copy(update={"seed": n}) for n in range(trials)))
        off, again, on = list[float](), list[float](), list[float]()
        with tempfile.TemporaryDirectory() as folder:
            seconds(job, Path(folder), [])  # what is loaded once
            for number in range(rounds):
                off.append(seconds(job, Path(folder), []))
                on.append(seconds(job, Path(folder), [f"csv:{folder}/{number}.csv"]))
                again.append(seconds(job, Path(folder), []))
        # The lowest of many: what else the machine does can only add to it.
        least, cost, noise = min(off), min(on) / min(off) - 1, min(again) / min(off) - 1
        print(
            f"{trials:2} trials: {least:.2f} s of CPU without a log; with one {cost:+.1%}, without "
            f"one again {noise:+.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
