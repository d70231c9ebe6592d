"""Measure how many stacks a driver can hand out: trivial ones, through Ray and into the store.

Run with ``python benchmarks/ray_stacks.py [STACKS]``, Ray installed. One trial per stack, a few
steps each, so that everything but training is measured: the plan, tasks of Ray, events, claims
and the store. Prints stacks per second, the driver's memory on the way, and how fast the store
alone takes rows.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from remask.experiments import Ray, RunOptions
from remask.experiments.configs import trial_configs
from remask.experiments.job_queue import open_queue
from remask.experiments.jobs import Finished, plan_run
from remask.machine import StopRequest
from remask.store import Store

MOST_LINES = 10


def main(stacks: int) -> None:
    configs = trial_configs(
        benchmark="split-digits",
        method="sgd",
        seeds=range(stacks),
        overrides={"limit": 2, "epochs": 1},
    )
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "results.db") as store:
        began = time.monotonic()
        run = plan_run(store, configs, workers=1, largest_stack=lambda _: 1, again=False)
        assert run is not None
        print(f"planned in {time.monotonic() - began:.1f} s")
        done, first, of_driver = 0, 0.0, time.process_time()
        stop = StopRequest()
        with open_queue(store, run, stop, 3) as queue:
            for event in map(queue.handle, Ray("local").run(queue, RunOptions(), stop)):
                if not isinstance(event, Finished):
                    continue
                done += 1
                first = first or time.monotonic()
                if done % max(stacks // MOST_LINES, 1) == 0:
                    rate = (done - 1) / max(time.monotonic() - first, 1e-9)
                    cpu = 1000 * (time.process_time() - of_driver) / done
                    print(
                        f"{done:6} stacks, {rate:6.1f} per second, driver: {cpu:.1f} ms of CPU "
                        f"per stack, {memory():.0f} MB",
                        flush=True,
                    )
        records = list(store.records())
        assert len(records) == stacks
        with Store(Path(folder) / "other.db") as other:
            began, of_store = time.monotonic(), time.process_time()
            for record in records:
                other.add(record)
            seconds, cpu = time.monotonic() - began, time.process_time() - of_store
        print(
            f"store alone: {stacks / seconds:.0f} rows per second, "
            f"{1000 * cpu / stacks:.2f} ms of CPU per row"
        )


def memory() -> float:
    """What this process has in memory, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
