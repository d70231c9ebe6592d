"""Trials, from asked for to stored: planned, run in this process or in several, stoppable."""

from collections.abc import Sequence

import torch

from remask.config import TrialConfig
from remask.durable import make_folder
from remask.experiments.older import say_what_is_older
from remask.experiments.preparing import check_memory, fetch_data, largest_stacks
from remask.experiments.progress import Display
from remask.experiments.results import Results
from remask.planning import SettingsError, check_trusted, trial_configs
from remask.results import Store, TrialRecord, config_hash
from remask.runs import (
    Failed,
    Run,
    RunOptions,
    StopRequest,
    check_device,
    continue_run,
    jobs_left,
    plan_run,
    unfinished_runs,
)

_DEMO: tuple[tuple[str, float | None], ...] = (
    ("er", None),
    ("er", float("-inf")),
    ("derpp", None),
    ("derpp", float("-inf")),
    ("derpp", -1.0),
)


def run_trials(
    store: Store,
    configs: Sequence[TrialConfig],
    how: RunOptions,
    *,
    remedy: str = "again=True runs",
) -> Results:
    """Run what the store lacks of these trials; returns what it then has of all of them.

    `remedy` is how the caller would have trials run anew. Raises `Stopped` if asked to stop.
    """
    if not how.again:
        say_what_is_older(store, configs, remedy, how.console)
    planned = plan_trials(store, configs, how)
    failures = [] if planned is None else _run(store, planned, how)
    return Results(
        stored(store, configs), asked=configs, failures=failures, ran=planned is not None
    )


def plan_trials(store: Store, configs: Sequence[TrialConfig], how: RunOptions) -> Run | None:
    """The run of what the store lacks of these trials, or None; refuses what cannot be run."""
    _check(how)
    largest: dict[str, int] = {}
    missing = [c for c in configs if how.again or not store.is_done(config_hash(c))]
    if missing:
        fetch_data(configs, how)
        largest = largest_stacks(configs, how)
        check_memory(missing, largest, how)
    return plan_run(
        store,
        configs,
        workers=how.processes,
        largest_stack=lambda config: largest.get(config.net, len(configs)),
        again=how.again,
    )


def runs_to_resume(store: Store, name: str | None, *, own_code: bool = False) -> list[Run]:
    """The named run, or every unfinished one.

    With `own_code`, what their plans name of the user's own code may be imported.
    """
    runs = [run for run in unfinished_runs(store.path) if name is None or run.name == name]
    if not runs:
        what = "no unfinished run" if name is None else f"no unfinished run {name!r}"
        raise SettingsError(f"there is {what} beside {store.path}")
    if not own_code:
        for config in (config for run in runs for job in run.jobs for config in job.configs):
            check_trusted([config.benchmark, config.method, config.net], trusted=[])
    return runs


def resume_run(
    store: Store, run: Run, how: RunOptions, *, remedy: str = "`remask.run` with again=True runs"
) -> Results:
    """Go on with a run to its end; returns what the store then has of it."""
    _check(how)
    configs = [config for job in run.jobs for config in job.configs]
    if not run.again:
        say_what_is_older(store, configs, remedy, how.console)
    failures = _run(store, run, how)
    return Results(stored(store, configs), asked=configs, failures=failures, ran=True)


def demo_configs(trials: int) -> list[TrialConfig]:
    """The trials of the demo: replay with and without masks on the embedded digits."""
    return [
        config
        for method, mask in _DEMO
        for config in trial_configs(
            benchmark="split-digits", method=method, masks=[mask], seeds=range(trials)
        )
    ]


def stored(store: Store, configs: Sequence[TrialConfig]) -> list[TrialRecord]:
    """What the store has of these trials."""
    found = (store.get(config_hash(config)) for config in dict.fromkeys(configs))
    return [record for record in found if record is not None]


def _check(how: RunOptions) -> None:
    """Better refused before the training than after it."""
    check_device(how.device)
    if how.save_nets is not None:
        make_folder(how.save_nets)


def _run(store: Store, planned: Run, how: RunOptions) -> list[str]:
    """Run a plan, and show it; returns what failed, for people."""
    jobs = jobs_left(store, planned)
    titles = {job.name: job.title() for job in jobs}
    failures = []
    threads = torch.get_num_threads()  # the caller's own: trials that run here change it
    lines = how.progress is True
    try:
        with StopRequest() as stop, Display(jobs, how.console, lines=lines) as display:
            for event in continue_run(
                store, planned, workers=how.processes, options=how, stop=stop
            ):
                display.show(event)
                if isinstance(event, Failed):
                    failures.append(f"{titles[event.job]}: {event.error}")
    finally:
        torch.set_num_threads(threads)
    return failures
