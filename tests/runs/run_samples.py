"""Short trials on the digits, their runs, and what they show."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import remask
from remask.config import TrialConfig
from remask.errors import Stopped
from remask.experiments import Executor, RunOptions, ThisProcess
from remask.experiments.configs import trial_configs
from remask.experiments.job_queue import open_queue
from remask.experiments.jobs import Event, Run, plan_run
from remask.machine import StopRequest
from remask.store import Store


def small(
    seeds: int | Iterable[int] = 4, *, epochs: int = 1, limit: int = 20, **settings: Any
) -> list[TrialConfig]:
    """Trials of about a second."""
    own = {name: settings.pop(name) for name in ("masks", "buffer") if name in settings}
    return trial_configs(
        benchmark="split-digits",
        method=settings.pop("method", "er"),
        seeds=list(range(seeds) if isinstance(seeds, int) else seeds),
        overrides={"limit": limit, "epochs": epochs, **settings},
        **own,
    )


def planned(store: Store, configs: Sequence[TrialConfig], stack: int = 1, workers: int = 1) -> Run:
    run = plan_run(store, configs, workers=workers, largest_stack=lambda _: stack, again=False)
    assert run is not None
    return run


def events_of(
    store: Store,
    run: Run,
    executor: Executor | None = None,
    options: RunOptions | None = None,
    stop: StopRequest | None = None,
) -> Iterator[Event]:
    executor, options = executor or ThisProcess(), options or RunOptions()
    stop = stop or StopRequest()
    with (
        open_queue(store, run, stop, executor.tries) as queue,
        closing(executor.run(queue, options, stop)) as events,
    ):
        yield from (shown for event in events if (shown := queue.handle(event)) is not None)


def stop_when(
    is_time: Callable[[Event], bool],
    number: int,
    store: Store,
    run: Run,
    executor: Executor | None = None,
    options: RunOptions | None = None,
) -> Stopped:
    """Stop a run as by a signal after such an event."""
    stop = StopRequest()
    with pytest.raises(Stopped) as caught:  # noqa: PT012
        for event in events_of(store, run, executor, options, stop):
            if is_time(event):
                stop.signal = number
    return caught.value


def shown(store: Store) -> list[object]:
    """All that a trial shows: accuracies to the last bit."""
    return [(r.config, r.status, r.class_il, r.task_il, r.confidence) for r in store.records()]


def run_here(folder: Path, configs: Sequence[TrialConfig]) -> list[object]:
    """What the trials show in this process, one after the other."""
    with Store(folder / "expected.db") as store:
        remask.run(configs=configs, store=store, workers=1, stack=1, progress=False)
        return shown(store)
