"""`remask report`: the store as a page, and as figures."""

import time
from pathlib import Path

import typer

from remask.cli import options as o
from remask.cli.console import errors
from remask.cli.results import leave_if_damaged
from remask.durable import check_output
from remask.store import Store, StoreError, summarise

_SECONDS_BETWEEN_LOOKS = 2.0


def report(
    context: typer.Context,
    target: o.Page = Path("remask-report.html"),
    figures: o.Figures = None,
    watch: o.Watch = False,
    benchmark: o.OnlyBenchmarks = None,
    method: o.OnlyMethods = None,
    mask: o.OnlyMasks = None,
    buffer: o.OnlyBuffers = None,
    seed: o.OnlySeeds = None,
    since: o.Since = None,
    store: o.StorePath = None,
) -> None:
    """Write a page of the results: tables beside the paper's, curves, every trial.

    It is one HTML file that needs nothing else and no network. With `--watch` it is written anew
    while trials come in, and reloads itself, until Ctrl-C.
    """
    filters = o.filters(context)
    check_output(target)
    with Store(o.store_path(store), create=False) as opened:
        if watch:
            _watch(opened, target, filters)
            return
        if not opened.count(filters):
            raise StoreError(
                f"{opened.path} has no trial to report{' that passes the filters' * bool(filters)}."
                f" `remask demo`, `remask run` and `remask reproduce` make some."
            )
        damaged = _write(opened, target, filters)
        if figures is not None:
            from remask.reports import write_figures  # matplotlib: not before it is needed

            records, _ = opened.sound_records(filters)
            written = write_figures(summarise(records), figures)
            errors.print(f"{len(written)} figures in {figures}", highlight=False, soft_wrap=True)
    leave_if_damaged(damaged)


def _watch(store: Store, target: Path, filters: dict[str, object]) -> None:
    """Write the page whenever the store or a run beside it has changed, until asked to stop."""
    from remask.launch import StopRequest  # torch: not before it is needed

    seen = None
    with StopRequest() as stop:
        while stop.signal is None:
            if (state := _state(store)) != seen:
                _write(store, target, filters, refresh_seconds=5.0)
                seen = state
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    _write(store, target, filters)  # the last page, which no longer reloads itself


def _state(store: Store) -> tuple[object, ...]:
    """What changes when a trial comes in, or a run begins or ends."""
    from remask.launch import runs_folder  # torch: not before it is needed

    return store.changes(), sorted(runs_folder(store.path).glob("*"))


def _write(
    store: Store, target: Path, filters: dict[str, object], refresh_seconds: float | None = None
) -> list[StoreError]:
    from remask.cli.page import write_page  # torch: not before it is needed

    damaged = write_page(store, target, filters, refresh_seconds=refresh_seconds)
    trials = store.count(filters) - len(damaged)
    errors.print(f"{trials} trials in {target}", highlight=False, soft_wrap=True)
    return damaged
